// Checks one member of a group by that member's bytes alone: its log, the file table that results
// from the log, and each extent's bytes against their checksum in the extent map.
//
// Everybody who decides about a member uses this check: a primary that takes the group, verify,
// export, status, and a replica that scrubs itself. The check never changes the image. It copies
// bytes before it checks and uses them, because a primary may be writing and the image may hold
// anything. Bytes that are read while a primary writes may be of different moments; Scrubber
// notices that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hyperloop/core/status.h"
#include "log/file_table.h"
#include "log/log_scan.h"
#include "region/region_layout.h"

namespace hyperloop {

// An extent whose bytes, or whose map entry, are not what was executed.
struct ExtentDamage {
  uint32_t extent = 0;
  uint32_t index = 0;  // which extent of the file
  std::string file;    // its name

  // "extent 3 ("000004.log", bytes 1048576 to 2097151) fails its checksum"
  std::string Text(const RegionInfo& info, const FileTable& table) const;
};

struct MemberCheck {
  // Not ok: the log is damaged, or ends before known_acked. Then the fields below are empty, except
  // `acked`.
  Status log_error;
  LogState log;
  uint64_t acked = 0;     // HighestAcked, valid for a damaged log too
  Status metadata_error;  // not ok: a block, table entry, size or map entry fails its check
  // The rest is as of the log's tail.
  FileTable table;
  Binding binding;
  Configuration configuration;
  std::vector<ExtentDamage> damaged;

  bool readable() const { return log_error.ok() && metadata_error.ok(); }
  bool sound() const { return readable() && damaged.empty(); }
  // Describes each damage in one sentence.
  std::vector<std::string> Damage(const RegionInfo& info) const;
};

enum class CheckDepth {
  kMetadata,  // everything except the extents' bytes, which may be missing from the image
  kExtents,
};

// `image`: a whole region of this `info`, redone or not. `known_acked`: see ScanLog. Allocates a
// copy of the metadata, and of the log between head and tail.
MemberCheck CheckMember(std::span<const std::byte> image, const RegionInfo& info,
                        uint64_t known_acked = 0, CheckDepth depth = CheckDepth::kExtents);

// Returns the damaged extents of a redone image, whose table is `table`.
std::vector<ExtentDamage> VerifyExtents(std::span<const std::byte> image, const RegionInfo& info,
                                        const FileTable& table);

// Reads region bytes of another member. After an error the next member is tried.
using MemberFetch = std::function<Status(size_t member, uint64_t offset, std::span<std::byte> out)>;
// The other members, in the order in which they are asked.
struct MendSources {
  size_t members = 0;
  // So many of them, the first ones, installed the same epoch as the region, and have executed
  // everything up to its head. What the others hold may be older.
  size_t equal = 0;
  MemberFetch fetch;
};
struct MendedExtent {
  ExtentDamage damage;
  size_t member = 0;  // the member that had it sound
};

// Mends `region`, which was redone but has its old head and ring. For each damaged extent the
// copies of the other members are tried in order: the records of the region's log are applied to a
// copy, and the first copy that is then right gives the bytes. An equal member may also
// prove by its own map entry that its bytes are right; then it gives the entry, too. kCorruption:
// no member has an extent sound, and the message names it; the extents before it are mended.
Result<std::vector<MendedExtent>> MendExtents(std::span<std::byte> region, const RegionInfo& info,
                                              const FileTable& table,
                                              std::span<const ExtentDamage> damaged,
                                              const MendSources& sources);

// A member's own check in small steps, for an idle replica. The image may change meanwhile.
class Scrubber {
 public:
  // `image` outlives it.
  Scrubber(std::span<const std::byte> image, const RegionInfo& info);
  ~Scrubber();
  Scrubber(Scrubber&&) noexcept;
  Scrubber& operator=(Scrubber&&) noexcept;

  // Checks about `budget` more bytes. The first step reads the whole log and the metadata, however
  // large they are. True: done.
  bool Step(uint64_t budget);
  // The result, once done. Nothing: the log moved meanwhile, so the check proves nothing and must
  // be made again.
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
