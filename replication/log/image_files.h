// ImageFiles: the files of a redone region image, for readers that have no LogLane.
#pragma once

#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "hyperloop/replication/store.h"
#include "log/file_table.h"

namespace hyperloop {

class ImageFiles final : public GroupFiles {
 public:
  using HeldBy = std::function<bool(const WholeFile& file)>;
  // `image` outlives this object and does not change. `held` answers GroupFiles::Held; null: no
  // file is held. `scarce` answers GroupFiles::Scarce; null: no file is.
  ImageFiles(std::span<const std::byte> image, const RegionInfo& info, FileTable table, HeldBy held,
             HeldBy scarce = nullptr)
      : image_(image),
        info_(info),
        table_(std::move(table)),
        held_(std::move(held)),
        scarce_(std::move(scarce)) {}

  std::string Group() const override { return FormatUuid(info_.group); }
  std::vector<FileInfo> Files() const override { return table_.List(); }
  Result<uint64_t> Read(FileId file, uint64_t offset, std::span<char> out) const override;
  bool Held(const WholeFile& file) const override { return held_ && held_(file); }
  bool Scarce(const WholeFile& file) const override { return scarce_ && scarce_(file); }
  GroupRoom Room() const override;

 private:
  const std::span<const std::byte> image_;
  const RegionInfo info_;
  const FileTable table_;
  const HeldBy held_, scarce_;
};

// A group that is about to be made.
class NoFiles final : public GroupFiles {
 public:
  explicit NoFiles(const RegionGeometry& geometry) : geometry_(geometry) {}
  std::string Group() const override { return {}; }
  std::vector<FileInfo> Files() const override { return {}; }
  Result<uint64_t> Read(FileId, uint64_t, std::span<char>) const override {
    return NotFound("the group holds no file");
  }
  bool Held(const WholeFile&) const override { return false; }
  GroupRoom Room() const override;

 private:
  const RegionGeometry geometry_;
};

}  // namespace hyperloop
