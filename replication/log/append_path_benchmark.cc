// Measures how long each part of an append takes. A LogLane over a chain of three makes appends
// one after the other, each acknowledged before the next (ack=append). The clock is read where one
// part calls the next.
//
//   append_path_benchmark [bytes [appends [thread | /path/of/rnicd.sock]]]
//
// The RNICs run on a thread of their own or in the hyperloop-rnicd at a socket, and the primary
// runs on this thread. Both should have a processor to themselves. As the plugin does, the
// benchmark writes a local file while the RNICs work. The file is in the folder that TMPDIR names,
// or else in the working directory. The cost of reading the clock is measured, subtracted from each
// step, and printed.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "group/chain_fixture.h"
#include "log/log_lane.h"
#include "support/must.h"
#include "testing/test_region.h"

namespace hyperloop {
namespace {

using Clock = std::chrono::steady_clock;

enum Step { kLane, kSubmit, kAfterSubmit, kLocalWrite, kWait, kAfterWait, kSteps };
constexpr const char* kNames[] = {
    "log lane and journal, up to the group operation",
    "group: message, work requests, doorbells",
    "journal, after the doorbell",
    "write to the local file, while the RNICs work",
    "waiting for the acknowledgement",
    "journal and log lane, after it",
};

// The group of the journal, which reads the clock before and after each call.
class StampedGroup : public Group {
 public:
  explicit StampedGroup(Group& group) : group_(group) {}
  const PrimaryInfo& info() const override { return group_.info(); }
  Status Connect(std::span<const MemberInfo> chain) override { return group_.Connect(chain); }
  Result<Ticket> Submit(const Operation& operation) override {
    Stamp(kLane);
    auto ticket = group_.Submit(operation);
    Stamp(kSubmit);
    return ticket;
  }
  Result<Ticket> TrySubmit(const Operation& operation) override {
    return group_.TrySubmit(operation);
  }
  Status Wait(Ticket ticket, OperationResult* result) override {
    Stamp(kLocalWrite);
    Status status = group_.Wait(ticket, result);
    Stamp(kWait);
    return status;
  }
  Status WaitAll() override { return group_.WaitAll(); }
  Result<Ticket> Poll() override { return group_.Poll(); }
  Status status() const override { return group_.status(); }
  uint32_t group_size() const override { return group_.group_size(); }
  uint64_t region_size() const override { return group_.region_size(); }
  Status Lock(uint64_t offset, uint64_t expected, uint64_t desired) override {
    return group_.Lock(offset, expected, desired);
  }

  // Adds the time since the previous stamp to `step`.
  void Stamp(Step step) {
    const Clock::time_point now = Clock::now();
    spent_[step] += std::chrono::nanoseconds(now - last_).count();
    last_ = now;
  }
  void Begin() {
    spent_ = {};
    last_ = Clock::now();
  }
  const std::array<int64_t, kSteps>& spent() const { return spent_; }

 private:
  Group& group_;
  std::array<int64_t, kSteps> spent_{};
  Clock::time_point last_;
};

double StampCost(StampedGroup& group) {
  constexpr int kTries = 100'000;
  group.Begin();
  for (int i = 0; i < kTries; ++i) group.Stamp(kLane);
  return static_cast<double>(group.spent()[kLane]) / kTries;
}

struct Bench {
  explicit Bench(const std::string& engine) {
    constexpr uint64_t kRegion = 256 << 20;
    chain = Must(Chain::Create({.window = 64,
                                .region_size = kRegion,
                                .daemon_socket = engine[0] == '/' ? engine : std::string(),
                                .threaded = engine[0] != '/',
                                .spin_us = 1000}));
    const std::span<std::byte> region = chain->primary_bytes();
    Must(FormatRegion(region, Uuid{1}, kTestSecret,
                      Must(RegionGeometry::Compute(kRegion, 32 << 20, 4096))));
    for (uint32_t i = 0; i < chain->size(); ++i)
      std::memcpy(chain->replica_bytes(i).data(), region.data(), region.size());
    const RegionInfo info = Must(ParseSuperblock(region, region.size()));
    LogState log;
    log.head = Must(ReadHead(region, info));
    log.tail = log.head.cursor;
    group = std::make_unique<StampedGroup>(chain->group());
    auto journal = Must(Journal::Create(group.get(), region, info, log, &media, {}));
    Must(journal->AppendEpoch(1, TestConfiguration(1)).status());
    lane = Must(LogLane::Load(std::move(journal), region, info, {}));
    const char* const folder = std::getenv("TMPDIR");
    local = ::open(folder != nullptr ? folder : ".", O_TMPFILE | O_WRONLY, 0600);
    Must(local >= 0 ? Status() : FromErrno(errno, "a temporary file"));
  }
  ~Bench() { ::close(local); }

  RamMedia media;
  std::unique_ptr<Chain> chain;
  std::unique_ptr<StampedGroup> group;
  std::unique_ptr<LogLane> lane;
  int local = -1;
};

// Prints the median, over rounds of 1,000 appends, of each step's mean, because a stall of the
// machine affects few rounds.
void Run(Bench& bench, size_t bytes, uint64_t appends) {
  constexpr uint64_t kRound = 1000, kFile = 64 << 20;
  const double stamp = StampCost(*bench.group);
  const std::string data(bytes, 'x');
  std::array<std::vector<double>, kSteps> means;
  uint64_t written = kFile;
  FileId file = 0;
  for (uint64_t round = 0; round <= appends / kRound; ++round) {
    if (written + kRound * bytes > kFile) {  // now and then a new log, as RocksDB makes them
      if (round != 0) Must(bench.lane->Remove("000001.log"));
      file = Must(bench.lane->Create("000001.log"));
      written = 0;
    }
    bench.group->Begin();
    for (uint64_t i = 0; i < kRound; ++i) {
      const AppendTicket ticket = Must(bench.lane->Append(file, data));
      bench.group->Stamp(kAfterSubmit);
      if (::write(bench.local, data.data(), bytes) < 0) Must(FromErrno(errno, "the local file"));
      Must(bench.lane->Await(ticket));
      bench.group->Stamp(kAfterWait);
    }
    written += kRound * bytes;
    for (int step = 0; step < kSteps && round != 0; ++step)  // the first round warms up
      means[step].push_back(static_cast<double>(bench.group->spent()[step]) / kRound - stamp);
  }
  double sum = 0;
  std::printf("append of %zu B, group of 3; a reading of the clock, subtracted: %.1f ns\n", bytes,
              stamp);
  for (int step = 0; step < kSteps; ++step) {
    auto& each = means[step];
    std::nth_element(each.begin(), each.begin() + each.size() / 2, each.end());
    std::printf("  %-50s %9.1f ns\n", kNames[step], each[each.size() / 2]);
    sum += each[each.size() / 2];
  }
  std::printf("  %-50s %9.1f ns\n", "sum", sum);
}

}  // namespace
}  // namespace hyperloop

int main(int argc, char** argv) {
  const size_t bytes = argc > 1 ? std::strtoull(argv[1], nullptr, 0) : 100;
  const uint64_t appends = argc > 2 ? std::strtoull(argv[2], nullptr, 0) : 200'000;
  if (bytes == 0 || bytes > 64'000 || appends < 1000 || argc > 4) {
    std::fprintf(
        stderr,
        "usage: append_path_benchmark [bytes, 1 to 64000 [appends, at least 1000 [thread | "
        "/path/of/rnicd.sock]]]\n");
    return 2;
  }
  hyperloop::Bench bench(argc > 3 ? argv[3] : "thread");
  hyperloop::Run(bench, bytes, appends);
  return 0;
}
