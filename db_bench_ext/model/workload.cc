#include "model/workload.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/modelled_group.h"

namespace hyperloop::model {
namespace {

constexpr std::pair<Primitive, std::string_view> kNames[] = {{Primitive::kWrite, "gwrite"},
                                                             {Primitive::kMemCopy, "gmemcpy"},
                                                             {Primitive::kCompareAndSwap, "gcas"},
                                                             {Primitive::kFlush, "gflush"}};

// Operations in flight touch places of their own, so that none is held back by another.
class Operations {
 public:
  explicit Operations(const Case& c)
      : case_(c),
        stride_(std::max<uint64_t>((c.size + 63) / 64 * 64, 64)),
        places_(uint64_t{2} * c.window) {}

  uint64_t region_size() const { return 2 * places_ * stride_; }
  // Operation `n`, from 0.
  Operation Next(uint64_t n, std::span<std::byte> primary) const {
    const uint64_t place = n % places_ * stride_, lap = n / places_;
    Operation operation{.write = {}, .copy = {}, .cas = {}, .flush = case_.flush};
    switch (case_.primitive) {
      case Primitive::kWrite:
        operation.write = {place, case_.size};
        std::memcpy(primary.data() + place, &n, std::min<uint64_t>(case_.size, sizeof(n)));
        break;
      case Primitive::kMemCopy:
        operation.copy = {place, places_ * stride_ + place, case_.size};
        break;
      case Primitive::kCompareAndSwap:
        operation.cas = {true, place, lap, lap + 1, (1u << case_.replicas) - 1};
        break;
      case Primitive::kFlush:
        operation.flush = true;
        break;
    }
    return operation;
  }
  // What `count` operations have left on a replica.
  Status Check(uint64_t count, std::span<std::byte> primary, std::span<std::byte> replica) const {
    const bool cas = case_.primitive == Primitive::kCompareAndSwap;
    for (uint64_t at = 0; at < region_size(); at += stride_) {
      uint64_t word;
      std::memcpy(&word, replica.data() + at, sizeof(word));
      const uint64_t place = at / stride_;
      const uint64_t laps =
          place < places_ && count > place ? (count - place + places_ - 1) / places_ : 0;
      if (cas ? word == laps : std::memcmp(primary.data() + at, replica.data() + at, stride_) == 0)
        continue;
      return Corruption("a replica holds wrong bytes at offset " + std::to_string(at));
    }
    return Status::Ok();
  }

 private:
  const Case case_;
  const uint64_t stride_;
  const uint64_t places_;
};

// What closed loops have measured together.
struct Sums {
  std::vector<Nanoseconds> latencies;
  // From the acknowledgement of each loop's first measured operation to that of its last one.
  Nanoseconds elapsed = 0;
  uint64_t operations = 0, wqes = 0, round_trips = 0;
};

// The primary's processor: it submits operations one after the other as long as the window has
// room, and looks at acknowledgements when they come.
class ClosedLoop {
 public:
  ClosedLoop(const Case& c, uint64_t operations, const Costs& costs, const Operations& made,
             ModelledGroup& model)
      : window_(c.window),
        costs_(costs),
        made_(made),
        model_(model),
        warmup_(kWarmup + c.window),
        total_(warmup_ + operations) {
    model_.primary_nic().on_anything = [this](Nanoseconds at) { Expect(at); };
  }
  ~ClosedLoop() { model_.primary_nic().on_anything = nullptr; }

  Status Run(Sums* sums) {
    Expect(model_.timeline().now());
    while (acknowledged_ < total_ && failure_.ok())
      if (!model_.timeline().Step()) return Internal("the model stands still");
    HL_RETURN_IF_ERROR(failure_);
    sums->latencies.insert(sums->latencies.end(), latencies_.begin(), latencies_.end());
    sums->elapsed += model_.timeline().now() - first_;
    sums->operations += latencies_.size() - 1;
    sums->wqes += model_.wqes() - wqes_;
    sums->round_trips += model_.round_trips() - round_trips_;
    return Status::Ok();
  }
  uint64_t total() const { return total_; }

 private:
  static constexpr uint64_t kWarmup = 100;

