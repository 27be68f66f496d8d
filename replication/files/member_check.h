// What one member of a group holds, judged by that member's bytes alone: its log, what the log
// makes of the file table, and each extent's bytes against the checksum that the map keeps of them.
//
// Everybody who decides about a member decides by this: who takes a group, verify, export, status,
// and a replica that scrubs itself. Nothing here changes the image, and nothing that is used was
// not copied before it was checked: a primary may be writing, and the image may hold anything at
// all. (What is read while a primary writes may be of two moments; Scrubber tells that apart.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "files/file_table.h"
#include "hyperloop/core/status.h"
#include "journal/log_scan.h"
#include "layout/region_layout.h"

namespace hyperloop {

// An extent whose bytes, or whose entry in the map, are not what was executed.
struct ExtentDamage {
  uint32_t extent = 0;
  uint32_t index = 0;  // which of the file
  std::string file;

  // "extent 3 ("000004.log", bytes 1048576 to 2097151) fails its checksum"
  std::string Text(const RegionInfo& info, const FileTable& table) const;
};

struct MemberCheck {
  Status log_error;  // not ok: the log is damaged, or ends before known_acked; log and all below of
                     // it are empty then
  LogState log;
  uint64_t acked = 0;     // HighestAcked; also of a damaged log
  Status metadata_error;  // not ok: a block, table entry, size or map entry fails its check
  // As of the log's tail.
  FileTable table;
  Binding binding;
  Configuration configuration;
  std::vector<ExtentDamage> damaged;

  bool readable() const { return log_error.ok() && metadata_error.ok(); }
  bool sound() const { return readable() && damaged.empty(); }
  // What is wrong, a sentence each.
  std::vector<std::string> Damage(const RegionInfo& info) const;
};

enum class CheckDepth {
  kMetadata,  // everything but what the extents hold; they may be missing from the image
  kExtents,
};

// `image`: a whole region of this `info`, redone or not. known_acked: see ScanLog. Needs memory for
// a copy of the log between head and tail and of the metadata.
MemberCheck CheckMember(std::span<const std::byte> image, const RegionInfo& info,
                        uint64_t known_acked = 0, CheckDepth depth = CheckDepth::kExtents);

// The extents of `table` in a redone image.
std::vector<ExtentDamage> VerifyExtents(std::span<const std::byte> image, const RegionInfo& info,
                                        const FileTable& table);

// Reads region bytes of another member; an error: that member is passed over.
using MemberFetch = std::function<Status(size_t member, uint64_t offset, std::span<std::byte> out)>;
struct MendedExtent {
  ExtentDamage damage;
  size_t member = 0;  // who had it sound
};

// Mends `region`, redone but with its head and ring as they were: each damaged extent gets the
// bytes, and if need be the map entry, of the first of `members` other members whose copy is right,
// once the records of the region's log are applied to it. The members must have executed everything
// up to the region's head, as all have that installed the same epoch. kCorruption: nobody has an
// extent, which is named; those before it are mended.
Result<std::vector<MendedExtent>> MendExtents(std::span<std::byte> region, const RegionInfo& info,
                                              const FileTable& table,
                                              std::span<const ExtentDamage> damaged, size_t members,
                                              const MemberFetch& fetch);

// A member's own check in small steps, for a replica with nothing else to do. The image may change
// meanwhile.
class Scrubber {
 public:
  // `image` outlives it.
  Scrubber(std::span<const std::byte> image, const RegionInfo& info);
  ~Scrubber();
  Scrubber(Scrubber&&) noexcept;
  Scrubber& operator=(Scrubber&&) noexcept;

  // Checks about `budget` bytes more; the first step reads the log and the metadata whatever they
  // are. True: done.
  bool Step(uint64_t budget);
  // Once done. None: the log moved meanwhile, so that what was read proves nothing; begin again.
  const std::optional<MemberCheck>& result() const { return result_; }

 private:
  friend MemberCheck CheckMember(std::span<const std::byte>, const RegionInfo&, uint64_t,
                                 CheckDepth);
  class Work;
  void Finish();

  std::span<const std::byte> image_;
  RegionInfo info_;
  std::unique_ptr<Work> work_;
  bool done_ = false;
  std::optional<MemberCheck> result_;
};

}  // namespace hyperloop
