// MemoryGroup: a Group over plain byte arrays, for tests that need to stop the world between any
// two events.
//
// It models how a chain of RNICs changes the regions, and when. A hop's WRITE takes the upstream
// hop's bytes at the time it runs, and may land before the downstream hop's own copies for earlier
// operations have run. Copies run in order at each hop. An operation is acknowledged when the
// copies of the last hop and of the primary have run. Events are taken in seeded random order.
// Operations that conflict by the library's rule are counted, and serialised by waiting.
//
// CrashImage gives a possible content of a hop's memory if everything stopped now: the write and
// the copy in flight may be torn.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "hyperloop/core/group.h"

namespace hyperloop {

class MemoryGroup : public Group {
 public:
  enum class Mode {
    kImmediate,  // an operation is done everywhere when Submit returns
    kRandom,     // each call takes a random number of events
    kManual,     // only Step takes events; Wait times out when nothing is acknowledged
  };

  MemoryGroup(std::span<std::byte> primary, uint32_t replicas, Mode mode, uint64_t seed = 1,
              uint32_t window = 8)
      : primary_(primary), hops_(replicas), mode_(mode), random_(seed), window_(window) {
    for (Hop& hop : hops_) hop.image.assign(primary.begin(), primary.end());
  }

  std::vector<std::byte>& image(size_t i) { return hops_[i].image; }
  size_t replicas() const { return hops_.size(); }
  uint64_t submitted() const { return base_ + operations_.size(); }
  uint64_t acknowledged() const { return std::min(hops_.back().done, local_done_); }
  uint64_t conflicts() const { return conflicts_; }
  void set_mode(Mode mode) { mode_ = mode; }
  std::function<void()> on_wait;  // called once by the next Wait
  // Breaks the group for good.
  void Fail(Status status) { status_ = std::move(status); }

  // Takes one event; false if there is none.
  bool Step() {
    std::vector<int>
        enabled;  // −1: local copy; 2i: operation arrives at hop i; 2i+1: hop i runs its local part
    if (local_done_ < submitted()) enabled.push_back(-1);
    for (size_t i = 0; i < hops_.size(); ++i) {
      if (hops_[i].arrived < (i == 0 ? submitted() : hops_[i - 1].done))
        enabled.push_back(static_cast<int>(2 * i));
      if (hops_[i].done < hops_[i].arrived) enabled.push_back(static_cast<int>(2 * i + 1));
    }
    if (enabled.empty()) return false;
    const int event = enabled[random_() % enabled.size()];
    if (event < 0) {
      RunCopy(Operation_(local_done_++), primary_, 1.0);
    } else if (event % 2 == 0) {
      const size_t i = static_cast<size_t>(event / 2);
      const Operation& operation = Operation_(hops_[i].arrived++);
      std::memcpy(hops_[i].image.data() + operation.write.offset,
                  Upstream(i).data() + operation.write.offset, operation.write.size);
    } else {
      Hop& hop = hops_[static_cast<size_t>(event / 2)];
      RunCopy(Operation_(hop.done++), hop.image, 1.0);
    }
    Forget();
    return true;
  }
  void StepAll() {
    while (Step()) {
    }
  }

  std::vector<std::byte> CrashImage(size_t i, std::mt19937_64& random) {
    Hop& hop = hops_[i];
    std::vector<std::byte> image = hop.image;
    if (hop.done < hop.arrived) RunCopy(Operation_(hop.done), image, Fraction(random));
    if (hop.arrived < (i == 0 ? submitted() : hops_[i - 1].done)) {
      // The write in flight: a prefix of it, or any of its 64 B lines.
      const Range& write = Operation_(hop.arrived).write;
      const std::span<const std::byte> from = Upstream(i);
      const uint64_t prefix =
          static_cast<uint64_t>(static_cast<double>(write.size) * Fraction(random));
      const bool lines = random() % 2 == 0;
      for (uint64_t at = 0; at < write.size; ++at) {
        const uint64_t line = (write.offset + at) / 64;
        const bool landed = lines ? (line * 0x9e3779b97f4a7c15ull ^ prefix) % 3 != 0 : at < prefix;
        if (landed) image[write.offset + at] = from[write.offset + at];
      }
    }
    return image;
  }

