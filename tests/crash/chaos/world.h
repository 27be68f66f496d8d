// World: a group of three replicas, a database directory on a small disk of its own, a service that
// writes to it, and a model of the writes acknowledged to that service. All processes are this
// test's own; they end with it, and the folder is removed.
#pragma once

#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "crash/chaos/model.h"
#include "crash/chaos/protocol.h"
#include "crash/chaos/shared_history.h"
#include "hyperloop/core/rnic.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/inspect.h"
#include "hyperloop/replication/options.h"
#include "inspect/export.h"
#include "support/child_process.h"

namespace hyperloop::chaos {

inline constexpr uint32_t kReplicas = 3;
inline constexpr uint64_t kRegionSize = 24ull << 20;
inline constexpr char kLdb[] = "/usr/bin/ldb";  // of the package rocksdb-tools

// How a program ended, and all that it wrote.
struct Ended {
  int status = -1;  // exit status, 128 + signal, −1: it did not end in a minute
  std::string output;
  bool by_signal() const { return status > 128; }
};

// A program whose output goes to a file.
class Program {
 public:
  Program() = default;
  Program(const std::vector<std::string>& argv, std::string log);
  bool started() const { return child_.pid() > 0; }
  bool running() const;
  bool stopped() const;  // every thread of it
  void Signal(int signal);
  void Kill() { child_.Kill(); }
  Ended Wait();
  std::string output() const;
  // Until it wrote a line that begins with `begin`, or ended.
  bool AwaitLine(const std::string& begin) const;

 private:
  test::ChildProcess child_;
  std::string log_;
};

// The state that refusals must not change.
struct Shown {
  std::map<std::string, std::string> files;  // of the directory, but for LOG and LOCK
  std::vector<std::string> members;          // epochs, owners and a hash of the region of each node
  std::string Difference(const Shown& other) const;  // empty when there is none
};

class World {
 public:
  // `datapath`: the one to use, with ack=append and wait=event; none: the seed decides.
  explicit World(uint64_t seed, std::optional<Datapath> datapath = {});
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // --- notes ---
  void Note(const std::string& event);
  void Fail(const std::string& what);  // the first one counts
  bool failed() const { return !failure_.empty(); }
  const std::string& failure() const { return failure_; }
  std::string story() const;  // all notes, and what the failure left in the logs
  void Skip(const std::string& why) { skipped_ = why; }
  const std::string& skipped() const { return skipped_; }
  uint64_t Random(uint64_t below) { return below == 0 ? 0 : random_() % below; }
  bool Coin() { return Random(2) == 0; }

  // --- places ---
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  // A path that nothing had before.
  std::string NewPath(const std::string& name) { return Path(name + std::to_string(paths_++)); }
  const std::string& directory() const { return directory_; }
  void set_directory(const std::string& directory) { directory_ = directory; }
  std::string pool(uint32_t i) const {
    return Path("cluster/replica" + std::to_string(i) + ".pool");
  }
  std::string primary_pool() const { return Path("primary.pool"); }
  std::string endpoint(uint32_t i) const { return endpoints_[i]; }
  StoreOptions Options() const;
  std::string Uri() const { return FormatStoreUri(Options()); }
  // The service gives up on a part that does not answer long before the checker gives up on it.
  StoreOptions Impatient() const;
  // A primary on another host, with a pool of its own.
  StoreOptions Second();
  bool small_disk() const { return small_disk_; }
  bool directory_on_small_disk() const;
  // Sets the size of the disk that the directory lies on at first.
  void ResizeDisk(uint64_t bytes);
  uint64_t UsedOfDisk() const;
  // What the RocksDB of the service has logged since it was last opened.
  std::string Log() const;
  // How often that log has these words.
  size_t TimesLogged(std::string_view words) const;

  // --- parts of the group ---
  void StartRnicd();
  void KillRnicd() { rnicd_.Kill(); }
  Program& rnicd() { return rnicd_; }
  // Starts the process and waits until it is ready; false when it ended instead.
  bool StartReplica(uint32_t i);
  void KillReplica(uint32_t i) { replicas_[i].Kill(); }
  Program& replica(uint32_t i) { return replicas_[i]; }
  // Starts dead processes, continues stopped ones, and waits until every replica answers.
  void Revive();
  void AwaitReplicas();

