// A group in memory and Stores over it, on which the plugin's tests run. It keeps the contracts of
// store.h, refusals included, and fails where a test tells it to.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "hyperloop/replication/store.h"

namespace hyperloop::plugin::testing {

// Shared by all Stores of a test, as the replicas would be.
class FakeGroup {
 public:
  struct File {
    FileId id = 0;
    Lane lane = Lane::kLog;
    WholeFile listed;     // kBulk
    std::string content;  // kLog
  };
  // A failure to come. After `skip` calls of the kind `call` ("append", "create", …) the next one
  // returns `code`; if `applied`, the group carries it out nevertheless. "look" is a read by the
  // judge of a taking. For "files" the code does not count: Files finds the group out of reach. A
  // retryable code breaks the group. Each later call then counts as one of "reconnect", too. After
  // kFenced, each later call of that Store fails with it.
  struct Fault {
    std::string call;
    Code code = Code::kTimedOut;
    bool applied = false;
    int skip = 0;
  };

  static std::shared_ptr<FakeGroup> Make() { return std::make_shared<FakeGroup>(); }
  // A copy of the present state without an owner, as a killed primary leaves it.
  std::shared_ptr<FakeGroup> AfterCrash();

  void Inject(Fault fault);
  // Forgets injected faults that have not happened; false if there was none.
  bool ForgetFaults();
  // Runs `call` once, after a Store was asked to append and before it begins, as another thread
  // might.
  void BeforeNextAppend(std::function<void()> call);
  // A group that broke stays so, with `code`, until HealLink.
  void CutLink(Code code);
  void HealLink();
  // Another primary takes the group.
  void FenceOff();

  std::map<std::string, std::string> LogFiles();  // name → content
  std::map<std::string, uint64_t> ListedFiles();  // name → size
  int CallsOf(const std::string& call);
  Pairing pairing();
  uint64_t epoch();
  // The record of the last call that changed something; and up to which one all is decided, as an
  // idle primary finds it.
  uint64_t last_record();
  uint64_t decided();
  bool held();
  void SetExtents(uint64_t extents);
  void SetMedia(rnic::Media media);
  // Moves a log-lane file to the bulk lane, as a store does with a finished file. Its settle call
  // must find the same bytes in the directory. False: the file is not finished, or changed.
  bool Retire(const std::string& name);
  bool IsFinished(const std::string& name);
  // Forgets a listed file, as if nobody had listed it.
  void Unlist(const std::string& name);
  // From now on the replicas say that they hold every file. They still give none.
  void SayThatAllIsHeld();
  // The taking removes a replica, and those that stay do not hold the files.
  void SayThatAllIsScarce(bool scarce = true);
  // The takings from now on leave out this replica.
  void LeaveOut(const std::string& address);
  // The takings from now on are of this branch of the group's history (TakeResult).
  void BranchOff(const std::string& branch);
  // The replicas give these bytes for the file.
  void Hold(const WholeFile& file, const std::string& bytes);
  // Every Fetch fails with `with` from now on. Ok: none does because of it.
  void FailFetches(Status with);
  // The Store that was taken last has the directory's file mended with these bytes, as a lane does
  // that finds it damaged.
  Status MendLocal(const WholeFile& file, const std::string& bytes);

 private:
  friend class FakeStore;
  std::function<void()> TakeBeforeAppend();

  std::mutex mutex_;
  std::function<void()> before_append_;
  std::map<std::string, File, std::less<>> files_;
  FileId next_id_ = 1;
  Pairing pairing_;
  std::string directory_;  // that it is bound to
  uint64_t epoch_ = 0;
  uint64_t last_record_ = 0;
  std::shared_ptr<Decisions> decisions_;  // the present owner's
  int databases_ = 0;
  bool held_ = false;
  bool link_cut_ = false;
  Code link_code_ = Code::kUnavailable;
  uint64_t extents_ = 1024;
  bool all_held_ = false;
  bool all_scarce_ = false;
  std::vector<std::string> left_out_;
  std::string branch_;
  std::map<WholeFile, std::string> replicas_hold_;
  Status fetch_failure_;
  MendWhole mend_local_;
  rnic::Media media_ = rnic::Media::kFile;
  std::set<FileId> finished_;
  std::function<Result<WholeFile>(const std::string&)> settle_;
  std::vector<Fault> faults_;
  std::map<std::string, int> calls_;
};

// A Store over `group`, not taken yet.
std::unique_ptr<Store> MakeFakeStore(std::shared_ptr<FakeGroup> group, const StoreOptions& options);

}  // namespace hyperloop::plugin::testing
