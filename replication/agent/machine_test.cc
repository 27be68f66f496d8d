// The machine by itself, and several of them over a simulated group.
#include "agent/machine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace hyperloop::agent {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kReplicas = 3, kNodes = 3;

// What the replicas hold. Whoever seals one does it on the state that he saw.
struct Replica {
  uint64_t sealed = 0, installed = 0;
  int owner = -1;  // a number of a service
  bool released = false;
  uint64_t heartbeat = 0;
};

struct World {
  Time now{seconds(1000)};
  std::array<Replica, kReplicas> replicas;
  std::array<std::array<bool, kReplicas>, kNodes> cut{};  // node from replica
  int services = 0;
  std::mt19937_64 random;
  double Luck() { return std::uniform_real_distribution<double>()(random); }
  bool Chance(double part) { return Luck() < part; }
};

std::string AddressOf(size_t replica) { return "r" + std::to_string(replica); }

// A service as its agent sees it: it looks for a while whether a primary lives, seals a majority,
// installs it after a while, and shows its life at each replica that it reaches.
class Service {
 public:
  Service(World& world, size_t node) : world_(world), node_(node), number_(++world.services) {
    seen_ = world_.replicas;
    step_at_ = world_.now + milliseconds(500);
  }
  int number() const { return number_; }
  bool ended() const { return ended_; }
  bool serves() const { return step_ == 2 && !ended_; }

  void Tick() {
    if (ended_) return;
    if (step_ == 2) return Beat();
    if (step_ == 1) Beat();
    if (world_.now < step_at_ || ended_) return;
    step_ == 0 ? Seal() : Install();
  }
  // Ends in order.
  void Close() {
    for (size_t i = 0; i < kReplicas; ++i) {
      Replica& replica = world_.replicas[i];
      if (Reaches(i) && replica.sealed == epoch_ && replica.owner == number_)
        replica.released = true;
    }
    ended_ = true;
  }

 private:
  bool Reaches(size_t replica) const { return !world_.cut[node_][replica]; }
  void Seal() {
    std::vector<size_t> reached;
    for (size_t i = 0; i < kReplicas; ++i) {
      Replica& replica = world_.replicas[i];
      if (!Reaches(i)) continue;
      epoch_ = std::max(epoch_, replica.sealed + 1);
      if (!replica.released && replica.heartbeat != seen_[i].heartbeat) ended_ = true;
      if (replica.sealed != seen_[i].sealed) ended_ = true;
      reached.push_back(i);
    }
    if (reached.size() * 2 <= kReplicas) ended_ = true;
    if (ended_) return;
    for (const size_t i : reached) {
      Replica& replica = world_.replicas[i];
      replica.sealed = epoch_;
      replica.owner = number_;
      replica.released = false;
    }
    step_ = 1;
    step_at_ = world_.now + milliseconds(static_cast<int>(50 + world_.Luck() * 1000));
  }
  void Install() {
    size_t own = 0;
    for (size_t i = 0; i < kReplicas; ++i) {
      Replica& replica = world_.replicas[i];
      if (Reaches(i) && replica.sealed == epoch_ && replica.owner == number_) {
        replica.installed = epoch_;
        ++own;
      }
    }
    ended_ = own * 2 <= kReplicas;
    step_ = 2;
  }
  void Beat() {
    if (world_.now < beat_at_) return;
    beat_at_ = world_.now + milliseconds(100);
    for (size_t i = 0; i < kReplicas; ++i) {
      Replica& replica = world_.replicas[i];
      if (Reaches(i) && replica.sealed == epoch_ && replica.owner == number_) ++replica.heartbeat;
    }
  }

  World& world_;
  const size_t node_;
  const int number_;
  std::array<Replica, kReplicas> seen_;
  int step_ = 0;
  uint64_t epoch_ = 0;
  Time step_at_, beat_at_{};
  bool ended_ = false;
};

class Node {
 public:
  Node(World& world, size_t number, const Timing& timing)
      : world_(world), number_(number), timing_(timing) {
    machine_.emplace(timing_, kReplicas);
  }

