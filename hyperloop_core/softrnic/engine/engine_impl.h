// Engine::Impl: the state of an engine and what its parts offer each other.
//
// Cost of a WQE on the fast path (Schedule::kRunToStall, no deferred delivery): one 16 B header
// load and compare against the expected index and queue number, one switch, one table load per
// local key, one hash probe per remote key, one copy from source to destination, at most one CQE
// store. No allocation, no virtual call, no system call.
#pragma once

#include <algorithm>
#include <bit>
#include <csignal>
#include <cstring>
#include <deque>
#include <new>
#include <random>
#include <utility>

#include "softrnic/engine/bytes.h"
#include "softrnic/engine/clients.h"
#include "softrnic/engine/clock.h"
#include "softrnic/engine/completion_queues.h"
#include "softrnic/engine/dice.h"
#include "softrnic/engine/durability.h"
#include "softrnic/engine/error_state.h"
#include "softrnic/engine/flusher.h"
#include "softrnic/engine/key_table.h"
#include "softrnic/engine/link_work.h"
#include "softrnic/engine/look_list.h"
#include "softrnic/engine/objects.h"
#include "softrnic/engine/qp_table.h"
#include "softrnic/engine/ready_list.h"
#include "softrnic/engine/responder.h"
#include "softrnic/engine/retries.h"
#include "softrnic/engine/segments.h"
#include "softrnic/engine/snapshots.h"
#include "softrnic/engine/tables.h"
#include "softrnic/engine/transit.h"
#include "softrnic/engine/truncated_files.h"
#include "softrnic/engine/turn.h"
#include "softrnic/engine/wqe_view.h"

namespace hyperloop::softrnic {

inline constexpr uint64_t kPacketBytes = 64 << 10;

struct Engine::Impl {
  explicit Impl(EngineOptions o);

  // --- control.cc: control path
  bool CloseContextPart(ContextId id, size_t objects);
  Result<IdReply> RegisterUmem(Context& c, const RegisterUmemArgs& args, UmemMapping mapping);
  Status Execute(Context& c, const Command& command, Reply* reply, std::string* text);
  Status FreeUmem(Context& c, uint32_t id);
  Status FreePd(Context& c, uint32_t id);
  Status CreateMkey(Context& c, const CreateMkeyArgs& args, CreateMkeyReply* reply);
  Status DestroyMkey(Context& c, uint32_t lkey);
  void Release(MemoryKey& key);
  void Erase(Cq& cq);
  void Erase(Context& c, const Umem& umem);
  Status CreateCq(Context& c, const CreateCqArgs& args, std::function<void()> notify,
                  CreateCqReply* reply);
  Status DestroyCq(Context& c, uint32_t cqn);
  // --- queue_pairs.cc: life of a queue pair
  Status CreateQp(Context& c, const CreateQpArgs& args, CreateQpReply* reply);
  Status ModifyQp(Context& c, const ModifyQpArgs& args);
  Status DestroyQp(Context& c, uint32_t qpn);
  Status Publish(Context& c, const PublishArgs& args);
  Status ConnectService(Context& c, const ConnectServiceArgs& args, ConnectServiceReply* reply);
  Result<Qp*> MakeResponder(Service& service, Host& host, const GidBytes& gid, uint32_t qpn,
                            const Account* asker);
  void Destroy(Qp& qp);
  static void Enlist(Qp& qp, Context& c);
  static void Delist(const Qp& qp);
  void StartCounters(Qp& qp) const;
  void ResetQueues(Qp& qp);
  // --- counters.cc
  std::function<std::string()> Counters(const Context& c) const;

  // --- requester.cc
  enum class Next { kMore, kStop };
  size_t RunQueue(Qp& qp, size_t budget);
  Next ExecuteOne(Qp& qp);
  bool Decode(Qp& qp, const std::byte* base, Wqe* wqe);
  Outcome RunRequest(Qp& qp, const Wqe& wqe, uint32_t* bytes);
  template <Request::Kind kKind>
  Outcome RunRequestOf(Qp& qp, const Wqe& wqe, uint32_t* bytes);
  Next Resume(Qp& qp);
  Next ExecuteWait(Qp& qp, const Wqe& wqe);
  Outcome ExecuteEnable(Qp& qp, const Wqe& wqe);
  void Complete(Qp& qp, const Wqe& wqe, uint32_t bytes);
  // The completion may overrun its CQ, which puts the queue into error.
  Next CompleteAndGoOn(Qp& qp, const Wqe& wqe, uint32_t bytes) {
    Complete(qp, wqe, bytes);
    return qp.state == rnic::QpState::kReadyToSend ? Next::kMore : Next::kStop;
  }
  void Fail(Qp& qp, const Wqe& wqe, uint8_t syndrome);
  size_t FlushStep(Qp& qp);
  void Advance(Qp& qp, uint16_t index);
  bool CollectDoorbells();
  Next ExecuteDeferred(Qp& qp, const Wqe& wqe);
  Next StallForRetry(Qp& qp, const Wqe& wqe, Outcome why);

  // --- testing/schedule.cc
  bool SlowStep();
  void RereadReceiveCounters();
  bool StepOnce();
  void Retransmit(Qp& qp);

