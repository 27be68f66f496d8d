// Measures the CPU time that an append takes above the group, with a LogLane over a group that
// acknowledges at once.
//
//   log_lane_benchmark [appends]
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

#include "log/log_lane.h"
#include "testing/test_region.h"

namespace {

using hyperloop::Range;

class NullGroup : public hyperloop::Group {
 public:
  explicit NullGroup(uint64_t region_size) : region_size_(region_size) {}
  const hyperloop::PrimaryInfo& info() const override { return info_; }
  hyperloop::Status Connect(std::span<const hyperloop::MemberInfo>) override { return {}; }
  hyperloop::Result<hyperloop::Ticket> Submit(const hyperloop::Operation&) override {
    return ++ticket_;
  }
  hyperloop::Result<hyperloop::Ticket> TrySubmit(const hyperloop::Operation&) override {
    return ++ticket_;
  }
  hyperloop::Status Wait(hyperloop::Ticket, hyperloop::OperationResult*) override { return {}; }
  hyperloop::Status WaitAll() override { return {}; }
  hyperloop::Result<hyperloop::Ticket> Poll() override { return ticket_; }
  hyperloop::Status status() const override { return {}; }
  uint32_t group_size() const override { return 1; }
  uint64_t region_size() const override { return region_size_; }
  hyperloop::Status Lock(uint64_t, uint64_t, uint64_t) override { return {}; }

 private:
  const uint64_t region_size_;
  hyperloop::PrimaryInfo info_;
  hyperloop::Ticket ticket_ = 0;
};

// The CPU time of this thread, because the machine may be busy with other work.
double CpuNanoseconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

int Run(size_t size, uint64_t appends) {
  using namespace hyperloop;
  const uint64_t region_size = 256ull << 20;
  std::vector<std::byte> region(region_size);
  const auto geometry = RegionGeometry::Compute(region_size, 32ull << 20, 4096).value();
  FormatRegion(region, Uuid{1}, kTestSecret, geometry).IgnoreError();
  const RegionInfo info = ParseSuperblock(region, region_size).value();
  LogState log;
  log.head = ReadHead(region, info).value();
  log.tail = log.head.cursor;
  NullGroup group(region_size);
  RamMedia media;
  auto journal = Journal::Create(&group, region, info, log, &media, {}).value();
  if (!journal->AppendEpoch(1, TestConfiguration(1)).ok()) return 1;
  auto lane = LogLane::Load(std::move(journal), region, info, {}).value();
  const std::string data(size, 'x');
  FileId file = lane->Create("000001.log").value();
  uint64_t written = 0;
  const double begin = CpuNanoseconds();
  for (uint64_t i = 0; i < appends; ++i) {
    if (written + size > (64u << 20)) {  // now and then a new log, as RocksDB makes them
      if (!lane->Remove("000001.log").ok()) return 1;
      file = lane->Create("000001.log").value();
      written = 0;
    }
    const Result<AppendTicket> sent = lane->Append(file, data);
    const Status status = sent.ok() ? lane->Await(*sent) : sent.status();
    if (!status.ok()) {
      std::fprintf(stderr, "%s\n", status.ToString().c_str());
      return 1;
    }
    written += size;
  }
  const double ns = CpuNanoseconds() - begin;
  std::printf("append of %7zu B: %8.1f ns of CPU\n", size, ns / static_cast<double>(appends));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t appends = argc > 1 ? std::strtoull(argv[1], nullptr, 0) : 2'000'000;
  for (const size_t size : {100, 1000, 10000}) {
    if (const int failed = Run(size, size > 1000 ? appends / 10 : appends)) return failed;
  }
  return 0;
}
