// instruction_counts: the cost of one WQE, one group operation and one append, in instructions
// under callgrind, otherwise in time. scripts/instruction-counts runs it and keeps the counts.
//
//   instruction_counts [--compiler]     --compiler: says what built it, and ends
#include <sys/types.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "instructions/cases.h"

namespace hyperloop::instructions {

void Fail(const char* what, const std::string& why) {
  std::fprintf(stderr, "instruction_counts: %s: %s\n", what, why.c_str());
  std::exit(1);
}

namespace {

#if defined(__clang__)
constexpr char kCompiler[] = "clang " __clang_version__;
#else
constexpr char kCompiler[] = "g++ " __VERSION__;
#endif
#if defined(__OPTIMIZE__) && defined(NDEBUG)
constexpr char kOptimized[] = "optimized";
#else
constexpr char kOptimized[] = "unoptimized";
#endif

// Times need many more operations than counts, which are the same each time.
constexpr uint64_t kTimed = 500, kCounted = 1;

int Main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--compiler") == 0) {
    std::printf("%s %s\n", kCompiler, kOptimized);
    return 0;
  }
  if (argc != 1) Fail("unknown argument", argv[1]);
  const uint64_t scale = RUNNING_ON_VALGRIND != 0 ? kCounted : kTimed;
  Meter meter;
  CountWqes(meter, 4 * scale);
  CountGroupOperations(meter, 256 * scale);
  CountAppends(meter, 512);
  return 0;
}

}  // namespace
}  // namespace hyperloop::instructions

// The engine draws random remote keys and keeps them in a hash table; this makes them the same each
// time.
extern "C" ssize_t __wrap_getrandom(void* bytes, size_t size, unsigned) {
  static std::mt19937_64 random(1);
  for (size_t i = 0; i < size; ++i) static_cast<unsigned char*>(bytes)[i] = random() & 0xff;
  return static_cast<ssize_t>(size);
}

int main(int argc, char** argv) { return hyperloop::instructions::Main(argc, argv); }