  // Whether a request would be told now that this node is the primary. A node that stands still
  // tells it later.
  bool SaysPrimary() const {
    return up_ && world_.now >= agent_still_until_ && machine_->state() == State::kPrimary &&
           world_.now < machine_->lease_end();
  }
  bool up() const { return up_; }
  const Machine& machine() const { return *machine_; }
  bool serves() const { return service_.has_value() && service_->serves(); }

  void Tick() {
    if (!up_) return;
    if (service_.has_value() && world_.now >= service_still_until_) service_->Tick();
    if (world_.now < agent_still_until_) return;
    if (service_.has_value() && service_->ended()) {
      service_.reset();
      machine_->OnEnded(world_.now);
    }
    if (stop_at_.has_value() && world_.now >= *stop_at_) End(/*in_order=*/true);
    CarryOut(machine_->OnTime(world_.now));
    if (world_.now < look_at_) return;
    look_at_ = world_.now + timing_.look_interval;
    LookAround();
  }
  void Crash() {
    service_.reset();
    stop_at_.reset();
    up_ = false;
  }
  void Boot() {
    if (up_) return;
    machine_.emplace(timing_, kReplicas);
    last_service_ = -1;
    up_ = true;
  }
  void Still(milliseconds agent, milliseconds service) {
    agent_still_until_ = std::max(agent_still_until_, world_.now + agent);
    service_still_until_ = std::max(service_still_until_, world_.now + service);
  }
  void CrashService() {
    if (service_.has_value()) End(false);
  }

 private:
  // Answers arrive a little after the look has begun.
  void LookAround() {
    Look look{world_.now - milliseconds(static_cast<int>(world_.Luck() * 50)), {}};
    for (size_t i = 0; i < kReplicas; ++i) {
      if (world_.cut[number_][i]) continue;
      const Replica& replica = world_.replicas[i];
      const bool ours = replica.owner == last_service_ && replica.sealed == replica.installed &&
                        last_service_ != -1;
      look.answers[AddressOf(i)] = {replica.sealed,    replica.installed, ours, replica.released,
                                    replica.heartbeat, Members(),         {}};
    }
    CarryOut(machine_->OnLook(look, world_.now, world_.Luck()));
  }
  static std::vector<std::string> Members() {
    std::vector<std::string> members;
    for (size_t i = 0; i < kReplicas; ++i) members.push_back(AddressOf(i));
    return members;
  }
  void CarryOut(Action action) {
    if (action == Action::kStart) {
      service_.emplace(world_, number_);
      last_service_ = service_->number();
      machine_->OnReady();
    }
    if (action == Action::kStop)
      stop_at_ = world_.now + milliseconds(static_cast<int>(world_.Luck() * 3000));
    if (action == Action::kKill) End(false);
  }
  void End(bool in_order) {
    if (in_order && service_.has_value()) service_->Close();
    service_.reset();
    stop_at_.reset();
    machine_->OnEnded(world_.now);
  }

  World& world_;
  const size_t number_;
  const Timing timing_;
  std::optional<Machine> machine_;
  std::optional<Service> service_;
  int last_service_ = -1;
  bool up_ = true;
  Time look_at_{}, agent_still_until_{}, service_still_until_{};
  std::optional<Time> stop_at_;
};

struct Simulation {
  explicit Simulation(uint64_t seed, const Timing& timing = {}) {
    world.random.seed(seed);
    // A database was made, and closed.
    for (Replica& each : world.replicas) each = {1, 1, 0, true, 1};
    for (size_t i = 0; i < kNodes; ++i) nodes.push_back(std::make_unique<Node>(world, i, timing));
  }
  void Run(milliseconds time) {
    for (const Time until = world.now + time; world.now < until; world.now += milliseconds(10)) {
      for (const auto& each : nodes) each->Tick();
      const auto primaries =
          std::ranges::count_if(nodes, [](const auto& each) { return each->SaysPrimary(); });
      if (primaries > 1) ++dual;
    }
  }
  const Node* Primary() const {
    const auto found =
        std::ranges::find_if(nodes, [](const auto& each) { return each->SaysPrimary(); });
    return found == nodes.end() ? nullptr : found->get();
  }
  bool RunUntilPrimary(milliseconds most) {
    for (const Time until = world.now + most; world.now < until && Primary() == nullptr;)
      Run(milliseconds(10));
    return Primary() != nullptr;
  }
  uint64_t Epoch() const {
    uint64_t epoch = 0;
    for (const Replica& each : world.replicas) epoch = std::max(epoch, each.sealed);
    return epoch;
  }
  void Heal() {
    world.cut = {};
    for (const auto& each : nodes) each->Boot();
  }
  // One fault, or the end of one.
  void Disturb() {
    Node& node = *nodes[world.random() % kNodes];
    const auto time = [this] { return milliseconds(static_cast<int>(world.Luck() * 6000)); };
    switch (world.random() % 8) {
      case 0:
        return node.Crash();
      case 1:
        return node.Boot();
      case 2: {
        const milliseconds still = time();  // the whole node
        return node.Still(still, still);
      }
      case 3:
        return node.Still(time(), milliseconds(0));
      case 4:
        return node.Still(milliseconds(0), time());
      case 5:
        return node.CrashService();
      case 6:
        world.cut[world.random() % kNodes][world.random() % kReplicas] = true;
        return;
      default:
        world.cut[world.random() % kNodes][world.random() % kReplicas] = false;
    }
  }

