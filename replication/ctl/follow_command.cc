// hyperloopctl follow
#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "common/printable.h"
#include "ctl/command.h"
#include "ctl/nodes.h"
#include "ctl/repeat.h"
#include "files/file_table.h"
#include "follow/followed_directory.h"
#include "follow/log_follower.h"
#include "hyperloop/core/text.h"

namespace hyperloop::ctl {
namespace {

constexpr std::chrono::milliseconds kLook{10};
constexpr std::chrono::seconds kReconnect{1};
constexpr std::chrono::seconds kTell{2};  // how long a file must be missing until it is named
constexpr std::chrono::seconds kTidy{1};  // how often names are removed whose time is over

struct FollowOptions {
  Where where;
  uint32_t replica = 0;
  std::string to, files;
  uint32_t retain = 60;  // seconds
};

volatile std::sig_atomic_t ended = 0;

// One replica, from its connection to the first error.
class Following {
 public:
  static Result<std::unique_ptr<Following>> Begin(const FollowOptions& options) {
    HL_ASSIGN_OR_RETURN(Nodes nodes, Nodes::Find(options.where));
    HL_ASSIGN_OR_RETURN(const NodePlace* place, nodes.Replica(options.replica));
    // The pool of a dead one could be read, but then its process could not start again.
    if (place->state == ProcessState::kDead)
      return Unavailable(Text(place->name, " is dead; start it, or follow another replica"));
    const std::string files = options.files.empty() ? place->files : options.files;
    HL_ASSIGN_OR_RETURN(std::unique_ptr<NodeView> view, nodes.View(*place));
    return std::unique_ptr<Following>(
        new Following(options, std::move(nodes), std::move(view), files));
  }

  // Shows what is new in `*directory`, which it opens when there is something to show.
  Result<LogFollower::Progress> Look(std::unique_ptr<FollowedDirectory>* directory) {
    HL_ASSIGN_OR_RETURN(const LogFollower::Progress progress, log_.CatchUp());
    anew_ = anew_ || progress == LogFollower::Progress::kReadAnew;
    if (!log_.shows()) return progress;
    const bool changed = progress == LogFollower::Progress::kAppended ||
                         progress == LogFollower::Progress::kReadAnew;
    const auto now = std::chrono::steady_clock::now();
    if (!changed && !missing_.has_value() && shown_ && now < tidy_at_) return progress;
    if (*directory == nullptr || anew_) {
      HL_RETURN_IF_ERROR(CheckOrigin(directory));
      store_.reset();  // the replica may have made its directory of files anew
      anew_ = false;
    }
    behind_ = log_.seq() < (*directory)->seq();
    if (behind_) return progress;
    if (store_ == nullptr) HL_RETURN_IF_ERROR(OpenStore());
    HL_ASSIGN_OR_RETURN(const FileTable table, FileTable::Load(log_.image(), log_.info()));
    HL_ASSIGN_OR_RETURN(
        std::optional<std::string> missing,
        (*directory)->Show({log_.image(), log_.info(), table, store_.get(), log_.seq()}, now));
    if (missing != missing_) missing_since_ = now;
    missing_ = std::move(missing);
    waits_long_ = missing_.has_value() && now - missing_since_ >= kTell;
    shown_ = shown_ || !missing_.has_value();
    tidy_at_ = now + kTidy;
    return progress;
  }

  const LogFollower& log() const { return log_; }
  const std::optional<std::string>& missing() const { return missing_; }
  // Each table is missing while it is shipped.
  bool waits_long() const { return waits_long_; }
  bool shown() const { return shown_; }
  bool behind() const { return behind_; }

 private:
  Following(const FollowOptions& options, Nodes nodes, std::unique_ptr<NodeView> view,
            std::string files)
      : options_(options),
        nodes_(std::move(nodes)),
        view_(std::move(view)),
        files_(std::move(files)) {}

  // The branch may be another one than when the directory was opened.
  Status CheckOrigin(std::unique_ptr<FollowedDirectory>* directory) {
    HL_ASSIGN_OR_RETURN(const NodeStatus status, view_->ReadStatus());
    const FollowedDirectory::Origin origin{status.group, status.branch_epoch, status.branch_owner};
    if (*directory != nullptr && (*directory)->origin() == origin) return {};
    directory->reset();
    HL_ASSIGN_OR_RETURN(*directory, FollowedDirectory::Open(options_.to, origin,
                                                            std::chrono::seconds(options_.retain)));
    return {};
  }
  Status OpenStore() {
    if (files_.empty()) return {};
    auto store = FileStore::OpenToRead(GroupDirectory(files_, log_.info().group));
    if (store.status().code() == Code::kNotFound) return {};
    HL_RETURN_IF_ERROR(store.status());
    store_ = std::move(store).value();
    return {};
  }

