#include <cstring>

#include "group/chain_fixture.h"
#include "instructions/cases.h"
#include "log/journal.h"
#include "log/log_lane.h"
#include "support/append_durably.h"
#include "testing/test_region.h"

namespace hyperloop::instructions {
namespace {

constexpr uint64_t kRegion = 24 << 20, kJournal = 8 << 20;
constexpr uint32_t kWindow = 64;  // the default of the group and the journal

// A log lane over a chain whose nodes all hold the same formatted region.
struct Bench {
  Bench(Meter& m, bool primary) : meter(m), count_primary(primary) {
    const auto geometry = RegionGeometry::Compute(kRegion, kJournal, 256);
    if (!geometry.ok()) Fail("append", geometry.status().ToString());
    ChainOptions options{.group_size = 3, .window = kWindow, .region_size = kRegion};
    options.step = [this](softrnic::Engine& engine) { Step(engine); };
    auto made = Chain::Create(options);
    if (!made.ok()) Fail("append", made.status().ToString());
    chain = std::move(*made);
    const std::span<std::byte> region = chain->primary_bytes();
    FormatRegion(region, Uuid{1}, kTestSecret, *geometry).IgnoreError();
    for (uint32_t i = 0; i < chain->size(); ++i)
      std::memcpy(chain->replica_bytes(i).data(), region.data(), region.size());
    const RegionInfo info = ParseSuperblock(region, region.size()).value();
    LogState log;
    log.head = ReadHead(region, info).value();
    log.tail = log.head.cursor;
    auto journal = Journal::Create(&chain->group(), region, info, log, &media, {}).value();
    if (!journal->AppendEpoch(1, TestConfiguration(1)).ok()) Fail("append", "no epoch");
    lane = LogLane::Load(std::move(journal), region, info, {}).value();
    file = lane->Create("000001.log").value();
  }
  void Step(softrnic::Engine& engine) {
    if (counting) count_primary ? meter.Stop() : meter.Start();
    while (engine.Run(64) != 0) {
    }
    if (counting) count_primary ? meter.Start() : meter.Stop();
  }
  void Append(std::string_view data) {
    if (counting && count_primary) meter.Start();
    const Status status = AppendDurably(*lane, file, data);
    if (counting && count_primary) meter.Stop();
    if (!status.ok()) Fail("append", status.ToString());
  }

  Meter& meter;
  const bool count_primary;
  bool counting = false;
  RamMedia media;
  std::unique_ptr<Chain> chain;
  std::unique_ptr<LogLane> lane;
  FileId file = 0;
};

}  // namespace

void CountAppends(Meter& meter, uint64_t appends) {
  for (const bool primary : {true, false}) {
    for (const size_t size : {100, 1000}) {
      const uint64_t warm = 2 * SlotsFor(kWindow);
      // The counted appends must neither begin an extent (1 MiB) nor move the head (a quarter of
      // the journal).
      if ((warm + appends) * (size + 200) > (1 << 20)) Fail("append", "too many for one extent");
      Bench bench(meter, primary);
      const std::string data(size, 'x');
      for (uint64_t i = 0; i < warm + appends; ++i) {
        bench.counting = i >= warm;
        bench.Append(data);
      }
      meter.Report("append_" + std::to_string(size) + (primary ? ".primary" : ".rnic"), appends);
    }
  }
}

}  // namespace hyperloop::instructions