  // The processor looks at `at`.
  void Expect(Nanoseconds at) {
    if (look_at_ == at) return;
    look_at_ = at;
    model_.timeline().At(at, [this] { Look(); });
  }
  void Look() {
    look_at_ = 0;
    if (!failure_.ok() || acknowledged_ == total_) return;
    const auto newest = model_.group().Poll();
    if (!newest.ok()) {
      failure_ = newest.status();
      return;
    }
    for (; acknowledged_ < *newest; ++acknowledged_) {
      if (acknowledged_ == warmup_) BeginToMeasure();
      if (acknowledged_ >= warmup_) latencies_.push_back(model_.timeline().now() - began_.front());
      began_.pop_front();
    }
    SubmitSoon();
  }
  void BeginToMeasure() {
    first_ = model_.timeline().now();
    wqes_ = model_.wqes();
    round_trips_ = model_.round_trips();
  }
  void SubmitSoon() {
    if (submits_ || submitted_ == total_ || submitted_ - acknowledged_ == window_) return;
    submits_ = true;
    const Nanoseconds now = model_.timeline().now();
    began_.push_back(now);
    model_.timeline().At(now + Rounded(costs_.message_ns), [this] { Submit(); });
  }
  void Submit() {
    submits_ = false;
    const auto ticket = model_.group().TrySubmit(made_.Next(submitted_, model_.primary_bytes()));
    if (!ticket.ok()) {
      began_.pop_back();
      if (ticket.status().code() != Code::kBusy) failure_ = ticket.status();
      return;  // when it is busy, the next acknowledgement makes room
    }
    ++submitted_;
    model_.primary_nic().RingAt(model_.timeline().now() + Rounded(costs_.pcie_write_ns));
    SubmitSoon();
  }

  const uint32_t window_;
  const Costs& costs_;
  const Operations& made_;
  ModelledGroup& model_;
  const uint64_t warmup_, total_;
  uint64_t submitted_ = 0, acknowledged_ = 0;
  bool submits_ = false;     // the next operation is being made
  Nanoseconds look_at_ = 0;  // when the processor looks next; 0: not planned
  std::deque<Nanoseconds> began_;
  std::vector<Nanoseconds> latencies_;
  // When the first measured operation was acknowledged, and what had been counted then.
  Nanoseconds first_ = 0;
  uint64_t wqes_ = 0, round_trips_ = 0;
  Status failure_;
};

CaseResult Summary(Sums sums) {
  std::vector<Nanoseconds>& all = sums.latencies;
  std::ranges::sort(all);
  const auto count = static_cast<double>(all.size());
  const auto at = [&all, count](double share) {
    const auto index = static_cast<size_t>(share * count);
    return static_cast<double>(all[std::min(index, all.size() - 1)]) / 1000;
  };
  const auto each = [&sums](uint64_t number) {
    return sums.operations == 0
               ? 0
               : static_cast<double>(number) / static_cast<double>(sums.operations);
  };
  const double elapsed = each(sums.elapsed);
  return {.mean_us = std::accumulate(all.begin(), all.end(), 0.0) / count / 1000,
          .p50_us = at(0.5),
          .p95_us = at(0.95),
          .p99_us = at(0.99),
          .max_us = at(1),
          .operations_per_second = elapsed == 0 ? 0 : 1e9 / elapsed,
          .wqes = each(sums.wqes),
          .round_trips = each(sums.round_trips)};
}

// One group, and its loop of `operations`.
Status RunGroup(const Case& c, uint64_t operations, uint64_t seed, const Costs& costs, Sums* sums) {
  const Operations made(c);
  HL_ASSIGN_OR_RETURN(const auto model, ModelledGroup::Create({.datapath = c.datapath,
                                                               .order = c.order,
                                                               .replicas = c.replicas,
                                                               .window = c.window,
                                                               .region_size = made.region_size(),
                                                               .load = c.load,
                                                               .seed = seed},
                                                              costs));
  if (c.primitive == Primitive::kMemCopy) model->set_copied_bytes(c.size);
  ClosedLoop loop(c, operations, costs, made, *model);
  HL_RETURN_IF_ERROR(loop.Run(sums));
  for (uint32_t i = 0; i < c.replicas; ++i) {
    HL_RETURN_IF_ERROR(made.Check(loop.total(), model->primary_bytes(), model->replica_bytes(i)));
  }
  return Status::Ok();
}

}  // namespace

std::string_view PrimitiveName(Primitive primitive) {
  return std::ranges::find(kNames, primitive, [](const auto& each) { return each.first; })->second;
}

Result<Primitive> ParsePrimitive(std::string_view name) {
  for (const auto& each : kNames)
    if (each.second == name) return each.first;
  return InvalidArgument("'" + std::string(name) + "' is none of gwrite, gmemcpy, gcas, gflush");
}

Result<CaseResult> RunCase(const Case& c, const Costs& costs) {
  Costs own = costs;
  if (!c.yields) own.yield_us = 0;
  const uint64_t runs = c.load == 0 ? 1 : std::min(kLoadedRuns, c.operations);
  Sums sums;
  for (uint64_t run = 0; run < runs; ++run) {
    const uint64_t share = c.operations / runs + (run < c.operations % runs ? 1 : 0);
    HL_RETURN_IF_ERROR(RunGroup(c, share, c.seed + run, own, &sums));
  }
  return Summary(std::move(sums));
}

}  // namespace hyperloop::model