  // --- Group ---
  const PrimaryInfo& info() const override { return info_; }
  Status Connect(std::span<const MemberInfo>) override { return {}; }
  Result<Ticket> TrySubmit(const Operation& operation) override {
    if (submitted() - acknowledged() >= window_ || Conflicts(operation)) return Busy("must wait");
    return Submit(operation);
  }
  Result<Ticket> Submit(const Operation& operation) override {
    HL_RETURN_IF_ERROR(status_);
    for (const Range& r : {operation.write, Range{operation.copy.source, operation.copy.size},
                           Range{operation.copy.destination, operation.copy.size}}) {
      if (r.offset > primary_.size() || r.size > primary_.size() - r.offset)
        return InvalidArgument("out of range");
    }
    if (submitted() - acknowledged() >= window_)
      HL_RETURN_IF_ERROR(WaitFor(submitted() - window_ + 1));
    if (Conflicts(operation)) {
      ++conflicts_;
      HL_RETURN_IF_ERROR(WaitFor(submitted()));
    }
    operations_.push_back(operation);
    Advance();
    return submitted();
  }
  Status Wait(Ticket ticket, OperationResult* = nullptr) override {
    HL_RETURN_IF_ERROR(status_);
    if (on_wait) std::exchange(on_wait, nullptr)();
    return WaitFor(ticket);
  }
  Status WaitAll() override { return Wait(submitted()); }
  Result<Ticket> Poll() override {
    HL_RETURN_IF_ERROR(status_);
    Advance();
    return acknowledged();
  }
  Status status() const override { return status_; }
  uint32_t group_size() const override { return static_cast<uint32_t>(hops_.size()); }
  uint64_t region_size() const override { return primary_.size(); }
  Status Lock(uint64_t, uint64_t, uint64_t) override { return NotSupported("memory group"); }

 private:
  struct Hop {
    std::vector<std::byte> image;
    uint64_t arrived = 0;  // operations whose write landed here
    uint64_t done = 0;     // … whose copy ran here
  };

  static double Fraction(std::mt19937_64& random) {
    return static_cast<double>(random() % 1025) / 1024;
  }
  std::span<const std::byte> Upstream(size_t i) const {
    return i == 0 ? std::span<const std::byte>(primary_)
                  : std::span<const std::byte>(hops_[i - 1].image);
  }
  const Operation& Operation_(uint64_t index) const { return operations_[index - base_]; }
  static void RunCopy(const Operation& operation, std::span<std::byte> image, double fraction) {
    const auto size = static_cast<uint64_t>(static_cast<double>(operation.copy.size) * fraction);
    std::memcpy(image.data() + operation.copy.destination, image.data() + operation.copy.source,
                size);
  }
  static bool Overlap(const Range& a, const Range& b) {
    return a.size != 0 && b.size != 0 && a.offset < b.offset + b.size &&
           b.offset < a.offset + a.size;
  }
  bool Conflicts(const Operation& b) const {
    for (uint64_t t = acknowledged(); t < submitted(); ++t) {
      const Operation& a = Operation_(t);
      const Range source{a.copy.source, a.copy.size}, destination{a.copy.destination, a.copy.size};
      if (Overlap(b.write, a.write) || Overlap(b.write, source) || Overlap(b.write, destination))
        return true;
      if (Overlap({b.copy.destination, b.copy.size}, a.write)) return true;
    }
    return false;
  }
  void Advance() {
    if (mode_ == Mode::kImmediate) StepAll();
    if (mode_ == Mode::kRandom) {
      for (uint64_t n = random_() % 12; n > 0; --n) Step();
    }
  }
  Status WaitFor(Ticket ticket) {
    while (acknowledged() < ticket) {
      if (mode_ == Mode::kManual || !Step()) {
        status_ = TimedOut("no acknowledgement of operation " + std::to_string(ticket));
        return status_;
      }
    }
    return {};
  }
  void Forget() {
    for (; base_ < acknowledged(); ++base_) operations_.pop_front();
  }

  std::span<std::byte> primary_;
  std::vector<Hop> hops_;
  Mode mode_;
  std::mt19937_64 random_;
  const uint64_t window_;
  std::deque<Operation> operations_;
  uint64_t base_ = 0;  // operations forgotten
  uint64_t local_done_ = 0;
  uint64_t conflicts_ = 0;
  Status status_;
  PrimaryInfo info_;
};

}  // namespace hyperloop
