// Reads one node of a group from outside, for the commands status, dump, export and verify. No call
// here writes to the node, takes an epoch or needs the node's process to run.
//
// A running or stopped replica is read by RDMA READ through the service that it published at its
// device. A node whose process is gone is read from a private mapping of its pool file.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hyperloop/core/group.h"
#include "hyperloop/core/rnic.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/directive.h"
#include "hyperloop/replication/store.h"

namespace hyperloop {

// What a node says about itself. A uuid is text, and empty if there is none.
struct NodeStatus {
  std::string node;
  std::string group;            // empty: the node was never taken
  uint64_t sealed_epoch = 0;    // the node serves this epoch and no older one
  std::string owner;            // digest of the id of the sealed epoch's owner
  std::string owner_name;       // for people: process, host, directory
  bool released = false;        // that owner has closed in order
  bool awaits_opening = false;  // it only made the database ready, for a program that is to open it
  uint64_t heartbeat = 0;       // moves while the owner lives; microseconds since 1970
  uint64_t installed_epoch = 0;  // the epoch whose log this node's log was made equal to; 0: never
  std::vector<std::string> replicas;  // control endpoints of the installed configuration
  std::vector<std::string> absent;    // those of the replicas that it leaves out
  // For people: since when, and why, each of those is left out; empty where it is not known.
  std::vector<std::string> absences;
  // The epoch with which its branch of the group's history began; 0: nobody was ever given up
  // without a majority.
  uint64_t branch_epoch = 0;
  std::string branch_owner;  // digest of the id of that epoch's owner, which makes it unique
  std::string media;         // "ram", "file", "pmem", …-emulated
  uint64_t region_size = 0;
  // Which whole files the replica found damaged and set aside, and where; empty: none.
  std::string file_damage;
  // Why the replica takes no whole files, and since when; empty: it takes them.
  std::string file_refusal;
  // How many of the owner's own whole files are damaged and wait to be mended, and the first of
  // them, as it said last; empty: none.
  std::string owner_damage;
  std::string datapath;  // of the queues that it serves; empty: it serves none
  Directive directive;   // what operators told the group's agents last, as far as it knows

  // The rest is empty until the region was formatted.
  bool formatted = false;
  std::string database;    // the database to which the group is bound
  std::string directory;   // its directory when it was bound
  uint64_t lock_word = 0;  // epoch of the owner as the group's members saw it
  uint64_t journal_size = 0;
  // Everything up to the head is executed. Positions count bytes of the log.
  uint64_t head_seq = 0, head_position = 0;
  uint64_t last_seq = 0, last_epoch = 0, tail_position = 0;
  uint64_t acked_seq = 0;  // greatest seq that some record names as acknowledged
  uint64_t table_capacity = 0, extents = 0, extents_used = 0;
  // The ranges of the region that hold anything, as of last_seq. In these, all members that are at
  // rest and have the same log are equal.
  std::vector<Range> in_use;
  std::vector<FileInfo> files;  // as of last_seq, by name
  // How the log or the table is damaged; empty: it is not. If it is, files is empty.
  std::string log_error;
  // One sentence for each extent whose bytes fail their checksum. Set by NodeView::Check only.
  std::vector<std::string> damage;
  // The configuration with which the log's newest epoch began: the nodes that must agree.
  struct Recorded {
    uint64_t epoch = 0;  // 0: none yet
    std::string owner;
    std::vector<std::string> nodes;     // uuids of the replicas, in the order of the chain
    std::vector<std::string> replicas;  // their control endpoints
    std::vector<std::string> absent;    // those of the replicas that are left out
    uint64_t branch_epoch = 0;          // as NodeStatus's
    std::string branch_owner;
  };
  Recorded configuration;
};

// A private copy of a region.
class RegionImage {
 public:
  RegionImage(RegionImage&& other) noexcept;
  RegionImage& operator=(RegionImage&& other) noexcept;
  RegionImage(const RegionImage&) = delete;
  ~RegionImage();
  // Zeroed memory; only pages that are touched take space.
  static Result<RegionImage> Allocate(uint64_t size);
  std::span<std::byte> bytes() const { return {data_, size_}; }

 private:
  RegionImage(std::byte* data, uint64_t size) : data_(data), size_(size) {}
  std::byte* data_ = nullptr;
  uint64_t size_ = 0;
};

// What the node's page says of its owner.
struct NodeMark {
  uint64_t sealed = 0, installed = 0;  // epochs
  uint64_t heartbeat = 0;
  // Up to this record everything is acknowledged, as the installed epoch's owner said with its last
  // heartbeat; 0: it does not say.
  uint64_t acked = 0;
};

// A view of one node. Each call reads anew. Not thread safe.
class NodeView {
 public:
  virtual ~NodeView() = default;
  // A replica attached to emulated host `host` of `device`'s daemon, running or stopped. `device`
  // outlives the view. kNotFound: no replica published itself there (never started, or gone).
  static Result<std::unique_ptr<NodeView>> Connect(rnic::Device& device, std::string_view host);
  // The pool of a node whose process is gone. kBusy: the process runs.
  static Result<std::unique_ptr<NodeView>> OpenPool(const std::string& path);

  virtual uint64_t region_size() const = 0;
  // Region bytes [offset, offset + out.size()). kInvalidArgument: beyond the region.
  virtual Status Read(uint64_t offset, std::span<std::byte> out) = 0;
  // The word that a living primary moves every 100 ms.
  virtual Result<uint64_t> Heartbeat() = 0;
  virtual Result<NodeMark> Mark() = 0;
  // Whether the heartbeat moved within `watch`. False at once if the owner closed in order. An
  // owner that waits for a silent replica moves it once a second only.
  virtual Result<bool> OwnerLives(
      std::chrono::milliseconds watch = std::chrono::milliseconds(1500)) = 0;

  // A copy from which ExportFiles makes a consistent prefix of the log, also while a primary
  // writes. The copy is repeated if the log was overwritten before it was read. kBusy: this
  // happened in each of many attempts.
  virtual Result<RegionImage> Snapshot() = 0;
  // What the node's page says, by one READ: everything in front of `formatted`.
  virtual Result<NodeStatus> ReadPage() = 0;
  virtual Result<NodeStatus> ReadStatus() = 0;
  // Like ReadStatus, but reads and checks every byte of the group's files at this node.
  virtual Result<NodeStatus> Check() = 0;
};

}  // namespace hyperloop
