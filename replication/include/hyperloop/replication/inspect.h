// Looking at one node of a group from outside: status, dump and export use nothing else. Nothing
// here writes to the node, takes an epoch or needs its process to run.
//
// A running or stopped replica is read by RDMA READ through the service that it published at its
// device. A node whose process is gone is read from its pool file, privately.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hyperloop/core/rnic.h"
#include "hyperloop/core/status.h"
#include "hyperloop/replication/store.h"

namespace hyperloop {

// uuids as text, "" for none.
struct NodeStatus {
  std::string node;
  std::string group;             // "" while the node was never taken
  uint64_t sealed_epoch = 0;     // the node serves this epoch and no older one
  std::string owner;             // of the sealed epoch: the digest of its id
  std::string owner_name;        // for people: process, host, directory
  bool released = false;         // that owner closed in order
  uint64_t heartbeat = 0;        // moves while the owner lives
  uint64_t installed_epoch = 0;  // the epoch whose log this node's log was made equal to; 0: never
  std::vector<std::string> replicas;  // control endpoints of the installed configuration
  std::string media;                  // "ram", "file", "pmem", …-emulated
  uint64_t region_size = 0;

  // The rest is empty until the region was formatted.
  bool formatted = false;
  std::string database;    // what the group is bound to
  std::string directory;   // where that was when it was bound
  uint64_t lock_word = 0;  // epoch of the owner as the group's members saw it
  uint64_t journal_size = 0;
  uint64_t head_seq = 0,
           head_position = 0;  // everything up to here is executed; positions count bytes of log
  uint64_t last_seq = 0, last_epoch = 0, tail_position = 0;
  uint64_t acked_seq = 0;  // greatest seq that some record names as acknowledged
  uint64_t table_capacity = 0, extents = 0, extents_used = 0;
  std::vector<FileInfo> files;  // as of last_seq, by name
  std::string
      log_error;  // not empty: the log or the table is damaged, and how; files is empty then
  // Extents whose bytes fail their checksum, a sentence each. Only of NodeView::Check.
  std::vector<std::string> damage;
  // What the log itself says of who must agree: the configuration that its newest epoch began with.
  struct Recorded {
    uint64_t epoch = 0;  // 0: none yet
    std::string owner;
    std::vector<std::string> nodes;     // uuids of the replicas, in the order of the chain
    std::vector<std::string> replicas;  // their control endpoints
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
  // Zeroed memory that costs only what is touched.
  static Result<RegionImage> Allocate(uint64_t size);
  std::span<std::byte> bytes() const { return {data_, size_}; }

 private:
  RegionImage(std::byte* data, uint64_t size) : data_(data), size_(size) {}
  std::byte* data_ = nullptr;
  uint64_t size_ = 0;
};

// One node, looked at. Calls read anew each time. Not thread safe.
class NodeView {
 public:
  virtual ~NodeView() = default;
  // A replica attached to emulated host `host` of `device`'s daemon, running or stopped. `device`
  // outlives the view. kNotFound: no replica published itself there (never started, or gone).
  static Result<std::unique_ptr<NodeView>> Connect(rnic::Device& device, std::string_view host);
  // The pool of a node whose process is gone. kBusy: it is not gone.
  static Result<std::unique_ptr<NodeView>> OpenPool(const std::string& path);

  virtual uint64_t region_size() const = 0;
  // Region bytes [offset, offset + out.size()). kInvalidArgument: beyond the region.
  virtual Status Read(uint64_t offset, std::span<std::byte> out) = 0;
  // The word that a living primary moves every 100 ms.
  virtual Result<uint64_t> Heartbeat() = 0;
  // Whether it moved within `watch`, or at once false when the owner closed in order.
  virtual Result<bool> OwnerLives(
      std::chrono::milliseconds watch = std::chrono::milliseconds(500)) = 0;

  // A copy that ExportFiles turns into a consistent prefix of the log, also while a primary writes:
  // read again until the log's head stood still meanwhile. kBusy: it did not, many times over.
  virtual Result<RegionImage> Snapshot() = 0;
  virtual Result<NodeStatus> ReadStatus() = 0;
  // The same, with every byte that the group's files have here read and checked.
  virtual Result<NodeStatus> Check() = 0;
};

}  // namespace hyperloop
