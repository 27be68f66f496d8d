#include "group/chain_fixture.h"
#include "instructions/cases.h"

namespace hyperloop::instructions {
namespace {

// Which part of an operation is counted.
enum class Part { kPrimary, kRnic };

constexpr uint64_t kRegion = 1 << 20, kHalf = kRegion / 2;

Operation WriteAndFlush(uint64_t n, uint64_t size) {
  Operation operation;
  operation.write = {n * size % kHalf, size};
  operation.flush = true;
  return operation;
}
Operation Copy(uint64_t n) {
  Operation operation;
  operation.copy = {n * 1024 % kHalf, kHalf + n * 1024 % kHalf, 1024};
  operation.flush = true;
  return operation;
}
Operation Cas(uint64_t n) {
  Operation operation;
  operation.cas = {
      .present = true, .offset = 64, .expected = n, .desired = n + 1, .execute_map = 7};
  return operation;
}

template <class Make>
void Count(Meter& meter, const std::string& name, Part part, uint64_t operations, Make&& make) {
  bool counting = false;
  ChainOptions options{.group_size = 3, .window = 64, .region_size = kRegion};
  options.step = [&](softrnic::Engine& engine) {
    if (counting && part == Part::kPrimary) meter.Stop();
    if (counting && part == Part::kRnic) meter.Start();
    while (engine.Run(64) != 0) {
    }
    if (counting && part == Part::kRnic) meter.Stop();
    if (counting && part == Part::kPrimary) meter.Start();
  };
  auto chain = Chain::Create(options);
  if (!chain.ok()) Fail(name.c_str(), chain.status().ToString());
  Group& group = (*chain)->group();
  const uint64_t warm = 2 * SlotsFor(options.window);  // each slot has been through a lap
  for (uint64_t n = 0; n < warm + operations; ++n) {
    counting = n >= warm;
    const Operation operation = make(n);
    if (counting && part == Part::kPrimary) meter.Start();
    const auto ticket = group.Submit(operation);
    const Status status = ticket.ok() ? group.Wait(*ticket) : ticket.status();
    if (counting && part == Part::kPrimary) meter.Stop();
    if (!status.ok()) Fail(name.c_str(), status.ToString());
  }
  meter.Report(name + (part == Part::kPrimary ? ".primary" : ".rnic"), operations);
}

}  // namespace

void CountGroupOperations(Meter& meter, uint64_t operations) {
  for (const Part part : {Part::kPrimary, Part::kRnic}) {
    Count(meter, "gwrite_flush_128", part, operations,
          [](uint64_t n) { return WriteAndFlush(n, 128); });
    Count(meter, "gwrite_flush_1024", part, operations,
          [](uint64_t n) { return WriteAndFlush(n, 1024); });
    Count(meter, "gmemcpy_1024", part, operations, Copy);
    Count(meter, "gcas", part, operations, Cas);
  }
}

}  // namespace hyperloop::instructions