  // --- the service ---
  Progress& progress() { return *progress_; }
  Program& writer() { return writer_; }
  void StartWriter() { StartWriter(Uri()); }
  void StartWriter(const std::string& uri);
  // Waits until so many more writes were acknowledged; false if the writer ended before.
  bool AwaitAcknowledged(uint64_t more);
  bool AwaitPhase(Phase phase);
  // Starts the writer and waits until it writes; fails the world if it does not.
  bool StartWriting(uint64_t acknowledged);
  // Waits until a thread has begun a write of which RocksDB makes several appends.
  bool AwaitLargeWrite();
  Ended CloseWriter();  // tells it to stop, and waits
  void KillWriter();
  // A life of the service that ends by itself or by SIGKILL.
  void Life();

  // --- running other programs ---
  Ended Run(const std::vector<std::string>& argv) const;
  Ended Dump(const std::string& uri, const std::string& directory, const std::string& out) const;
  Shown Look() const;
  // `ended` is a refusal: no signal, a known text that names a way out and matches one of `words`.
  void CheckRefused(const Ended& ended, const std::vector<std::string>& words);
  // Opening `directory` with `uri` is refused like this, and changes nothing here or there.
  Ended ExpectRefused(const std::string& uri, const std::string& directory,
                      const std::vector<std::string>& words);

  // --- judging ---
  // The group was whole while the service wrote, and the service is dead. What each replica holds,
  // exported without the help of any other, has everything acknowledged and nothing else that was
  // not begun. Revives the group.
  void CheckEachAlone();
  // The files of the log lane as replica i has them.
  Result<std::map<std::string, std::string>> GroupFiles(uint32_t i) const;
  // Ends the service, revives the group, opens the directory orderly, and checks acknowledged
  // writes, equality of the members, and the export of each.
  void Settle();
  void set_settle_uri(const std::string& uri) { settle_uri_ = uri; }
  Model& model() { return model_; }
  const SharedHistory& shared() const { return shared_; }

 private:
  void Prepare();
  void MountDisk();
  std::string LastLogLines() const;
  void CheckProcesses();
  void CheckMembers(const Content& content);
  void CheckExport(uint32_t i, const Content& content);
  // Writes what replica i holds to the folder `export`, without the help of any other.
  Result<ExportReport> ExportAlone(uint32_t i) const;
  // What stock RocksDB finds in the folder `export`, which it removes; `who` is its name in a
  // failure.
  Content DumpExport(const std::string& who);
  Result<std::unique_ptr<rnic::Device>> Observer() const;
  Result<NodeStatus> Member(uint32_t i) const;
  Result<std::string> MemberText(uint32_t i) const;

  std::mt19937_64 random_;
  std::string folder_, directory_, settle_uri_;
  std::vector<std::string> endpoints_;
  Datapath datapath_ = Datapath::kOffload;
  AckMode ack_ = AckMode::kAppend;
  WaitMode wait_ = WaitMode::kEvent;
  bool small_disk_ = false;
  Program rnicd_;
  std::vector<Program> replicas_;
  Program writer_;
  Progress* progress_ = nullptr;
  Model model_;
  SharedHistory shared_;
  std::vector<std::string> notes_;
  std::string failure_, skipped_;
  uint64_t programs_ = 0;  // numbers their logs
  uint64_t paths_ = 0;
};

// Waits until `condition` holds, at most `seconds`; false when it does not. The default is only a
// net against hanging.
bool Eventually(const std::function<bool()>& condition, int seconds = 90);
// Lets processes run for a random time; the tests leave their progress to chance.
void LetRun(World& world, uint64_t at_most_us);
std::string ReadFile(const std::string& path);
void WriteFile(const std::string& path, const std::string& bytes);
// Makes the files of `directory` equal to `files`, without touching those that are equal already.
void SetFiles(const std::string& directory, const std::map<std::string, std::string>& files);
std::map<std::string, std::string> FilesIn(const std::string& directory);
// Those of `files` that are in the log lane: CURRENT, MANIFEST and logs.
std::map<std::string, std::string> LogLaneOf(std::map<std::string, std::string> files);
// Whether there are at least so many tables. They are made one after the other, so that with two
// the database knows one.
bool HasTables(const std::string& directory, int at_least);
std::string ProgramOf(const std::string& name);  // of this build

}  // namespace hyperloop::chaos
