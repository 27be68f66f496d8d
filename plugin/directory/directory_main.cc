// hyperloop-directory: gives a database directory to its group, or a group's database to a
// directory, or keeps a directory ready for that, or compares the two, or reads a database through.
// hyperloopctl adopt, promote, standby, switchover, doctor --db and verify --deep are the commands
// for users.
#include <rocksdb/env.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "deep_check.h"
#include "diagnosis.h"
#include "file_system/file_system.h"
#include "hyperloop/core/trusted_files.h"
#include "hyperloop/replication/bindings.h"
#include "hyperloop/replication/directory_call.h"
#include "hyperloop/replication/survivors.h"
#include "local/local_file_system.h"
#include "local/local_files.h"
#include "local/paths.h"
#include "local/status.h"
#include "standby.h"
#include "switchover.h"

namespace hyperloop::plugin {
namespace {

using rocksdb::FileSystem;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

// Shows on stderr what RocksDB would write into its info log.
class ShownLog final : public rocksdb::Logger {
 public:
  using Logger::Logv;
  void Logv(const char* format, va_list arguments) override {
    std::vfprintf(stderr, format, arguments);
    std::fputc('\n', stderr);
  }
};

class ShowingFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  ShowingFileSystem() : FileSystemWrapper(LocalFileSystem()) {}
  const char* Name() const override { return "shows its info log"; }
  IOStatus NewLogger(const std::string&, const IOOptions&, std::shared_ptr<rocksdb::Logger>* logger,
                     rocksdb::IODebugContext*) override {
    *logger = std::make_shared<ShownLog>();
    return IOStatus::OK();
  }
};

// Takes the group for the directory, which makes both hold the same, and releases the group.
Status Bind(const std::string& directory, const StoreOptions& options, Taking taking) {
  HyperloopFileSystem fs(std::make_shared<ShowingFileSystem>(), options, Store::Open,
                         std::move(taking));
  std::shared_ptr<rocksdb::Logger> log;
  const IOStatus logging = fs.NewLogger(directory + "/LOG", IOOptions(), &log, nullptr);
  if (logging.IsBusy()) return Busy(InAnotherProcess(directory, logging));
  HL_RETURN_IF_ERROR(FromIOStatus(logging, "logging"));
  const std::string lock_path = directory + "/" + std::string(kLockFileName);
  rocksdb::FileLock* lock = nullptr;
  const IOStatus locked = fs.LockFile(lock_path, IOOptions(), &lock, nullptr);
  if (locked.IsInvalidArgument()) return InvalidArgument(locked.ToString());
  // RocksDB has no code of its own for this.
  if (locked.ToString().find("While lock file") != std::string::npos)
    return Busy(InAnotherProcess(directory, locked));
  HL_RETURN_IF_ERROR(FromIOStatus(locked, "cannot take the group"));
  return FromIOStatus(fs.UnlockFile(lock, IOOptions(), nullptr), "releasing " + directory);
}

Status Adopt(const std::string& directory, StoreOptions options) {
  options.adopt = true;
  HL_RETURN_IF_ERROR(ValidateStoreOptions(options).WithContext("--uri"));
  const Status found = SizeOf(*LocalFileSystem(), directory + "/CURRENT").status();
  if (found.code() == Code::kNotFound)
    return InvalidArgument(directory + " holds no database: it has no CURRENT");
  HL_RETURN_IF_ERROR(found);
  return Bind(directory, options, {.only_prepares = true});
}

Status CheckPlaces(const std::string& directory, const std::string& replica_files) {
  if (!replica_files.empty())
    HL_RETURN_IF_ERROR(
        CheckDirectory(replica_files, DirectoryRule::kOwn).status().WithContext("--replica-files"));
  return FromIOStatus(LocalFileSystem()->CreateDirIfMissing(directory, IOOptions(), nullptr),
                      "cannot create " + directory);
}

// The directory becomes the group's, whichever it was bound to before.
void BindAnew(StoreOptions* options) { options->restore = options->rebind = true; }

Status PromoteWith(const std::string& directory, const StoreOptions& options, NearFiles near) {
  return Bind(directory, options,
              {.must_hold_database = true, .only_prepares = true, .near = std::move(near)});
}

std::string Listed(const std::vector<std::string>& addresses) {
  std::string out;
  for (const std::string& each : addresses) out += (out.empty() ? "" : ", ") + each;
  return out;
}

// Says on stderr what going on with the survivors costs.
void Warn(const Survivors& survivors) {
  std::fprintf(
      stderr,
      "Too few replicas of the group answer to agree on anything.\n"
      "  left: %s\n"
      "  lost: %s\n"
      "--force goes on with those that are left, and gives the others up for good. What is left "
      "holds everything that was acknowledged under the newest configuration that it knows, that "
      "of epoch %llu. The group was taken last by %s, whose last sign of life here was at %s.\n"
      "- If the others went on without these since then (on_replica_failure=continue), all that "
      "they acknowledged is lost here. The directory of the last primary, where it is whole, holds "
      "it: look there first.\n"
      "- If they are not lost but out of reach, and a primary still serves there, there will be "
      "two databases, which never become one. End that primary first.\n"
      "- A replica that comes back is refused. Then set its pool aside and keep it, because it may "
      "be the last copy of what those acknowledged; with a fresh one it may join (hyperloopctl "
      "add).\n",
      Listed(survivors.left).c_str(), Listed(survivors.lost).c_str(),
      static_cast<unsigned long long>(survivors.epoch), survivors.owner.c_str(),
      survivors.alive_at.c_str());
}

// True: this line is on stdin.
bool Typed(const std::string& words) {
  std::fprintf(stderr, "To go on, type: %s\n", words.c_str());
  std::string line;
  for (int c = std::getchar(); c != EOF && c != '\n'; c = std::getchar())
    line.push_back(static_cast<char>(c));
  return line == words;
}

// Gives up the replicas that are lost. `confirm`: if somebody confirms it.
Status GiveUpLost(bool confirm, StoreOptions* options) {
  HL_ASSIGN_OR_RETURN(const Survivors survivors, FindSurvivors(*options));
  Warn(survivors);
  const std::string words = "give up " + Listed(survivors.lost);
  if (confirm && !Typed(words)) return InvalidArgument("not confirmed; nothing was changed");
  options->given_up = survivors.lost;
  return Status::Ok();
}

// Leaves the options as the group's next opening needs them.
void DropGivenUp(StoreOptions* options) {
  std::erase_if(options->replicas, [&](const std::string& each) {
    return std::find(options->given_up.begin(), options->given_up.end(), each) !=
           options->given_up.end();
  });
  options->given_up.clear();
}

Status Promote(const std::string& directory, const DirectoryCall::Promote& promote,
               StoreOptions* options) {
  using Lost = DirectoryCall::Promote::Lost;
  if (promote.lost != Lost::kRefuse)
    HL_RETURN_IF_ERROR(GiveUpLost(promote.lost == Lost::kAsk, options));
  StoreOptions bound = *options;
  BindAnew(&bound);
  HL_RETURN_IF_ERROR(ValidateStoreOptions(bound).WithContext("--uri"));
  HL_RETURN_IF_ERROR(CheckPlaces(directory, promote.replica_files));
  std::vector<std::string> places;
  if (!promote.replica_files.empty()) places.push_back(promote.replica_files);
  HL_RETURN_IF_ERROR(PromoteWith(directory, bound, NearFiles(std::move(places))));
  DropGivenUp(options);
  return Status::Ok();
}

void PrintGap(const Released& released) {
  using Seconds = std::chrono::duration<double>;
  const auto now = Released::Clock::now();
  if (!released.held.has_value()) {
    std::printf("no primary has served the group since before this call: %s had closed it\n",
                released.former.c_str());
    return;
  }
  std::printf(
      "no primary has served the group for %.2f to %.2f s, since %s closed it, and none will until "
      "the database is opened here\n",
      Seconds(now - released.released).count(), Seconds(now - *released.held).count(),
      released.former.c_str());
}

Status Standby(const std::string& directory, const DirectoryCall::Standby& standby,
               StoreOptions options) {
  if (options.takeover)
    return InvalidArgument("--uri: a standby takes nothing; leave takeover=true out");
  BindAnew(&options);
  HL_RETURN_IF_ERROR(ValidateStoreOptions(options).WithContext("--uri"));
  HL_RETURN_IF_ERROR(CheckPlaces(directory, standby.replica_files));
  return KeepReady(*LocalFileSystem(), {directory, options, standby.replica_files});
}

Status Switchover(const std::string& directory, const DirectoryCall::Switchover& switchover,
                  StoreOptions options) {
  if (options.takeover)
    return InvalidArgument(
        "--uri: a switchover takes nothing from a primary that lives; leave "
        "takeover=true out, or use hyperloopctl promote");
  BindAnew(&options);
  HL_RETURN_IF_ERROR(ValidateStoreOptions(options).WithContext("--uri"));
  HL_RETURN_IF_ERROR(CheckPlaces(directory, switchover.replica_files));
  const std::shared_ptr<FileSystem> local = LocalFileSystem();
  const std::string lock_path = directory + "/" + std::string(kLockFileName);
  rocksdb::FileLock* lock = nullptr;
  if (const IOStatus locked = local->LockFile(lock_path, IOOptions(), &lock, nullptr); !locked.ok())
    return Busy(InAnotherProcess(directory, locked));
  const Result<Released> released =
      AwaitRelease(*local, {directory, options, switchover.replica_files, switchover.wait});
  HL_RETURN_IF_ERROR(FromIOStatus(local->UnlockFile(lock, IOOptions(), nullptr), "unlocking"));
  HL_RETURN_IF_ERROR(released.status());
  HL_RETURN_IF_ERROR(PromoteWith(directory, options, NearFiles()));
  PrintGap(*released);
  return Status::Ok();
}

// The group that a directory is bound to in this process's environment.
Status FindBinding(const std::string& directory, std::optional<StoreOptions>* group) {
  const Bindings bindings = BindingsOfProcess();
  HL_RETURN_IF_ERROR(bindings.status);
  for (const DirectoryBinding& binding : bindings.list) {
    if (RealPath(binding.directory) != RealPath(directory)) continue;
    HL_RETURN_IF_ERROR(binding.status.WithContext(binding.origin));
    *group = binding.options;
  }
  return Status::Ok();
}

// False: something is bad.
Result<bool> Doctor(const std::string& directory, std::optional<StoreOptions> group) {
  if (!std::filesystem::is_directory(directory)) return NotFound(directory + " is not a directory");
  if (group.has_value()) {
    HL_RETURN_IF_ERROR(ValidateStoreOptions(*group).WithContext("--uri"));
  } else {
    HL_RETURN_IF_ERROR(FindBinding(directory, &group));
  }
  bool good = true;
  for (const Finding& finding : Diagnose(directory, group ? &*group : nullptr)) {
    static constexpr std::array kMarks{"ok  ", "note", "BAD "};
    std::printf("%s  %s\n", kMarks[static_cast<size_t>(finding.kind)], finding.text.c_str());
    good = good && finding.kind != Finding::Kind::kBad;
  }
  return good;
}

Status ReadThrough(const std::string& directory) {
  HL_ASSIGN_OR_RETURN(const DeepReport report, CheckDeeply(directory));
  std::printf("%s: %llu keys in %llu column families were read, %llu B; all checksums hold\n",
              directory.c_str(), static_cast<unsigned long long>(report.keys),
              static_cast<unsigned long long>(report.families),
              static_cast<unsigned long long>(report.bytes));
  return Status::Ok();
}

// What each call does. True; where it binds the directory, the group's options as its next opening
// needs them are printed. False: something is bad.
class Carrier {
 public:
  explicit Carrier(const DirectoryCall& call) : call_(call) {}

