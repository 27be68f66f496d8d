#include <thread>
#include <utility>

#include "simulation/scheduler.h"
#include "simulation/steps.h"

namespace hyperloop::simulation {
namespace {

constexpr size_t kPiece = 8 << 10;  // bytes

}  // namespace

void Steps::GoOnByForce() {
  const std::set<int> all = sets_.All();
  if (all.size() < 2 || !sets_.known()) return;
  Sides sides{all, {}, history_};
  while (sides.kept.size() > all.size() / 2)
    sides.given_up.insert(sides.kept.extract(AnyOf(sides.kept)));
  for (const int each : sides.given_up) world_.Kill(each);
  const ReplicaList list = sets_.lists().front().Plain();
  CheckSurvivors(sides, list);
  Say("by force, the group goes on without replicas " + ListOf(sides.given_up).Text());
  for (int i = 0; i < kMostOpens && primary_ == nullptr && wrong_.empty(); ++i) {
    primary_ = OpenAsNewProcess(host_, {list, true, false, sides.given_up});
    if (primary_ == nullptr) std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  if (primary_ == nullptr) return Wrong("nobody goes on by force: " + refusal_.ToString());
  std::this_thread::sleep_for(std::chrono::milliseconds(Below(500)));
  if (Below(2) == 0) {
    primary_->Stop();
    primary_->Close().IgnoreError();
    primary_.reset();
  } else {
    Vanish(primary_);
  }
  for (const int each : sides.given_up) world_.Start(each);
  std::this_thread::sleep_for(kRnicOpens);
  for (uint64_t i = 2 + Below(7); i > 0 && wrong_.empty(); --i) OpenASide(sides, all);
  CheckSides(sides);
  if (wrong_.empty()) OpenKept(sides);
}

void Steps::CheckSurvivors(const Sides& sides, const ReplicaList& list) {
  const Result<Survivors> found = world_.FindSurvivors(kPrimaries[host_], {list, true, false, {}});
  if (!found.ok()) return Wrong("nobody says who is lost: " + found.status().ToString());
  std::set<std::string> lost;
  for (const int each : sides.given_up) lost.insert(world_.AddressOf(each));
  if (std::set<std::string>(found->lost.begin(), found->lost.end()) != lost)
    Wrong("others than replicas " + ListOf(sides.given_up).Text() + " are said to be lost");
}

ReplicaList Steps::ListOf(const std::set<int>& replicas) {
  return {{replicas.begin(), replicas.end()}};
}

void Steps::OpenASide(const Sides& sides, const std::set<int>& all) {
  const std::set<int>* const side = Below(2) == 0 ? &sides.kept : &sides.given_up;
  const ReplicaList list = ListOf(Below(3) == 0 ? *side : all);
  const std::set<int> none;
  const std::set<int>& down = Below(3) == 0 ? none : Below(3) == 0 ? sides.given_up : sides.kept;
  for (const int each : down) world_.Kill(each);
  OpenAfterwards(list);
  CheckSides(sides);
  for (const int each : down) world_.Start(each);
  std::this_thread::sleep_for(kRnicOpens);
}

void Steps::OpenAfterwards(const ReplicaList& list) {
  const AsProcess as(Scheduler::Get().NewProcess());
  const Result<std::unique_ptr<Store>> store =
      world_.Open(kPrimaries[Below(kPrimaries.size())], {list, Below(2) == 0, Below(4) != 0});
  if (!store.ok()) return;
  TakeResult taken;
  const Status status = (*store)->Take({"/database", false, pairing_}, &taken);
  Say("opening replicas " + list.Text() + " afterwards: " + status.ToString());
  if (status.ok() && Below(2) == 0) WriteOverJournal(**store);
  (*store)->Close().IgnoreError();
}

void Steps::WriteOverJournal(Store& store) {
  const Result<FileId> file = store.Create(kScratch);
  if (!file.ok()) return;
  Say("it writes over the journal");
  const std::string piece(kPiece, '-');
  for (uint64_t size = 0; size < 2 * world_.options().journal_size; size += kPiece) {
    const Result<AppendTicket> ticket = store.Append(*file, piece);
    if (!ticket.ok() || !store.Await(*ticket).ok() || !store.Truncate(*file, 0).ok()) return;
  }
  store.Remove(kScratch).IgnoreError();
}

void Steps::CheckSides(const Sides& sides) {
  for (const int each : sides.kept) CheckSide(each, history_, "went on by force");
  for (const int each : sides.given_up) CheckSide(each, sides.former, "was given up");
}

void Steps::CheckSide(int replica, const History& history, const std::string& what) {
  test::EmbeddedReplica::Durable left = world_.Left(replica);
  const std::string wrong = WrongAlone(left.region, history);
  if (!wrong.empty()) Wrong(World::NameOf(replica) + ", which " + what + ": " + wrong);
}

void Steps::OpenKept(const Sides& sides) {
  for (int i = 0; i < kMostOpens && primary_ == nullptr && wrong_.empty(); ++i) {
    primary_ = OpenAsNewProcess(host_, {ListOf(sides.kept), true});
    if (primary_ == nullptr) std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  if (primary_ == nullptr)
    return Wrong("what went on by force does not open: " + refusal_.ToString());
  Vanish(primary_);
  CheckSides(sides);
}

}  // namespace hyperloop::simulation
