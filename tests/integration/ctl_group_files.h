// GroupCommandFiles: a group whose files a Store of this process writes, for tests of
// hyperloopctl's commands.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "hyperloop/replication/store.h"
#include "integration/ctl_run.h"
#include "support/append_durably.h"
#include "support/cluster.h"
#include "support/status_matchers.h"

namespace hyperloop::test {

inline constexpr uint64_t kRegion = 16 << 20;

// A cluster of three replicas, and a Store of this process whose files hyperloopctl shows.
class GroupCommandFiles {
 public:
  explicit GroupCommandFiles(const TestCluster& cluster)
      : served_(cluster), dir_(cluster.folder() + "/cluster") {}

  // Takes the group, which is empty, with a pool in the cluster's directory.
  void Serve(std::function<void(StoreOptions&)> change = [](StoreOptions&) {}) {
    StoreOptions options = served_.Options();
    options.pool = dir_ + "/primary.pool";
    change(options);
    Result<std::unique_ptr<Store>> store = Store::Open(options, nullptr);
    ASSERT_OK(store);
    store_ = std::move(store).value();
    TakeRequest request;
    request.directory = served_.folder() + "/db";
    request.directory_empty = pairing_.group.empty();
    request.pairing = pairing_;
    TakeResult taken;
    ASSERT_OK(store_->Take(request, &taken));
    epoch_ = taken.epoch;
    pairing_ = taken.pairing;
  }
  void Put(const std::string& name, const std::string& bytes) {
    const Result<FileId> file = store_->Create(name);
    ASSERT_OK(file.status());
    ASSERT_OK(AppendDurably(*store_, *file, bytes));
  }
  void CloseStore() {
    ASSERT_OK(store_->Close());
    store_.reset();
  }
  CtlRun Run(const std::vector<std::string>& arguments) const {
    return RunCtl(served_.folder(), arguments);
  }
  CtlRun Export(uint32_t replica, const std::string& to, bool live = false) const {
    std::vector<std::string> arguments{
        "export", "--dir", dir_, "--replica", std::to_string(replica), "--to", to};
    if (live) arguments.emplace_back("--live");
    return Run(arguments);
  }
  nlohmann::json StatusJson() const {
    const CtlRun status = Run({"status", "--dir", dir_, "--json"});
    EXPECT_EQ(status.exit_status, 0) << status.err << status.out;
    return nlohmann::json::parse(status.out, nullptr, false);
  }
  void PutFiles() {
    Put("CURRENT", "MANIFEST-000001\n");
    Put("000002.log", std::string(100000, 'w'));
  }
  static void ExpectFiles(const std::string& to) {
    EXPECT_EQ(Slurp(to + "/CURRENT"), "MANIFEST-000001\n");
    EXPECT_EQ(Slurp(to + "/000002.log"), std::string(100000, 'w'));
  }

 private:
  const TestCluster& served_;
  Pairing pairing_;

 protected:
  const std::string dir_;
  std::unique_ptr<Store> store_;
  uint64_t epoch_ = 0;
};

}  // namespace hyperloop::test
