// Session: a chain of replicas in which two neighbours do not reach each other, although the
// primary reaches both.
#include <algorithm>

#include "hyperloop/core/text.h"
#include "primary/asking.h"
#include "primary/session.h"

namespace hyperloop {
namespace {

using Clock = std::chrono::steady_clock;

// The bytes of the first record behind `acked` in the log of `own`, as a range of the region; size
// 0: there is none.
Range FirstUnacknowledged(std::span<const std::byte> own, const RegionInfo& info, uint64_t acked) {
  Range found;
  ScanLog(own, info, 0,
          [&](const RecordView& record, uint64_t ring_offset) -> Status {
            if (record.header.seq <= acked) return {};
            found = {kJournalOffset + ring_offset, record.header.length};
            return Aborted("found");
          })
      .status()
      .IgnoreError();
  return found;
}

}  // namespace

// All of it had ack_timeout to arrive, and did so at each member in front of the cut.
void Session::NoteCutWay(uint64_t offset, std::span<const std::byte> sent) {
  const bool all_reached = CheckMembers().ok();
  if (!all_reached || chain_.empty() || sent.empty()) return;
  const std::vector<Result<bool>> arrived = AtOnce(chain_.size(), [&](size_t i) -> Result<bool> {
    std::vector<std::byte> theirs(sent.size());
    HL_RETURN_IF_ERROR(chain_[i]->remote_access().Read(chain_[i]->region(), offset, theirs));
    return std::ranges::equal(theirs, sent);
  });
  std::vector<bool> has;
  for (const Result<bool>& each : arrived) {
    if (!each.ok()) return;
    has.push_back(*each);
  }
  const std::optional<size_t> behind = FirstBehindCut(has);
  if (!behind.has_value()) return;
  ReplicaHandle& from = *chain_[*behind - 1];
  // A stopped process may be what forwards nothing.
  if (!from.Hello(failure_times_.answer).ok()) return;
  const ReplicaHandle& to = *chain_[*behind];
  found_cut_ = !cut_ways_.Has(from.address(), to.address(), Clock::now());
  cut_ways_.Note(from.address(), to.address(), Clock::now());
  cut_off_ = to.address();
  Say(LogLevel::kWarn, Text("nothing arrives at ", to.name(), " from ", from.name(),
                            ", although this primary reaches both; the chain avoids the way "
                            "between them for a while; see to the network"));
}

void Session::NoteCutWay(uint64_t acked) {
  const std::span<const std::byte> own = pool_->region();
  const Range record = FirstUnacknowledged(own, info_, acked);
  NoteCutWay(record.offset, own.subspan(record.offset, record.size));
}

Result<std::vector<ReplicaHandle*>> Session::ChainToArm() {
  std::vector<std::string> addresses;
  for (const ReplicaHandle* each : members_) addresses.push_back(each->address());
  const auto order = ChainOrder(addresses, cut_ways_, Clock::now());
  if (!order.has_value()) {
    ReplicaHandle* const blamed = HandleAt(cut_off_);
    if (blamed != nullptr) blamed->Blame();
    return Unavailable(Text("some replicas do not reach each other, so that they form no chain; ",
                            "replica ", cut_off_, " is left out if enough others are there"));
  }
  std::vector<ReplicaHandle*> chain;
  for (const size_t i : *order) chain.push_back(members_[i]);
  return chain;
}

}  // namespace hyperloop