  Result<bool> operator()(const DirectoryCall::Doctor&) const {
    return Doctor(call_.directory, call_.group);
  }
  Result<bool> operator()(const DirectoryCall::Adopt&) const {
    return Bound(Adopt(call_.directory, *call_.group), *call_.group);
  }
  Result<bool> operator()(const DirectoryCall::Promote& promote) const {
    StoreOptions options = *call_.group;
    const Status status = Promote(call_.directory, promote, &options);
    return Bound(status, options);
  }
  Result<bool> operator()(const DirectoryCall::Standby& standby) const {
    HL_RETURN_IF_ERROR(Standby(call_.directory, standby, *call_.group));
    return true;
  }
  Result<bool> operator()(const DirectoryCall::Switchover& switchover) const {
    return Bound(Switchover(call_.directory, switchover, *call_.group), *call_.group);
  }
  Result<bool> operator()(const DirectoryCall::Deep&) const {
    HL_RETURN_IF_ERROR(ReadThrough(call_.directory));
    return true;
  }

 private:
  Result<bool> Bound(const Status& status, StoreOptions options) const {
    HL_RETURN_IF_ERROR(status);
    // These options were meant for this call only.
    options.adopt = options.restore = options.rebind = options.takeover = false;
    std::printf("%s holds its group's database: open it with %s\n", call_.directory.c_str(),
                FormatStoreUri(options).c_str());
    return true;
  }

