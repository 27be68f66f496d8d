// Node: a replica's promises, and the owner that it serves. It is a state machine over control
// messages, without sockets, threads, clocks or devices, so that tests can run it alone.
//
// Two durable numbers decide. The sealed epoch is the one that was promised last, with its owner;
// it only grows. The installed epoch is the one to whose log this node's log was made equal last.
// It counts as unserved until its owner has connected this node. If that owner, or the next one,
// gives up before, the epoch that was served last is installed again, or the last one since then
// that was installed as lasting. A restart forgets which one that was; what is installed then
// counts as served.
//
// A Seal names the state that its sender saw, and is granted in no other state. It raises the
// sealed epoch by at most kMaxEpochStep, so that no request can use up the epochs that a group will
// ever need. Only the digest of an owner's id is kept. Every request except Hello, Examine, Seal,
// Propose, TryWay and Direct must come from the sealed owner. A refused request changes nothing.
//
// What operators tell the group's agents is kept here, too, durably, and changes nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "control/messages.h"
#include "hyperloop/core/group.h"
#include "hyperloop/core/log.h"
#include "hyperloop/core/rnic.h"
#include "replica/node_state_store.h"

namespace hyperloop {

// The node's RDMA side: the queues and keys of the epoch in service.
class NodeService {
 public:
  virtual ~NodeService() = default;
  // "ready", or why nothing can be served now.
  virtual std::string state() const = 0;
  // Destroys every queue and key that an owner was given. When it has returned, the RNIC uses none
  // of them, so no more bytes arrive from a former owner.
  virtual void End() = 0;
  // Makes every byte durable that has arrived in the region. Must be called after End: no READ can
  // flush the bytes of former owners' queues any more. kUnavailable: the medium failed.
  virtual Status PersistRegion() = 0;
  struct Access {
    rnic::QpAddress queue;
    uint64_t region_addr = 0;
    uint32_t region_rkey = 0;
    uint64_t heartbeat_addr = 0;
    uint32_t heartbeat_rkey = 0;
    uint64_t rnic = 0;  // rnic::Device::rnic
  };
  // Connects a queue pair to `peer`, with access to the region and the heartbeat word.
  virtual Result<Access> Attach(const rnic::QpAddress& peer) = 0;
  virtual Result<MemberInfo> Prepare(const MemberOptions& options) = 0;
  virtual Status Connect(const PrimaryInfo& primary, std::span<const MemberInfo> chain) = 0;
  // Whether the RNIC can connect a queue pair to this service of a host; empty: to the one that
  // each replica offers. Does not wait: kBusy means that a try is under way, and the outcome is
  // that of a later call.
  virtual Status TryWay(const std::string& host, const std::string& service) = 0;
};

class Node {
 public:
  struct Identity {
    std::string host;
    std::string media;
    uint16_t bulk_port = 0;
  };
  // Loads the state, or gives a fresh node its id. `region`, `store`, `service` and `log`, which
  // may be null, outlive the node. kCorruption: the page is damaged, or the region is not the one
  // that the page says was installed.
  static Result<std::unique_ptr<Node>> Create(Identity identity, std::span<const std::byte> region,
                                              NodeStateStore& store, NodeService& service,
                                              Log* log);

  // Carries out a request, and returns the reply's body, or an Error.
  control::BodyUnion Handle(const control::BodyUnion& request);

  const NodeState& state() const { return state_; }
  // Whether a primary has begun to write the region, and has neither installed an epoch nor given
  // up since. What the region holds says nothing then. A restart forgets it, unless no epoch was
  // ever installed.
  bool filling() const {
    return being_filled_ || (state_.sealed_epoch != 0 && state_.installed.epoch == 0);
  }

 private:
  Node(Identity identity, std::span<const std::byte> region, NodeStateStore& store,
       NodeService& service, Log* log)
      : identity_(std::move(identity)),
        region_(region),
        store_(store),
        service_(service),
        log_(log) {}

  control::HelloReplyT Hello(const control::HelloRequestT& request) const;
  Result<control::ExamineReplyT> Examine() const;
  Status CheckSeal(const control::SealRequestT& request, const Uuid& group) const;
  Result<control::SealReplyT> Seal(const control::SealRequestT& request);
  Result<control::AttachReplyT> Attach(const control::AttachRequestT& request);
  Result<control::ChecksumsReplyT> Checksums(const control::ChecksumsRequestT& request) const;
  Result<control::DoneT> Install(const control::InstallRequestT& request);
  Result<control::PrepareMemberReplyT> Prepare(const control::PrepareMemberRequestT& request);
  Result<control::DoneT> Connect(const control::ConnectMemberRequestT& request);
  Result<control::DoneT> Reconnect(const control::ReconnectRequestT& request);
  Result<control::DoneT> Release(const control::ReleaseRequestT& request);
  Result<control::DoneT> Propose(const control::ProposeRequestT& request);
  Result<control::DoneT> TryWay(const control::TryWayRequestT& request);
  Result<control::DirectReplyT> Direct(const control::DirectRequestT& request);

  // Describes the region's content. Sets `settled`, unless it is null, to false if the log moved
  // meanwhile.
  std::unique_ptr<control::ContentT> Content(bool* settled) const;
  // kFenced: these are not the sealed epoch and owner. Otherwise notes that the owner lives.
  Status CheckOwner(uint64_t epoch, std::span<const uint8_t> owner) const;
  Status CheckInstalled(uint64_t epoch) const;
  // Whether the owner of the installed configuration has not connected this node yet. An owner
  // writes its first record when it has connected all its members. So if one of them is promised to
  // another primary before that, it never serves.
  bool Unserved() const { return replaced_.has_value() && !connected_; }
  // The last configuration under which anything may have been acknowledged here.
  const Configuration& Served() const { return Unserved() ? *replaced_ : state_.installed; }
  void ForgetReplaced() {
    replaced_.reset();
    kept_.reset();
  }
  // Checks by the superblock that the region belongs to the group and has the pool's size.
  Status CheckRegion() const;
  std::string SealedText() const;
  // Ends the service of the former owner. The bytes that its queues brought are durable on return.
  // So what this node reports about its log, and its equality with other members, stays true after
  // a power failure.
  Status EndService();
  Status Save(NodeState next);
  void Say(LogLevel level, const std::string& text) const;

  const Identity identity_;
  const std::span<const std::byte> region_;
  NodeStateStore& store_;
  NodeService& service_;
  Log* const log_;
  NodeState state_;
  // The configuration that was served last, once another one is installed, and whether that one's
  // owner has connected this node. A restart forgets this; what is installed then counts as served.
  std::optional<Configuration> replaced_;
  bool connected_ = false;
  bool being_filled_ = false;  // as filling()
  // What is installed again if the owner never serves: `replaced_`, or a lasting one that was
  // installed since.
  std::optional<Configuration> kept_;
  // The endpoint of a replica that somebody wants to have in the group, or out of it; empty: none.
  // A restart forgets it; it is asked for until it is there, or is gone.
  std::string proposed_;
  bool proposed_leaves_ = false;
  uint64_t proposal_epoch_ = 0;             // as the request's
  std::vector<uint8_t> proposal_vouchers_;  // as the request's
  uint64_t proposals_ = 0;                  // so many were made
  std::string failed_way_, failed_way_to_;  // as HelloReply's
};

}  // namespace hyperloop
