// Reader: reads a directory that `hyperloopctl follow` keeps, and never answers with an older value
// than one was promised. It needs RocksDB alone.
//
// A RocksDB secondary that has read a flush from the MANIFEST may go on to answer from its older
// memtables, although its sequence number is right (RocksDB issues 14444 and 15051, mended in
// 2026). So no handle reads a MANIFEST that has grown since the handle was opened: another one is
// opened, and takes its place. The live log, which a new handle replays, is shortest just then. Nor
// does a handle catch up while anybody reads from it: a Reader has two, brings the one that nobody
// sees up to date, and puts it in the place of the other. So it takes the memory of two
// secondaries.
//
//   std::unique_ptr<hyperloop::Reader> reader;
//   Status status = hyperloop::Reader::Open(options, "/srv/followed", "/srv/scratch", &reader);
//   status = reader->WaitFor(token, std::chrono::seconds(1));  // a writer's (token.h)
//   status = reader->view()->db()->Get(ReadOptions(), key, &value);
//
// Thread safety: every method may be called from any thread. A view is the database at one moment:
// whatever other threads do meanwhile, it neither changes nor goes back as long as it is held. A
// view that was taken later is never older. So hold a view for related reads, take a new one for
// new data, and hold none for longer than needed: each that is held keeps memtables and files.
#pragma once

#include <hyperloop/plugin/token.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/options.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace hyperloop {

class Reader {
 public:
  using Time = std::chrono::system_clock::time_point;

  // The database at one moment. Families are in the order in which they were named.
  class View {
   public:
    ~View() {
      for (rocksdb::ColumnFamilyHandle* family : families_)
        db_->DestroyColumnFamilyHandle(family).PermitUncheckedError();
    }
    View(const View&) = delete;
    View& operator=(const View&) = delete;
    rocksdb::DB* db() const { return db_.get(); }
    const std::vector<rocksdb::ColumnFamilyHandle*>& families() const { return families_; }
    // Everything that was acknowledged in this branch by then is in the view, which may have more.
    // Time(): not known, because nobody has vouched for the replica yet.
    Time as_of() const { return as_of_; }

   private:
    friend class Reader;
    View() = default;
    std::unique_ptr<rocksdb::DB> db_;
    std::vector<rocksdb::ColumnFamilyHandle*> families_;
    std::string current_;         // the MANIFEST
    uint64_t manifest_size_ = 0;  // how much of it was there before the handle was opened
    Time as_of_{};
  };

  // `directory`: the one that is followed. `scratch`: a directory of this reader alone, into which
  // RocksDB writes its LOGs; it is made. `families`: which ones to open; empty: the default one.
  // Options need the writer's comparator and merge operator; max_open_files becomes -1, so that no
  // file is opened late. An error is that of DB::OpenAsSecondary, also for an empty directory, or
  // NotFound: nobody has followed there.
  static rocksdb::Status Open(const rocksdb::DBOptions& options, const std::string& directory,
                              const std::string& scratch,
                              std::vector<rocksdb::ColumnFamilyDescriptor> families,
                              std::unique_ptr<Reader>* reader) {
    std::unique_ptr<Reader> made(new Reader(options, directory, scratch, std::move(families)));
    const std::lock_guard lock(made->catching_up_);
    rocksdb::Status status = made->OpenAnew();
    if (status.ok()) *reader = std::move(made);
    return status;
  }
  static rocksdb::Status Open(const rocksdb::Options& options, const std::string& directory,
                              const std::string& scratch, std::unique_ptr<Reader>* reader) {
    return Open(options, directory, scratch,
                {{rocksdb::kDefaultColumnFamilyName, rocksdb::ColumnFamilyOptions(options)}},
                reader);
  }

  std::shared_ptr<const View> view() const {
    const std::lock_guard lock(publishing_);
    return view_;
  }
  // Whose history the directory shows.
  const Origin& origin() const { return origin_; }

  // Puts a view of what the directory shows now in the place of the one before. After an error it
  // is still that one. TryAgain: logs are dropped while they are read, or the directory shows less
  // than the view before, as after a full disk. Aborted: it was made anew, and shows another
  // history; a Reader reads one.
  rocksdb::Status CatchUp() {
    const std::lock_guard lock(catching_up_);
    const Time as_of = AsOf();  // the follower notes it behind what it speaks of
    // Nobody can get hold of the spare one, so if nobody has it, nobody reads from it.
    if (spare_ != nullptr && spare_.use_count() == 1 && IsOfManifest(*spare_)) {
      std::atomic_thread_fence(std::memory_order_acquire);  // after the last one who had it
      // Another history's MANIFEST may have the same name and size.
      const rocksdb::Status origin = CheckOrigin();
      if (!origin.ok()) return origin;
      const rocksdb::Status status = spare_->db()->TryCatchUpWithPrimary();
      // The MANIFEST may have grown during the call.
      if (status.ok() && IsOfManifest(*spare_)) {
        spare_->as_of_ = as_of;
        Publish(std::move(spare_));
        return status;
      }
    }
    spare_.reset();
    return OpenAnew();
  }

