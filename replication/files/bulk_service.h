// BulkService: a replica's side of the bulk lane. It lists and reads the whole files of the node's
// group for every primary, and takes and drops files for the installed epoch's owner.
//
// Each group has a directory of its own, so that the files of groups do not mix. Answers are those
// of FileStore, or kFenced: the asker is not the owner of the installed epoch.
//
// One thread calls Handle and Scrub; any thread may call Publish.
#pragma once

#include <memory>
#include <string>

#include "control/messages.h"
#include "files/file_scrub.h"
#include "files/file_store.h"
#include "hyperloop/core/log.h"
#include "hyperloop/core/mutex.h"
#include "region/region_layout.h"

namespace hyperloop {

class BulkService {
 public:
  // `root`: the directory of all groups' files. It must exist. `log` outlives the service, and may
  // be null.
  explicit BulkService(std::string root, Log* log = nullptr)
      : root_(std::move(root)), log_(log), scrub_(log) {}

  // Tells what the node promises from now on. After it has returned, no file is dropped for a
  // former owner.
  void Publish(const NodeState& state);
  // The answer to `request`. kInvalidArgument: it is not a request of the bulk lane.
  control::BodyUnion Handle(const control::BodyUnion& request);
  // Goes on with the check of the group's files, as FileScrub::Tick. Returns what was set aside.
  const std::string& Scrub();
  // Since when, and why, no file could be written, for people; empty: the last one could.
  const std::string& refusal() const { return refusal_; }

 private:
  Result<control::ListFilesReplyT> List();
  Result<control::PutFileReplyT> Put(const control::PutFileRequestT& request);
  Result<control::GetFileReplyT> Get(const control::GetFileRequestT& request);
  Result<control::DoneT> Drop(const control::DropFileRequestT& request);
  Status CheckOwnerLocked(uint64_t epoch, const std::vector<uint8_t>& owner) const
      HL_REQUIRES(mutex_);
  // Sets refusal_. `written`: what became of a request to write.
  void NoteWritten(const Status& written);
  Result<FileStore*> StoreOf(const Uuid& group);
  Result<FileStore*> PresentStore();

  const std::string root_;
  Log* const log_;
  // Only Handle's thread uses these.
  std::unique_ptr<FileStore> store_;  // of the group used last
  FileScrub scrub_;
  std::string refusal_;

  Mutex mutex_;
  Uuid group_ HL_GUARDED_BY(mutex_){};
  Uuid owner_ HL_GUARDED_BY(mutex_){};  // the digest of the owner's id
  // The installed epoch, if its owner was the last to seal; otherwise 0.
  uint64_t epoch_ HL_GUARDED_BY(mutex_) = 0;
};

}  // namespace hyperloop