  const FollowOptions& options_;
  const Nodes nodes_;  // owns the device
  const std::unique_ptr<NodeView> view_;
  const std::string files_;
  LogFollower log_{
      [this](uint64_t offset, std::span<std::byte> out) { return view_->Read(offset, out); },
      [this] { return view_->Mark(); }, view_->region_size()};
  std::unique_ptr<FileStore> store_;
  std::optional<std::string> missing_;
  bool waits_long_ = false;
  std::chrono::steady_clock::time_point missing_since_{};
  bool shown_ = false;
  bool anew_ = false;    // what was read anew has not been shown yet
  bool behind_ = false;  // the replica lacks what was shown of another one, or before
  std::chrono::steady_clock::time_point tidy_at_{};
};

std::string TextOf(const Following& following, LogFollower::Progress progress) {
  if (progress == LogFollower::Progress::kAwaitsPrimary)
    return following.shown() ? "a primary is taking the group; what is shown stays"
                             : "waits for a primary that takes the group";
  if (following.behind()) return "waits until the replica holds all that is shown";
  if (following.waits_long())
    return Text("waits for ", *following.missing(), ", which the replica does not hold yet");
  if (!following.shown()) return {};  // until the next heartbeat
  return Text("follows epoch ", following.log().epoch());
}

// Says something once, until it says something else.
class Teller {
 public:
  void Say(const std::string& text) {
    if (text.empty() || text == said_) return;
    std::printf("%s  %s\n", TimeNow().c_str(), Printable(text, 4096).c_str());
    std::fflush(stdout);
    said_ = text;
  }

 private:
  std::string said_;
};

// Whether trying again cannot help.
bool IsFinal(const Status& status) {
  return status.code() == Code::kInvalidArgument || status.code() == Code::kAlreadyExists ||
         status.code() == Code::kPermissionDenied;
}

int Run(const FollowOptions& options) {
  struct sigaction action = {};
  action.sa_handler = [](int) { ended = 1; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  Teller teller;
  std::unique_ptr<FollowedDirectory> directory;
  std::unique_ptr<Following> following;
  bool first = true;
  while (ended == 0) {
    Status status;
    if (following == nullptr) {
      Result<std::unique_ptr<Following>> begun = Following::Begin(options);
      status = begun.status();
      if (begun.ok()) following = std::move(begun).value();
    }
    if (following != nullptr) {
      const Result<LogFollower::Progress> progress = following->Look(&directory);
      status = progress.status();
      if (progress.ok()) teller.Say(TextOf(*following, *progress));
    }
    if (status.ok()) {
      first = false;
      std::this_thread::sleep_for(kLook);
      continue;
    }
    if (first || IsFinal(status)) return Fail(status);
    teller.Say(Text(status.message(), "; what is shown stays, and it is tried again"));
    following.reset();
    std::this_thread::sleep_for(kReconnect);
  }
  return kExitOk;
}

}  // namespace

void AddFollow(CLI::App& app, Action* chosen) {
  auto options = std::make_shared<FollowOptions>();
  CLI::App* follow = app.add_subcommand(
      "follow",
      "keep a directory that grows as the group is written, from which stock RocksDB reads (as a "
      "secondary, or read-only); shows nothing that is not acknowledged; runs until SIGTERM");
  AddWhere(follow, &options->where);
  follow->add_option("--replica", options->replica, "which replica of the group to read")
      ->required()
      ->type_name("N");
  follow->add_option("--to", options->to, "the directory: new, empty, or one that follow made")
      ->required()
      ->type_name("DIR");
  follow
      ->add_option("--files", options->files,
                   "the replica's directory of whole files, where it is not known otherwise")
      ->type_name("DIR");
  follow
      ->add_option("--retain", options->retain,
                   "how many seconds a file that the group dropped keeps its name, for readers "
                   "that are about to open it")
      ->check(CLI::Range(0u, 86400u))
      ->type_name("SECONDS")
      ->capture_default_str();
  follow->callback([=] { *chosen = [=] { return Run(*options); }; });
}

}  // namespace hyperloop::ctl