  // Catches up until views have everything up to the token. TimedOut: they do not have it yet; ask
  // the primary instead. Aborted: the token is of another branch, so that its write may never be
  // here. InvalidArgument: it is of another group, or of another database of this one. Another
  // error: the last one of CatchUp.
  rocksdb::Status WaitFor(const Token& token, std::chrono::milliseconds timeout) {
    const rocksdb::Status status = Judge(token.origin);
    if (!status.ok()) return status;
    return WaitUntil(timeout, [&](const View& view) {
      return view.db()->GetLatestSequenceNumber() >= token.sequence;
    });
  }

  // Catches up until views have everything that was acknowledged `most` ago, or later. TimedOut:
  // the follower is further behind, does not run, or a majority of the replicas does not vouch for
  // this one. Another error: the last one of CatchUp. Both programs go by this machine's clock.
  rocksdb::Status WaitForFresh(std::chrono::milliseconds most, std::chrono::milliseconds timeout) {
    return WaitUntil(timeout, [&](const View& view) {
      const Time now = std::chrono::system_clock::now();
      return view.as_of() != Time() && view.as_of() <= now && now - view.as_of() <= most;
    });
  }

 private:
  Reader(const rocksdb::DBOptions& options, std::string directory, std::string scratch,
         std::vector<rocksdb::ColumnFamilyDescriptor> families)
      : options_(options),
        directory_(std::move(directory)),
        scratch_(std::move(scratch)),
        families_(std::move(families)) {
    options_.max_open_files = -1;
    if (families_.empty())
      families_.emplace_back(rocksdb::kDefaultColumnFamilyName, rocksdb::ColumnFamilyOptions());
  }

  rocksdb::Status Judge(const Origin& origin) const {
    if (origin.group != origin_.group)
      return rocksdb::Status::InvalidArgument("the token is of group " + origin.group,
                                              "this directory shows group " + origin_.group);
    if (!origin.HasSameDatabase(origin_))
      return rocksdb::Status::InvalidArgument("the token is of database " + origin.database,
                                              "this directory shows database " + origin_.database);
    if (origin.branch != origin_.branch)
      return rocksdb::Status::Aborted("the token is of branch " + origin.branch,
                                      "this directory shows branch " + origin_.branch);
    return rocksdb::Status::OK();
  }

