// BusyPrimary: writes to a group in memory while somebody reads one of its members.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "log/log_lane.h"
#include "support/status_matchers.h"
#include "testing/memory_group.h"
#include "testing/test_region.h"

namespace hyperloop {

// Writes files whose names say what they hold. A few of them exist at a time.
class BusyPrimary {
 public:
  // `decided`: as JournalOptions.
  explicit BusyPrimary(uint64_t seed, const std::atomic<uint64_t>* decided = nullptr)
      : random_(seed) {
    JournalOptions options;
    options.window = 8;
    options.decided = decided;
    auto journal = Journal::Create(&group_, region_.bytes, region_.info,
                                   ScanLog(region_.bytes, region_.info).value(), &media_, options)
                       .value();
    EXPECT_OK(journal->AppendEpoch(1, TestConfiguration(1)));
    journal_ = journal.get();
    lane_ = LogLane::Load(std::move(journal), region_.bytes, region_.info, {}).value();
    for (int i = 0; i < 100; ++i) Write();
  }

  // An append, and now and then a new file in the place of the oldest.
  void Write() {
    if (newest_ == 0 || size_ > 3000) {
      if (newest_ >= 3) {
        EXPECT_OK(lane_->Remove(Name(newest_ - 3)));
      }
      file_ = lane_->Create(Name(newest_++)).value();
      size_ = 0;
    }
    const std::string piece = Bytes(newest_ - 1, size_, 1 + random_() % 700);
    EXPECT_OK(lane_->Append(file_, piece));
    size_ += piece.size();
    if (random_() % 3 == 0) {
      EXPECT_OK(lane_->Tick());
    }
    for (uint64_t i = random_() % 20; i > 0; --i) group_.Step();
  }

  static std::string Name(uint64_t file) { return "f" + std::to_string(file); }
  static std::string Bytes(uint64_t file, uint64_t offset, uint64_t count) {
    std::string bytes(count, '\0');
    for (uint64_t i = 0; i < count; ++i)
      bytes[i] = static_cast<char>((offset + i) * 31 + (offset + i) / 97 + file * 7);
    return bytes;
  }
  // Waits until everything is acknowledged. The newest file, and its size then.
  std::pair<uint64_t, uint64_t> Acknowledge() {
    EXPECT_OK(lane_->Sync());
    return {newest_ - 1, size_};
  }
  // The last record that this primary knows to be durable on every replica.
  uint64_t acked_seq() const { return journal_->acked_seq(); }
  // Writes nothing until everything is acknowledged, executed, and the head has passed it.
  void Rest() {
    EXPECT_OK(lane_->Drain());
    EXPECT_OK(lane_->Checkpoint());
    group_.StepAll();
  }
  const RegionInfo& info() const { return region_.info; }
  std::span<const std::byte> member() { return group_.image(1); }
  bool Luck(uint64_t percent) { return random_() % 100 < percent; }

 private:
  std::mt19937_64 random_;
  TestRegion region_;
  RamMedia media_;
  MemoryGroup group_{region_.bytes, 2, MemoryGroup::Mode::kRandom, random_(), 8};
  std::unique_ptr<LogLane> lane_;
  Journal* journal_ = nullptr;  // the lane's
  FileId file_{};
  uint64_t newest_ = 0, size_ = 0;
};

}  // namespace hyperloop
