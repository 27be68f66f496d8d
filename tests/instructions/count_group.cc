#include "group/chain_fixture.h"
#include "instructions/cases.h"

namespace hyperloop::instructions {
namespace {

// The part of an operation that is counted.
enum class Part { kPrimary, kRnic, kReplicas };

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

// One chain, and the part of its operations that is counted.
class Counting {
 public:
  Counting(Meter& meter, Datapath datapath, Part part, uint32_t group_size = 3)
      : meter_(meter), part_(part) {
    ChainOptions options{
        .datapath = datapath, .group_size = group_size, .window = kWindow, .region_size = kRegion};
    options.step = [this](softrnic::Engine& engine) { Step(engine); };
    auto chain = Chain::Create(options);
    if (!chain.ok()) Fail("chain", chain.status().ToString());
    chain_ = std::move(chain).value();
  }

  template <class Make>
  void Run(const std::string& name, uint64_t operations, Make&& make) {
    Group& group = chain_->group();
    const uint64_t warm = 2 * SlotsFor(kWindow);  // each slot has been through a lap
    for (uint64_t n = 0; n < warm + operations; ++n) {
      counting_ = n >= warm;
      const Operation operation = make(n);
      Enter(Part::kPrimary);
      const auto ticket = group.Submit(operation);
      const Status status = ticket.ok() ? group.Wait(*ticket) : ticket.status();
      Leave(Part::kPrimary);
      if (!status.ok()) Fail(name.c_str(), status.ToString());
    }
    meter_.Report(name + kSuffix[static_cast<int>(part_)], operations);
  }

 private:
  static constexpr uint32_t kWindow = 64;
  static constexpr const char* kSuffix[] = {".primary", ".rnic", ".replicas"};

  void Enter(Part part) {
    if (counting_ && part_ == part) meter_.Start();
  }
  void Leave(Part part) {
    if (counting_ && part_ == part) meter_.Stop();
  }
  // Steps the engine until it has no work.
  void Step(softrnic::Engine& engine) {
    Leave(Part::kPrimary);
    for (bool worked = true; worked;) {
      Enter(Part::kRnic);
      while (engine.Run(64) != 0) {
      }
      Leave(Part::kRnic);
      worked = false;
      Enter(Part::kReplicas);
      for (uint32_t i = 0; i < chain_->size(); ++i) worked |= chain_->StepCpu(i);
      Leave(Part::kReplicas);
    }
    Enter(Part::kPrimary);
  }

  Meter& meter_;
  const Part part_;
  bool counting_ = false;
  std::unique_ptr<Chain> chain_;
};

}  // namespace

void CountGroupOperations(Meter& meter, uint64_t operations) {
  const auto write = [](uint64_t size) {
    return [size](uint64_t n) { return WriteAndFlush(n, size); };
  };
  for (const Part part : {Part::kPrimary, Part::kRnic}) {
    const auto count = [&](const std::string& name, auto&& make) {
      Counting(meter, Datapath::kOffload, part).Run(name, operations, make);
    };
    count("gwrite_flush_128", write(128));
    count("gwrite_flush_1024", write(1024));
    count("gmemcpy_1024", Copy);
    count("gcas", Cas);
  }
  for (const Part part : {Part::kPrimary, Part::kRnic})
    Counting(meter, Datapath::kFanout, part).Run("fanout_128", operations, write(128));
  for (const Part part : {Part::kPrimary, Part::kReplicas, Part::kRnic})
    Counting(meter, Datapath::kCpuPolling, part).Run("cpu_polling_128", operations, write(128));
  for (const Part part : {Part::kPrimary, Part::kRnic})
    Counting(meter, Datapath::kOffload, part, 1).Run("one_128", operations, write(128));
  for (const Part part : {Part::kPrimary, Part::kReplicas, Part::kRnic})
    Counting(meter, Datapath::kCpuPolling, part, 1).Run("one_polling_128", operations, write(128));
}

}  // namespace hyperloop::instructions
