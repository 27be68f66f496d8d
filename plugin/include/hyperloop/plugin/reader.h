// Reader: reads a directory that `hyperloopctl follow` keeps, and never answers with an older value
// than one was promised. It needs RocksDB alone.
//
// A RocksDB secondary that has read a flush from the MANIFEST may go on to answer from its older
// memtables, although its sequence number is right (RocksDB issues 14444 and 15051, mended in
// 2026). So a Reader opens a second handle whenever the MANIFEST has grown, and after any error,
// and puts it in the place of the first. The live log, which a new handle replays, is shortest just
// then.
//
//   std::unique_ptr<hyperloop::Reader> reader;
//   Status status = hyperloop::Reader::Open(options, "/srv/followed", "/srv/scratch", &reader);
//   // A writer: db->Put(…), then `token = db->GetLatestSequenceNumber()`, which it hands over.
//   status = reader->WaitFor(token, std::chrono::seconds(1));
//   status = reader->view()->db()->Get(ReadOptions(), key, &value);
//
// Thread safety: every method may be called from any thread. Views stay valid as long as they are
// held. While a CatchUp or WaitFor of another thread runs, a view may answer with older values; a
// view that was taken after it returned does not.
#pragma once

#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/options.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace hyperloop {

class Reader {
 public:
  // The database at one moment or later. Families are in the order in which they were named.
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

   private:
    friend class Reader;
    View() = default;
    std::unique_ptr<rocksdb::DB> db_;
    std::vector<rocksdb::ColumnFamilyHandle*> families_;
  };

  // `directory`: the one that is followed. `scratch`: a directory of this reader alone, into which
  // RocksDB writes its LOGs; it is made. `families`: which ones to open; empty: the default one.
  // Options need the writer's comparator and merge operator; max_open_files becomes -1, so that no
  // file is opened late. An error is that of DB::OpenAsSecondary, also for an empty directory.
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

  // Brings the view up to what the directory shows. After an error the view is the one before.
  rocksdb::Status CatchUp() {
    const std::lock_guard lock(catching_up_);
    if (ManifestNow() != manifest_) return OpenAnew();
    const rocksdb::Status status = view_->db()->TryCatchUpWithPrimary();
    // It may have grown during the call.
    return status.ok() && ManifestNow() == manifest_ ? status : OpenAnew();
  }

  // Catches up until the view has everything up to `sequence`, a number that the writer took from
  // DB::GetLatestSequenceNumber after its write returned. TimedOut: it does not have it yet;
  // ask the primary instead. Another error: the last one of CatchUp.
  rocksdb::Status WaitFor(rocksdb::SequenceNumber sequence, std::chrono::milliseconds timeout) {
    const auto until = std::chrono::steady_clock::now() + timeout;
    while (true) {
      const rocksdb::Status status = CatchUp();
      if (status.ok() && view()->db()->GetLatestSequenceNumber() >= sequence) return status;
      if (std::chrono::steady_clock::now() >= until)
        return status.ok() ? rocksdb::Status::TimedOut() : status;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

 private:
  // Which MANIFEST, and how long it is.
  struct Manifest {
    std::string current;
    uint64_t size = 0;
    bool operator==(const Manifest& other) const {
      return current == other.current && size == other.size;
    }
    bool operator!=(const Manifest& other) const { return !(*this == other); }
  };

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

  Manifest ManifestNow() const {
    Manifest manifest;
    rocksdb::Env* const env = options_.env;
    rocksdb::Status status =
        rocksdb::ReadFileToString(env, directory_ + "/CURRENT", &manifest.current);
    while (!manifest.current.empty() && manifest.current.back() == '\n')
      manifest.current.pop_back();
    if (status.ok()) status = env->GetFileSize(directory_ + "/" + manifest.current, &manifest.size);
    return status.ok() ? manifest : Manifest();
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

  // The MANIFEST is noted before it is read, so that a handle is at most newer than the note.
  rocksdb::Status OpenAnew() {
    const Manifest manifest = ManifestNow();
    // Two handles live at a time, and each has a LOG.
    const std::string logs = scratch_ + "/" + std::to_string(opened_++ % 2);
    for (const std::string& made : {scratch_, logs}) {
      const rocksdb::Status status = options_.env->CreateDirIfMissing(made);
      if (!status.ok()) return status;
    }
    DropOldLogs(logs);
    std::shared_ptr<View> view(new View());
    rocksdb::DB* db = nullptr;
    const rocksdb::Status status =
        rocksdb::DB::OpenAsSecondary(options_, directory_, logs, families_, &view->families_, &db);
    view->db_.reset(db);
    if (!status.ok()) return status;
    manifest_ = manifest;
    const std::lock_guard lock(publishing_);
    view_ = std::move(view);
    return status;
  }

  rocksdb::DBOptions options_;
  const std::string directory_, scratch_;
  std::vector<rocksdb::ColumnFamilyDescriptor> families_;
  std::mutex catching_up_;  // guards manifest_ and opened_
  Manifest manifest_;
  uint64_t opened_ = 0;
  mutable std::mutex publishing_;  // guards view_, which only a holder of catching_up_ changes
  std::shared_ptr<const View> view_;
};

}  // namespace hyperloop