  // --- links.cc: sessions, events, timers of queue pairs with a remote peer
  Status AddPeer(const std::string& host, LinkId link);
  LinkId RouteTo(const GidBytes& gid) const;
  Status CheckRoute(const ModifyQpArgs& args) const;
  size_t PollLinks(size_t budget);
  void HandlePacket(LinkId from, std::span<const std::byte> bytes);
  void Dispatch(LinkId from, const Packet& packet);
  void HandleLinkUp(LinkId link);
  void HandleRoom(LinkId link);
  bool LinkTakes(Qp& qp);
  void HandleConnect(LinkId from, const Packet& p);
  void HandleSession(LinkId from, const Packet& p);
  void SendConnect(Qp& qp);
  void StartRemote(Qp& qp, LinkId link);
  // What a packet counts of a turn's bytes: small ones cost more than their bytes.
  static uint64_t TurnCost(size_t bytes) { return std::max<uint64_t>(bytes, 1024); }
  bool CheckTimers();
  bool TimerDue(Qp& qp, uint64_t now);

  // --- services.cc
  Status AskService(Context& c, Qp& client, LinkId link, const ConnectServiceArgs& a,
                    ConnectServiceReply* reply);
  void HandleServiceRequest(LinkId from, const Packet& p);
  void HandleServiceReply(LinkId from, const Packet& p);
  void HandleServiceRelease(const Packet& p);
  void ReleaseService(Qp& qp);

  // --- remote_requester.cc: the requester's half
  void Pump(Qp& qp);
  bool PackNext(Qp& qp, Inflight& entry);
  void HandleAnswer(LinkId from, const Packet& p);
  void TakeAnswers(Qp& qp, const Packet& p);
  void PopSent(Qp& qp);
  bool TakeRemoteAnswer(Qp& qp, Inflight& entry, const Packet& p);
  void FailEntry(Qp& qp, Inflight& entry, uint8_t syndrome);
  void FailSent(Qp& qp, uint8_t syndrome);
  void CompleteRemote(Qp& qp);

  // --- remote_responder.cc
  void HandleRequest(LinkId from, const Packet& p, HeldRequest* held = nullptr);
  void RunNext(LinkId from, Qp& qp, const Packet& p, bool again);
  void AcknowledgeLater(LinkId to, Qp& qp, uint32_t psn);
  void HandleDuplicate(LinkId from, Qp& qp, const Packet& p);
  Outcome RunPacket(Qp& qp, const Packet& p, bool again, std::vector<std::byte>* answer);
  Outcome RunSend(Qp& qp, const Packet& p, const Request& request);
  Outcome RunLong(Qp& qp, const Packet& p, const Request& request);
  void Answer(LinkId to, const Packet& request, PacketType type, uint8_t syndrome, uint32_t length);
  void Hold(LinkId from, Qp& qp, const Packet& p);
  size_t ServeHeld(size_t budget);
  bool ServeHeldOf(Qp& qp, size_t budget, size_t* done);
  void SendAcks();

  // --- long_transfers.cc
  Outcome StartParts(Qp& qp, Qp& peer, const Wqe& wqe, const Request& request);
  Next ContinueParts(Qp& qp);
  Outcome NextPart(Qp& qp, Part& part, bool* last);

  // --- state
  const EngineOptions options;
  Dice dice{options.seed, options.schedule == EngineOptions::Schedule::kRandom};
  const Clock clock{options.now_ns};
  Turn turn;
  ReadyList ready;
  KeyTable keys{dice};
  QpTable qps;
  LookList looks{kMaxQps};
  LinkWork link_work;
  ErrorState errors{link_work, looks, ready};
  CompletionQueues cqs{errors, ready};
  Durability durability{options, turn};
  Responder responder{options, keys, cqs, durability, errors, turn};
  Clients clients{options, errors, ready, dice};
  TruncatedFiles truncated_files{options, clients, keys};
  Retries retries{qps, looks, ready, clock};
  Snapshots snapshots{options, dice};
  Transit transit{keys, cqs, durability, errors, ready, qps, responder, retries, dice};
  bool slow = false;      // single steps chosen by SlowStep
  bool deferred = false;  // requests and answers travel: Inflight
  uint16_t overrun_blocks =
      0;  // how far a managed queue runs past its enabled index: 0 unless broken on purpose
  uint64_t header_mask = 0;  // bits of a WQE's first 8 bytes (host order) that are checked
  uint32_t all_umems = 0;
  // Links: of no use without a port.
  LinkPort* port = nullptr;
  std::map<uint64_t, LinkId> peers;  // by GID prefix
  uint64_t services_asked = 0;
  uint64_t timers_ns = 0;      // when CheckTimers looked last
  uint64_t turn_sent = 0;      // packets' bytes in this turn
  uint64_t turn_received = 0;  // and the bytes of answers to them
  uint32_t next_pd = 1;
  uint32_t next_umem = 1;
  alignas(64)
      std::array<std::byte, rnic::kMaxWqeBytes> wrapped;  // a WQE that goes around its ring's end
};

}  // namespace hyperloop::softrnic
