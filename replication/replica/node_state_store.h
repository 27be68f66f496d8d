// Stores a node's promises in the node-local page of its pool.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "hyperloop/core/status.h"
#include "region/media.h"
#include "region/region_layout.h"

namespace hyperloop {

class NodeStateStore {
 public:
  virtual ~NodeStateStore() = default;
  // kNotFound: never saved. kCorruption: the node's promises are lost.
  virtual Result<NodeState> Load() const = 0;
  // The state is durable on return. On failure the former state stays valid.
  virtual Status Save(NodeState* state) = 0;
  // The sealed owner's name. It is for messages only, and no checksum covers it. Setting it takes
  // away what the former owner said of acknowledged records.
  virtual std::string owner_name() const = 0;
  virtual void SetOwnerName(std::string_view name) = 0;
  // Why the absent replicas are absent (region/absences.h), in the same way.
  virtual std::string absences() const = 0;
  virtual void SetAbsences(std::string_view text) = 0;
  // The datapath that is served; empty: none. It is for people, and need not be durable.
  virtual void SetDatapath(std::string_view name) = 0;
  // The word that a living primary moves.
  virtual uint64_t heartbeat() const = 0;
  // Moves the heartbeat word for an owner that has shown by a request that it lives.
  virtual void Beat() = 0;
};

class NodePageStore final : public NodeStateStore {
 public:
  // `page` and `media` outlive the store.
  NodePageStore(std::span<std::byte> page, MediaWriter& media) : page_(page), media_(media) {}
  Result<NodeState> Load() const override { return ReadNodeState(page_); }
  Status Save(NodeState* state) override;
  std::string owner_name() const override { return ReadOwnerName(page_); }
  void SetOwnerName(std::string_view name) override;
  std::string absences() const override { return ReadAbsences(page_); }
  void SetAbsences(std::string_view text) override;
  void SetDatapath(std::string_view name) override { WriteDatapath(page_, name); }
  uint64_t heartbeat() const override;
  void Beat() override;

 private:
  std::atomic_ref<uint64_t> heartbeat_word() const;

  const std::span<std::byte> page_;
  MediaWriter& media_;
};

}  // namespace hyperloop