  World world;
  std::vector<std::unique_ptr<Node>> nodes;
  int dual = 0;  // ticks in which two said that they were the primary
};

// A machine by itself, at a group of three replicas that says what the test says.
class MachineTest : public testing::Test {
 protected:
  // Looks every interval, with the answers of so many replicas, for that time or until something is
  // to be done.
  Action Looks(milliseconds time, size_t answering = kReplicas) {
    for (const Time until = now_ + time; now_ < until;) {
      now_ += timing_.look_interval;
      Look look{now_, {}};
      for (size_t i = 0; i < answering; ++i) look.answers[AddressOf(i)] = says_[i];
      const Action action = machine_.OnLook(look, now_, /*random=*/0);
      if (action != Action::kNone) return action;
    }
    return Action::kNone;
  }
  // Each replica has a new heartbeat.
  void Beat(size_t replicas = kReplicas) {
    for (size_t i = 0; i < replicas; ++i) ++says_[i].heartbeat;
  }
  void Own(uint64_t epoch, bool ours) {
    for (SeenReplica& each : says_) {
      each.sealed = each.installed = epoch;
      each.ours = ours;
      each.released = false;
    }
  }

  const Timing timing_;
  Machine machine_{timing_, kReplicas};
  Time now_{seconds(1000)};
  std::array<SeenReplica, kReplicas> says_{{{1, 1, false, false, 1, {"r0", "r1", "r2"}, {}},
                                            {1, 1, false, false, 1, {"r0", "r1", "r2"}, {}},
                                            {1, 1, false, false, 1, {"r0", "r1", "r2"}, {}}}};
};

TEST_F(MachineTest, TakesAGroupThatGivesNoSignOfLifeForFailoverTimeout) {
  for (int i = 0; i < 50; ++i) {
    Beat(1);  // one replica is enough
    ASSERT_EQ(Looks(timing_.failover_timeout - timing_.look_interval), Action::kNone);
  }
  Beat(1);
  ASSERT_EQ(Looks(timing_.look_interval), Action::kNone);
  const Time last = now_;
  EXPECT_EQ(Looks(seconds(10)), Action::kStart);
  EXPECT_EQ(now_, last + timing_.failover_timeout);
  EXPECT_EQ(machine_.state(), State::kTaking);
}

TEST_F(MachineTest, AGapInTheObservationBeginsItAnew) {
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(Looks(timing_.failover_timeout - 2 * timing_.look_interval), Action::kNone);
    now_ += 4 * timing_.look_interval;  // it stood still
  }
  EXPECT_EQ(Looks(seconds(10)), Action::kStart);
}

TEST_F(MachineTest, WithoutAMajorityNothingIsTaken) {
  EXPECT_EQ(Looks(seconds(100), 1), Action::kNone);
  EXPECT_EQ(machine_.state(), State::kLost);
  const auto configure = [this](std::vector<std::string> members, std::vector<std::string> absent) {
    for (SeenReplica& each : says_) each.members = members, each.absent = absent;
  };
  configure({"r0"}, {"r1", "r2"});
  EXPECT_EQ(Looks(seconds(100), 1), Action::kNone)
      << "all of the configuration's, and one of three";
  configure({"r2"}, {"r0", "r1"});
  EXPECT_EQ(Looks(seconds(100), 2), Action::kNone)
      << "two of three, and none of the configuration's";
  configure({"r1"}, {"r0", "r2"});
  EXPECT_EQ(Looks(seconds(100), 2), Action::kStart);
}

