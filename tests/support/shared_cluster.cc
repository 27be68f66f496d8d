#include "support/shared_cluster.h"

#include <filesystem>
#include <iostream>

namespace hyperloop::test {
namespace {

namespace fs = std::filesystem;

// Removes what tests have made beside the cluster's directory and the primary's pool.
void Tidy(const TestCluster& cluster) {
  for (const auto& entry : fs::directory_iterator(cluster.folder())) {
    const std::string name = entry.path().filename();
    if (name != "cluster" && name != "primary.pool") fs::remove_all(entry.path());
  }
}

}  // namespace

TestCluster& SharedCluster::Started() {
  used_up_ = false;
  return cluster_.emplace(replicas_, region_size_);
}

bool SharedCluster::CanBeEmptied() {
  if (used_up_ || !cluster_ || !cluster_->started()) return false;
  if (cluster_->replicas() != replicas_ || cluster_->region_size() != region_size_) return false;
  if (cluster_->Runs()) return true;
  return cluster_->Restart().ok() && cluster_->Runs();
}

TestCluster& SharedCluster::Emptied() {
  if (!CanBeEmptied()) return Started();
  if (const Status emptied = cluster_->Empty(); !emptied.ok()) {
    std::cout << "another cluster is started: " << emptied.ToString() << std::endl;
    return Started();
  }
  Tidy(*cluster_);
  return *cluster_;
}

TestCluster& SharedCluster::Untaken() {
  if (CanBeEmptied()) {
    const Result<NodeStatus> status = cluster_->ReplicaStatus(0);
    if (status.ok() && status->sealed_epoch == 0) {
      Tidy(*cluster_);
      return *cluster_;
    }
  }
  return Started();
}

}  // namespace hyperloop::test
