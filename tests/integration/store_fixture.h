// A cluster, and a primary's store over it, for tests of the store.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "hyperloop/replication/store.h"
#include "support/cluster.h"
#include "support/status_matchers.h"

namespace hyperloop::test {

class StoreTest : public testing::Test {
 protected:
  StoreTest() : own_(std::make_unique<TestCluster>(3, kRegionSize)), cluster_(*own_) {}
  // A cluster that outlives the test.
  explicit StoreTest(TestCluster& shared) : cluster_(shared) {}

  void SetUp() override { ASSERT_TRUE(cluster_.started()); }

  // Of a primary that nobody has to wait for, however slow the machine is.
  StoreOptions Options() const {
    StoreOptions options = cluster_.Options();
    options.ack_timeout = options.connect_timeout = std::chrono::seconds(60);
    return options;
  }
  // Another primary: its own pool and emulated host.
  StoreOptions SecondOptions() const {
    StoreOptions options = Options();
    options.pool = cluster_.folder() + "/second.pool";
    options.host = "second";
    return options;
  }
  TakeRequest Request() const {
    TakeRequest request;
    request.directory = cluster_.folder() + "/db";
    request.directory_empty = pairing_.group.empty();
    request.pairing = pairing_;
    return request;
  }
  static std::unique_ptr<Store> Opened(const StoreOptions& options,
                                       std::shared_ptr<Log> log = nullptr) {
    auto store = Store::Open(options, log != nullptr ? std::move(log) : LogForTest());
    if (store.ok()) return std::move(store).value();
    ADD_FAILURE() << store.status().ToString();
    return nullptr;
  }
  // A store that has taken the group; the pairing is remembered for the next one.
  std::unique_ptr<Store> Taken(const StoreOptions& options, std::shared_ptr<Log> log = nullptr) {
    auto store = Opened(options, std::move(log));
    if (store == nullptr) return nullptr;
    const Status status = store->Take(Request(), &taken_);
    if (!status.ok()) {
      ADD_FAILURE() << status.ToString();
      return nullptr;
    }
    pairing_ = taken_.pairing;
    return store;
  }
  // Only when asked for: HYPERLOOP_TEST_LOG=1.
  static std::shared_ptr<Log> LogForTest() {
    return std::getenv("HYPERLOOP_TEST_LOG") == nullptr ? nullptr : StderrLog("store");
  }

  static std::string Content(Store& store, const std::string& name) {
    const auto files = store.Files();
    if (!files.ok()) return "cannot list: " + files.status().ToString();
    for (const FileInfo& file : *files) {
      if (file.name != name) continue;
      std::string out(file.size, '\0');
      const auto got = store.Read(file.id, 0, out);
      if (!got.ok()) return "cannot read: " + got.status().ToString();
      out.resize(*got);
      return out;
    }
    return "";
  }

  // All bytes in use, on all replicas and in the primary's own pool. No store may be open.
  void ExpectEqualRegions() const {
    const auto first = cluster_.ReplicaImage(0);
    ASSERT_OK(first);
    for (uint32_t i = 1; i < cluster_.replicas(); ++i) {
      const auto other = cluster_.ReplicaImage(i);
      ASSERT_OK(other);
      EXPECT_EQ(cluster_.FirstDifferenceInUse(first->bytes(), other->bytes()), std::nullopt)
          << "replica " << i << " differs";
    }
    const auto view = NodeView::OpenPool(Options().pool);
    ASSERT_OK(view);
    std::vector<std::byte> own((*view)->region_size());
    ASSERT_OK((*view)->Read(0, own));
    EXPECT_EQ(cluster_.FirstDifferenceInUse(first->bytes(), own), std::nullopt)
        << "the primary differs";
  }

  static constexpr uint64_t kRegionSize = 16 << 20;
  const std::unique_ptr<TestCluster> own_;  // null: the cluster is shared
  TestCluster& cluster_;
  Pairing pairing_;
  TakeResult taken_;
};

// Tests that share one cluster and its group. After each of them, every replica still runs, and the
// group is emptied.
class SharedStoreTest : public StoreTest {
 protected:
  SharedStoreTest() : StoreTest(*shared_) { pairing_ = shared_pairing_; }
  static void SetUpTestSuite() {
    if (shared_ == nullptr) shared_ = std::make_unique<TestCluster>(3, kRegionSize);
  }
  static void TearDownTestSuite() {
    shared_.reset();
    shared_pairing_ = {};
  }
  void TearDown() override {
    cluster_.SignalAllReplicas(SIGCONT);
    StoreOptions options = Options();
    options.takeover = true;  // what a failed test has left does not hold up the next one
    const auto store = Taken(options);
    ASSERT_NE(store, nullptr);
    for (const FileInfo& file : taken_.files) EXPECT_OK(store->Remove(file.name));
    EXPECT_OK(store->Close());
    shared_pairing_ = pairing_;
  }

 private:
  static inline std::unique_ptr<TestCluster> shared_;
  static inline Pairing shared_pairing_;
};

}  // namespace hyperloop::test
