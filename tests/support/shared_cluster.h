// SharedCluster: one TestCluster for all tests of a suite, because to empty a group takes less time
// than to start a cluster. SharedClusterTest is a fixture over one.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>

#include "support/cluster.h"

namespace hyperloop::test {

class SharedCluster {
 public:
  SharedCluster(uint32_t replicas, uint64_t region_size)
      : replicas_(replicas), region_size_(region_size) {}

  // The cluster, of which all processes run. Its group holds no file, and is bound to no directory
  // that exists. Beside the cluster's own directory and the primary's pool, its folder is empty. No
  // primary lives. A cluster that cannot be brought into this state, or that was used up, is ended,
  // and another one is started. The reference is good until the end of the program.
  TestCluster& Emptied();
  // The same, but a cluster whose group no primary has ever taken.
  TestCluster& Untaken();
  // What the present test leaves is good for no other one.
  void UseUp() { used_up_ = true; }
  void End() { cluster_.reset(); }

 private:
  TestCluster& Started();
  bool CanBeEmptied();

  const uint32_t replicas_;
  const uint64_t region_size_;
  std::optional<TestCluster> cluster_;
  bool used_up_ = false;
};

template <uint32_t replicas, uint64_t region_size>
class SharedClusterTest : public testing::Test {
 protected:
  static void TearDownTestSuite() { shared_.End(); }
  void SetUp() override { ASSERT_TRUE(cluster_.started()); }
  // A test that failed may have left anything.
  void TearDown() override {
    if (HasFailure()) shared_.UseUp();
  }

  inline static SharedCluster shared_{replicas, region_size};
  TestCluster& cluster_ = shared_.Emptied();
};

}  // namespace hyperloop::test