TEST_F(MachineTest, AReleasedGroupIsTakenAtOnce) {
  for (SeenReplica& each : says_) each.released = true;
  const Time began = now_;
  EXPECT_EQ(Looks(seconds(10)), Action::kStart);
  EXPECT_LE(now_ - began, timing_.look_interval);
}

TEST_F(MachineTest, IsPrimaryOnceEveryLeaseOfAPredecessorIsOver) {
  ASSERT_EQ(Looks(seconds(10)), Action::kStart);
  machine_.OnReady();
  Own(2, true);
  const Time sealed = now_;
  while (machine_.state() != State::kPrimary && now_ < sealed + seconds(10)) {
    Beat();
    ASSERT_EQ(Looks(timing_.look_interval), Action::kNone);
  }
  EXPECT_EQ(machine_.state(), State::kPrimary);
  EXPECT_GE(now_, sealed + timing_.lease);
}

TEST_F(MachineTest, ALeaseBeginsBeforeTheNewestHeartbeatAtAMajority) {
  for (SeenReplica& each : says_) each.released = true;
  ASSERT_EQ(Looks(seconds(10)), Action::kStart);
  machine_.OnReady();
  Own(2, true);
  ASSERT_EQ(Looks(timing_.look_interval), Action::kNone);
  EXPECT_EQ(machine_.lease_end(), Time::min()) << "no heartbeat was new";
  const Time before = now_;
  Beat();
  ASSERT_EQ(Looks(timing_.look_interval), Action::kNone);
  EXPECT_EQ(machine_.lease_end(), before + timing_.lease);
  Beat(1);
  ASSERT_EQ(Looks(timing_.look_interval), Action::kNone);
  EXPECT_EQ(machine_.lease_end(), before + timing_.lease) << "one replica is no majority";
  EXPECT_EQ(Looks(timing_.lease + timing_.isolation_timeout), Action::kKill);
}

TEST_F(MachineTest, AnAgentThatStoodStillDoesNotEndItsService) {
  for (SeenReplica& each : says_) each.released = true;
  ASSERT_EQ(Looks(seconds(10)), Action::kStart);
  machine_.OnReady();
  Own(2, true);
  const auto serve = [&] {
    for (int i = 0; i < 10; ++i) {
      Beat();
      ASSERT_EQ(Looks(timing_.look_interval), Action::kNone);
    }
  };
  serve();
  now_ += timing_.lease + timing_.isolation_timeout + seconds(60);
  EXPECT_EQ(machine_.OnTime(now_), Action::kNone);
  EXPECT_LT(machine_.lease_end(), now_);
  serve();
  EXPECT_EQ(machine_.state(), State::kPrimary);
  EXPECT_GT(machine_.lease_end(), now_);
}

TEST_F(MachineTest, AServiceIsStartedAgainOnceAndThenLeftToOthersFirst) {
  for (SeenReplica& each : says_) each.released = true;
  ASSERT_EQ(Looks(seconds(10)), Action::kStart);
  uint64_t epoch = 2;
  const auto serve_and_end = [&] {
    machine_.OnReady();
    Own(epoch++, true);
    for (int i = 0; i < 10; ++i) {
      Beat();
      ASSERT_EQ(Looks(timing_.look_interval), Action::kNone);
    }
    ASSERT_NE(machine_.lease_end(), Time::min());
    machine_.OnEnded(now_);
    EXPECT_EQ(machine_.lease_end(), Time::min());
  };
  serve_and_end();
  ASSERT_EQ(Looks(timing_.look_interval), Action::kStart) << "at once";
  serve_and_end();
  EXPECT_EQ(Looks(timing_.hold_off - timing_.look_interval), Action::kNone);
  EXPECT_EQ(Looks(4 * timing_.hold_off), Action::kStart) << "as nobody else takes it";
}

