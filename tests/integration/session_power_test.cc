// The power fails on every host of a session at once. Each replica's pool, as a restart finds it,
// holds everything acknowledged, and everything that a primary was handed when it took the group.
// The group can be taken again from all pools.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "hyperloop/replication/store.h"
#include "log/file_table.h"
#include "log/redo.h"
#include "primary/session.h"
#include "support/append_durably.h"
#include "support/embedded_replica.h"
#include "support/status_matchers.h"

namespace hyperloop::test {
namespace {

class SessionPowerTest : public testing::Test {
 protected:
  SessionPowerTest() {
    std::string pattern = "/dev/shm/hyperloop-power-XXXXXX";
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    PowerOn();
  }
  ~SessionPowerTest() override {
    replicas_.clear();
    rnic_.StopThread();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  void PowerOn() {
    ASSERT_OK(rnic_.StartThread());
    reachable_ = true;
    for (int i = 0; i < 3; ++i) {
      const std::string name = "r" + std::to_string(i);
      auto replica = EmbeddedReplica::Start({.open_device = EmbeddedReplica::OpenerOf(rnic_, name),
                                             .host = name,
                                             .pool = folder_ + "/" + name,
                                             .size = kRegion,
                                             .gate =
                                                 [this](const control::BodyUnion&) {
                                                   return reachable_
                                                              ? EmbeddedReplica::Fate::kHandled
                                                              : EmbeddedReplica::Fate::kRequestLost;
                                                 },
                                             .power = &power_});
      ASSERT_OK(replica);
      replicas_.push_back(std::move(replica).value());
    }
  }
  // Every host stops and loses, by the seed, bytes that were not durable. The primary's pool is
  // only a copy, and is lost altogether.
  void PowerOff() {
    rnic_.StopThread();
    for (const auto& each : replicas_) {
      for (const std::span<std::byte> memory : {each->region(), each->node_page()}) {
        const std::vector<std::byte> left = power_.PowerFailure(memory.data(), random_);
        std::copy(left.begin(), left.end(), memory.begin());
      }
    }
    replicas_.clear();
    std::filesystem::remove(folder_ + "/primary");
  }

  std::unique_ptr<Store> Taken() {
    StoreOptions options;
    options.on_replica_failure = OnReplicaFailure::kBlock;
    for (const auto& each : replicas_) options.replicas.push_back(each->address());
    options.device = "unused";
    options.pool = folder_ + "/primary";
    options.journal_size = 256 << 10;
    options.table_capacity = 64;
    options.takeover = true;
    options.connect_timeout = std::chrono::seconds(60);
    options.ack_timeout = std::chrono::seconds(4);
    options.wait = WaitMode::kEvent;
    const int incarnation = incarnation_;
    const auto open_device = [this, incarnation]() -> Result<std::unique_ptr<rnic::Device>> {
      if (incarnation != incarnation_) return Unavailable("this primary is dead");
      return rnic_.OpenDevice("primary");
    };
    auto store = OpenSession(options, open_device, nullptr);
    EXPECT_OK(store);
    if (!store.ok()) return nullptr;
    TakeResult result;
    const Status status =
        (*store)->Take({folder_ + "/db", pairing_.group.empty(), pairing_}, &result);
    EXPECT_OK(status);
    if (!status.ok()) return nullptr;
    pairing_ = result.pairing;
    return std::move(store).value();
  }
  // The primary dies: whatever it still does reaches nobody. Its calls end after half of
  // ack_timeout.
  void Vanish() {
    reachable_ = false;
    ++incarnation_;
    rnic_.CloseHost("primary");
  }

  static std::string Content(Store& store) {
    const auto file = store.Lookup("f");
    if (!file.ok()) return "no file";
    std::string out(1 << 20, '\0');
    const auto got = store.Read(*file, 0, out);
    out.resize(got.ok() ? *got : 0);
    return out;
  }
  // The same content in the rest of replica `i` after a power failure now, or what is wrong with
  // it.
  std::string Left(size_t i) {
    std::vector<std::byte> image = power_.PowerFailure(replicas_[i]->region().data(), random_);
    const auto info = ParseSuperblock(image, image.size());
    if (!info.ok()) return info.status().ToString();
    const auto log = Redo(image, *info);
    if (!log.ok()) return log.status().ToString();
    const auto table = FileTable::Load(image, *info);
    if (!table.ok()) return table.status().ToString();
    for (const FileInfo& file : table->List()) {
      if (file.name != "f") continue;
      std::string text(file.size, ' ');
      table->ReadBytes(image, *info, SlotOf(file.id), 0, text);
      return text;
    }
    return "no file";
  }

  void ExpectLeft(const std::string& content) {
    rnic_.StopThread();
    for (size_t i = 0; i < replicas_.size(); ++i) EXPECT_EQ(Left(i), content) << "replica " << i;
    ASSERT_OK(rnic_.StartThread());
  }

  static std::string Piece(int round, int i) {
    return std::to_string(round) + "." + std::to_string(i) + std::string(100, '-') + ";";
  }

  static constexpr uint64_t kRegion = 16 << 20;
  std::string folder_;
  softrnic::PersistenceModel power_;
  softrnic::EmbeddedRnic rnic_{{.test = {.watch = &power_}}};
  std::mt19937_64 random_{1};
  std::atomic<bool> reachable_{true};
  std::atomic<int> incarnation_{0};  // of the primary
  std::vector<std::unique_ptr<EmbeddedReplica>> replicas_;
  Pairing pairing_;
};

TEST_F(SessionPowerTest, EveryReplicasPoolHasWhatWasAcknowledged) {
  std::string acknowledged;
  for (int round = 0; round < 6; ++round) {
    auto store = Taken();
    ASSERT_NE(store, nullptr) << "round " << round;
    if (round == 0) {
      ASSERT_OK(store->Create("f"));
    }
    // An append that was under way when the power failed may be there or not.
    const std::string found = Content(*store);
    ASSERT_EQ(found.substr(0, acknowledged.size()), acknowledged) << "round " << round;
    acknowledged = found;
    const auto file = store->Lookup("f");
    ASSERT_OK(file);
    std::atomic<int> appended{0};
    std::atomic<bool> ended{false};
    std::string written = acknowledged;
    std::thread writer([&] {
      for (int i = 0; i < 100'000 && AppendDurably(*store, *file, Piece(round, i)).ok(); ++i) {
        written += Piece(round, i);
        ++appended;
      }
      ended = true;
    });
    while (appended < 20 + round && !ended) std::this_thread::yield();
    EXPECT_FALSE(ended) << "an append failed before the power did";
    rnic_.StopThread();  // in the middle of something
    Vanish();
    writer.join();
    for (size_t i = 0; i < replicas_.size(); ++i) {
      for (int n = 0; n < 4; ++n) {
        const std::string left = Left(i);
        ASSERT_EQ(left.substr(0, written.size()), written) << "round " << round << " replica " << i;
      }
    }
    acknowledged = written;
    store.reset();
    PowerOff();
    PowerOn();
  }
}

// A primary dies before any of its READs flushed. The next primary takes the group and builds on
// the content that it finds. All of that content is durable on every member before it is handed
// out, also on members that have the same bytes already.
TEST_F(SessionPowerTest, WhatATakingHandsOutIsDurableOnEveryMember) {
  {
    auto store = Taken();
    ASSERT_NE(store, nullptr);
    ASSERT_OK(store->Create("f"));
    power_.IgnoreAllReads(true);
    const auto file = store->Lookup("f");
    for (int i = 0; i < 30; ++i) ASSERT_OK(AppendDurably(*store, *file, Piece(0, i)));
    Vanish();
    store.reset();
    reachable_ = true;
    power_.IgnoreAllReads(false);
  }
  auto store = Taken();
  ASSERT_NE(store, nullptr);
  std::string content = Content(*store);
  ASSERT_FALSE(content.empty());
  ExpectLeft(content);
  ASSERT_OK(AppendDurably(*store, *store->Lookup("f"), "more"));
  content += "more";
  ExpectLeft(content);
  Vanish();
  store.reset();
  PowerOff();
  PowerOn();
  store = Taken();
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(Content(*store), content);
}

}  // namespace
}  // namespace hyperloop::test
