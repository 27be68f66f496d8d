// The parts of every fuzz target. A target is one file with a FuzzTarget of its name. With
// libFuzzer (HYPERLOOP_FUZZ=ON, clang; libfuzzer_main.cc) it is a program of its own. All of them
// are in one program with replay_main.cc, which runs the seeds of one and a fixed number of their
// mutations under any compiler.
//
// A target ends the process (HL_FUZZ_CHECK, or a sanitizer does) when a rule is broken; otherwise
// it returns for every input. Reader reads inputs and never runs out, because it gives zeros
// behind the end. So a shorter input is a simpler one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#define HL_FUZZ_CHECK(condition, what)                                        \
  do {                                                                        \
    if (!(condition)) {                                                       \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, \
                   std::string(what).c_str());                                \
      std::abort();                                                           \
    }                                                                         \
  } while (0)

namespace hyperloop::fuzz {

using Input = std::vector<uint8_t>;

class Reader;

// One target of the program; a constant of namespace scope.
struct FuzzTarget {
  // `seeds`: valid inputs to start from, as the other end would really send them. `run`: takes one
  // input.
  FuzzTarget(const char* its_name, std::vector<Input> (*its_seeds)(), void (*its_run)(Reader&))
      : name(its_name), seeds(its_seeds), run(its_run) {
    All().push_back(this);
  }
  static std::vector<const FuzzTarget*>& All() {
    static std::vector<const FuzzTarget*> all;
    return all;
  }
  const char* const name;
  std::vector<Input> (*const seeds)();
  void (*const run)(Reader&);
};

class Reader {
 public:
  Reader(const uint8_t* data, size_t size) : left_(data, size) {}
  bool done() const { return left_.empty(); }
  size_t size() const { return left_.size(); }
  uint8_t Next() const { return done() ? 0 : left_.front(); }  // what U8 would return

  template <class T>
  T Get() {
    T value{};
    Fill(&value, sizeof(value));
    return value;
  }
  uint8_t U8() { return Get<uint8_t>(); }
  uint16_t U16() { return Get<uint16_t>(); }
  uint32_t U32() { return Get<uint32_t>(); }
  uint64_t U64() { return Get<uint64_t>(); }
  // Copies at most `size` bytes to `out`; if the input ends before, the rest of `out` is unchanged.
  void Fill(void* out, size_t size) {
    const auto bytes = Bytes(size);
    if (!bytes.empty()) std::memcpy(out, bytes.data(), bytes.size());
  }
  // At most `size` bytes.
  std::span<const uint8_t> Bytes(size_t size) {
    const auto bytes = left_.first(size < left_.size() ? size : left_.size());
    left_ = left_.subspan(bytes.size());
    return bytes;
  }
  std::span<const uint8_t> Rest() { return Bytes(left_.size()); }

 private:
  std::span<const uint8_t> left_;
};

// Writes what Reader reads; for seeds.
class Writer {
 public:
  template <class T>
  Writer& Put(const T& value) {
    return Bytes(&value, sizeof(value));
  }
  Writer& U8(unsigned value) { return Put(static_cast<uint8_t>(value)); }
  Writer& U16(unsigned value) { return Put(static_cast<uint16_t>(value)); }
  Writer& U32(uint32_t value) { return Put(value); }
  Writer& U64(uint64_t value) { return Put(value); }
  Writer& Bytes(const void* data, size_t size) {
    const auto* from = static_cast<const uint8_t*>(data);
    input_.insert(input_.end(), from, from + size);
    return *this;
  }
  Input Finish() { return std::move(input_); }

 private:
  Input input_;
};

inline Input FromText(std::string_view text) { return {text.begin(), text.end()}; }

}  // namespace hyperloop::fuzz