TEST_F(MachineTest, AServiceWhoseGroupSomebodyElseTookIsEnded) {
  for (SeenReplica& each : says_) each.released = true;
  ASSERT_EQ(Looks(seconds(10)), Action::kStart);
  machine_.OnReady();
  Own(2, true);
  for (int i = 0; i < 10; ++i) {
    Beat();
    ASSERT_EQ(Looks(timing_.look_interval), Action::kNone);
  }
  Own(3, false);
  EXPECT_EQ(Looks(timing_.look_interval), Action::kStop);
  EXPECT_EQ(machine_.lease_end(), Time::min());
  machine_.OnEnded(now_);
  Beat();
  EXPECT_EQ(Looks(timing_.look_interval), Action::kNone);
  EXPECT_EQ(machine_.state(), State::kFollow);
}

TEST_F(MachineTest, AStartThatTakesTooLongIsEnded) {
  for (SeenReplica& each : says_) each.released = true;
  ASSERT_EQ(Looks(seconds(10)), Action::kStart);
  Own(2, true);  // it has the group, and never says that it is ready
  for (Time began = now_; now_ < began + timing_.start_timeout - timing_.look_interval;) {
    Beat();
    ASSERT_EQ(Looks(timing_.look_interval), Action::kNone);
  }
  EXPECT_EQ(Looks(timing_.look_interval), Action::kStop);
  EXPECT_EQ(machine_.takings(), 1u);
  machine_.OnEnded(now_);
  Looks(timing_.look_interval);
  EXPECT_EQ(machine_.failures(), 1u);
}

TEST(MachineSimulationTest, NoTwoArePrimaryAndSomebodyIsInTheEnd) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation simulation(seed);
    for (int i = 0; i < 40; ++i) {
      simulation.Disturb();
      simulation.Run(milliseconds(static_cast<int>(simulation.world.Luck() * 4000)));
    }
    simulation.Heal();
    simulation.Run(seconds(10));  // until nobody stands still
    EXPECT_TRUE(simulation.RunUntilPrimary(seconds(400)));
    EXPECT_EQ(simulation.dual, 0);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(MachineSimulationTest, WithoutAFaultNobodyChangesPlaces) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Simulation simulation(seed);
    ASSERT_TRUE(simulation.RunUntilPrimary(seconds(10)));
    simulation.Run(seconds(5));
    const uint64_t epoch = simulation.Epoch();
    simulation.Run(seconds(600));
    EXPECT_EQ(simulation.Epoch(), epoch) << seed;
    EXPECT_NE(simulation.Primary(), nullptr);
  }
}

TEST(MachineSimulationTest, ALostNodesPlaceIsTakenInSeconds) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Simulation simulation(seed);
    ASSERT_TRUE(simulation.RunUntilPrimary(seconds(10)));
    simulation.Run(seconds(5));
    const Node* const lost = simulation.Primary();
    for (const auto& each : simulation.nodes)
      if (each.get() == lost) each->Crash();
    EXPECT_TRUE(simulation.RunUntilPrimary(seconds(10))) << seed;
  }
}

// A node whose way to all replicas is cut says nothing wrong, ends its service, and does not take
// the group from another one when it is back.
TEST(MachineSimulationTest, AnIsolatedPrimaryEndsItsService) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Simulation simulation(seed);
    ASSERT_TRUE(simulation.RunUntilPrimary(seconds(10)));
    simulation.Run(seconds(5));
    const Node* const cut = simulation.Primary();
    size_t at = 0;
    while (simulation.nodes[at].get() != cut) ++at;
    simulation.world.cut[at].fill(true);
    simulation.Run(Timing().lease + milliseconds(20));
    EXPECT_FALSE(cut->SaysPrimary());
    EXPECT_TRUE(cut->serves());
    simulation.Run(Timing().isolation_timeout + milliseconds(20));
    EXPECT_FALSE(cut->serves());
    ASSERT_TRUE(simulation.RunUntilPrimary(seconds(10)));
    const uint64_t epoch = simulation.Epoch();
    simulation.world.cut[at].fill(false);
    simulation.Run(seconds(60));
    EXPECT_EQ(simulation.Epoch(), epoch);
    EXPECT_EQ(simulation.dual, 0);
  }
}

}  // namespace
}  // namespace hyperloop::agent
