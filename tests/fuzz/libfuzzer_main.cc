// What libFuzzer calls, in a program with one target.
#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hyperloop::fuzz::Reader in(data, size);
  hyperloop::fuzz::FuzzTarget::All().front()->run(in);
  return 0;
}