  template <typename Condition>
  rocksdb::Status WaitUntil(std::chrono::milliseconds timeout, const Condition& holds) {
    const auto until = std::chrono::steady_clock::now() + timeout;
    while (true) {
      if (holds(*view())) return rocksdb::Status::OK();
      const rocksdb::Status status = CatchUp();
      if (status.ok() && holds(*view())) return status;
      if (status.IsAborted() && !status.IsMemoryLimit()) return status;
      if (std::chrono::steady_clock::now() >= until)
        return status.ok() ? rocksdb::Status::TimedOut() : status;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  // What the follower says: the line "as-of N N", microseconds since 1970. Two numbers that differ
  // are being written.
  Time AsOf() const {
    std::string text;
    rocksdb::ReadFileToString(rocksdb::Env::Default(), directory_ + "/hyperloop-follower", &text)
        .PermitUncheckedError();
    const size_t at = text.find("\nas-of ");
    unsigned long long first = 0, second = 1;
    if (at == std::string::npos ||
        std::sscanf(text.c_str() + at, " as-of %20llu %20llu", &first, &second) != 2 ||
        first != second)
      return Time();
    return Time(std::chrono::microseconds(first));
  }

  // Which MANIFEST there is, and how long it is; an empty name: it cannot be told.
  void LookAtManifest(std::string* current, uint64_t* size) const {
    rocksdb::Env* const env = options_.env;
    rocksdb::Status status = rocksdb::ReadFileToString(env, directory_ + "/CURRENT", current);
    while (!current->empty() && current->back() == '\n') current->pop_back();
    if (status.ok()) status = env->GetFileSize(directory_ + "/" + *current, size);
    if (!status.ok()) current->clear();
  }
  // Whether the MANIFEST is as it was when the view was opened.
  bool IsOfManifest(const View& view) const {
    std::string current;
    uint64_t size = 0;
    LookAtManifest(&current, &size);
    return !current.empty() && current == view.current_ && size == view.manifest_size_;
  }

  // RocksDB renames the LOG that it finds, and a secondary keeps all that were renamed. Views that
  // are still held write to theirs without a name.
  void DropOldLogs(const std::string& logs) {
    std::vector<std::string> names;
    if (!options_.env->GetChildren(logs, &names).ok()) return;
    for (const std::string& name : names) {
      if (name.rfind("LOG.old.", 0) == 0)
        options_.env->DeleteFile(logs + "/" + name).PermitUncheckedError();
    }
  }

  // The former view becomes the spare one, unless it cannot catch up any more.
  void Publish(std::shared_ptr<View> view) {
    const std::string current = view->current_;
    const uint64_t size = view->manifest_size_;
    {
      const std::lock_guard lock(publishing_);
      view_.swap(view);
    }
    const bool catches_up =
        view != nullptr && view->current_ == current && view->manifest_size_ == size;
    spare_ = catches_up ? std::move(view) : nullptr;
  }

  // The names of the live logs, sorted.
  std::vector<std::string> Logs() const {
    std::vector<std::string> names;
    options_.env->GetChildren(directory_, &names).PermitUncheckedError();
    names.erase(std::remove_if(names.begin(), names.end(),
                               [](const std::string& name) {
                                 return name.size() < 4 ||
                                        name.compare(name.size() - 4, 4, ".log") != 0;
                               }),
                names.end());
    std::sort(names.begin(), names.end());
    return names;
  }

  // RocksDB does not miss a log that was dropped after it read the MANIFEST that needs it.
  rocksdb::Status OpenAnew() {
    constexpr int kMostTries = 8;
    for (int tries = 0; tries < kMostTries; ++tries) {
      const std::vector<std::string> before = Logs();
      std::shared_ptr<View> view(new View());
      view->as_of_ = AsOf();
      const rocksdb::Status status = OpenSecondary(view.get());
      if (!status.ok()) return status;
      const std::vector<std::string> after = Logs();
      if (!std::includes(after.begin(), after.end(), before.begin(), before.end())) continue;
      if (view_ != nullptr &&
          view->db()->GetLatestSequenceNumber() < view_->db()->GetLatestSequenceNumber())
        return rocksdb::Status::TryAgain("the directory shows less than before");
      Publish(std::move(view));
      return status;
    }
    return rocksdb::Status::TryAgain(
        "logs are dropped while they are read: retain them for longer");
  }

  rocksdb::Status CheckOrigin() {
    Origin now;
    const rocksdb::Status status = Origin::OfFollowed(options_.env, directory_, &now);
    if (!status.ok()) return status;
    if (origin_.group.empty()) origin_ = now;
    if (now.group == origin_.group && now.branch == origin_.branch && now.HasSameDatabase(origin_))
      return status;
    return rocksdb::Status::Aborted(directory_, "it was made anew, and shows another history");
  }

  // The MANIFEST is noted before it is read, so that a handle is at most newer than the note.
  rocksdb::Status OpenSecondary(View* view) {
    const rocksdb::Status origin = CheckOrigin();
    if (!origin.ok()) return origin;
    LookAtManifest(&view->current_, &view->manifest_size_);
    // Two handles live at a time, and each has a LOG.
    const std::string logs = scratch_ + "/" + std::to_string(opened_++ % 2);
    for (const std::string& made : {scratch_, logs}) {
      const rocksdb::Status status = options_.env->CreateDirIfMissing(made);
      if (!status.ok()) return status;
    }
    DropOldLogs(logs);
    rocksdb::DB* db = nullptr;
    rocksdb::Status status =
        rocksdb::DB::OpenAsSecondary(options_, directory_, logs, families_, &view->families_, &db);
    view->db_.reset(db);
    return status;
  }

  rocksdb::DBOptions options_;
  const std::string directory_, scratch_;
  Origin origin_;  // set before Open returns
  std::vector<rocksdb::ColumnFamilyDescriptor> families_;
  std::mutex catching_up_;  // guards opened_ and spare_
  uint64_t opened_ = 0;
  std::shared_ptr<View> spare_;    // null: there is none
  mutable std::mutex publishing_;  // guards view_, which only a holder of catching_up_ changes
  std::shared_ptr<View> view_;
};

}  // namespace hyperloop