  const DirectoryCall& call_;
};

constexpr char kUsage[] =
    "usage: hyperloop-directory adopt|promote|standby|switchover|doctor|verify-deep --db=DIR\n"
    "         [--uri=URI] [--replica-files=DIR] [--lost=refuse|ask|give-up] [--wait=SECONDS]\n"
    "(see hyperloopctl adopt, promote, standby, switchover, doctor and verify, each with --help)\n";

int Main(const std::vector<std::string>& arguments) {
  const std::string first = arguments.size() == 1 ? arguments[0] : "";
  if (first == "--version") {
    std::printf("hyperloop-directory %s\n", HYPERLOOP_VERSION);
    return 0;
  }
  if (first == "--help") {
    std::printf("%s", kUsage);
    return 0;
  }
  const Result<DirectoryCall> call = ParseDirectoryCall(arguments);
  if (!call.ok()) {
    std::fprintf(stderr, "hyperloop-directory: %s\n%s", call.status().message().c_str(), kUsage);
    return 2;
  }
  const Result<bool> good = std::visit(Carrier(*call), call->what);
  if (good.ok()) return *good ? 0 : 1;
  const bool deep = std::holds_alternative<DirectoryCall::Deep>(call->what);
  std::fprintf(stderr, "hyperloopctl %s: %s\n", deep ? "verify --deep" : call->verb(),
               good.status().message().c_str());
  return good.status().code() == Code::kInvalidArgument ? 2 : 1;
}

}  // namespace
}  // namespace hyperloop::plugin

int main(int argc, char** argv) {
  return hyperloop::plugin::Main(std::vector<std::string>(argv + 1, argv + argc));
}
