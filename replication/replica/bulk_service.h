// BulkService: a replica's side of the bulk lane. It lists and reads the whole files of the node's
// group for every primary, and takes and drops files for the installed epoch's owner.
//
// The files of a group lie in a directory of their own, so that another group's never meet them.
// Answers are those of FileStore; kFenced: the asker is not the owner of the installed epoch.
//
// Publish may be called by another thread than Handle, which one thread calls.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "control/messages.h"
#include "layout/region_layout.h"
#include "pool/file_store.h"

namespace hyperloop {

class BulkService {
 public:
  // `root`: the directory of all groups' files. It exists.
  explicit BulkService(std::string root) : root_(std::move(root)) {}

  // What the node promises from now on. After it returned, no file is dropped for a former owner.
  void Publish(const NodeState& state);
  control::BodyUnion Handle(const control::BodyUnion& request);

 private:
  Result<control::ListFilesReplyT> List();
  Result<control::PutFileReplyT> Put(const control::PutFileRequestT& request);
  Result<control::GetFileReplyT> Get(const control::GetFileRequestT& request);
  Result<control::DoneT> Drop(const control::DropFileRequestT& request);
  // With mutex_ held.
  Status CheckOwnerLocked(uint64_t epoch, const std::vector<uint8_t>& owner) const;
  Result<FileStore*> StoreOf(const Uuid& group);
  Result<FileStore*> PresentStore();

  const std::string root_;
  std::unique_ptr<FileStore> store_;  // of the group asked for last; Handle's thread alone

  std::mutex mutex_;  // guards what follows
  Uuid group_{};
  Uuid owner_{};  // digest of its id
  uint64_t epoch_ = 0;
};

}  // namespace hyperloop
