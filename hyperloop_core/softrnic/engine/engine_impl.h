// Engine::Impl: the state of an engine and what its parts offer each other.
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
#include "softrnic/engine/doorbells.h"
#include "softrnic/engine/durability.h"
#include "softrnic/engine/error_state.h"
#include "softrnic/engine/flusher.h"
#include "softrnic/engine/key_table.h"
#include "softrnic/engine/link_traffic.h"
#include "softrnic/engine/link_work.h"
#include "softrnic/engine/look_list.h"
#include "softrnic/engine/objects.h"
#include "softrnic/engine/qp_table.h"
#include "softrnic/engine/ready_list.h"
#include "softrnic/engine/remote_requester.h"
#include "softrnic/engine/remote_responder.h"
#include "softrnic/engine/requester.h"
#include "softrnic/engine/responder.h"
#include "softrnic/engine/retries.h"
#include "softrnic/engine/segments.h"
#include "softrnic/engine/snapshots.h"
#include "softrnic/engine/tables.h"
#include "softrnic/engine/testing/adversarial_schedule.h"
#include "softrnic/engine/transit.h"
#include "softrnic/engine/truncated_files.h"
#include "softrnic/engine/turn.h"
#include "softrnic/engine/wqe_view.h"

namespace hyperloop::softrnic {

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

  // --- links.cc: sessions, events, timers of queue pairs with a remote peer
  Status AddPeer(const std::string& host, LinkId link);
  LinkId RouteTo(const GidBytes& gid) const;
  Status CheckRoute(const ModifyQpArgs& args) const;
  size_t PollLinks(size_t budget);
  void HandlePacket(LinkId from, std::span<const std::byte> bytes);
  void Dispatch(LinkId from, const Packet& packet);
  void StartRemote(Qp& qp, LinkId link);

  // --- services.cc
  Status AskService(Context& c, Qp& client, LinkId link, const ConnectServiceArgs& a,
                    ConnectServiceReply* reply);
  void HandleServiceRequest(LinkId from, const Packet& p);
  void HandleServiceReply(LinkId from, const Packet& p);
  void HandleServiceRelease(const Packet& p);
  void ReleaseService(Qp& qp);

  // --- state
  const EngineOptions options;
  // Requests and answers travel: they wait in Transit.
  const bool deferred = options.defer_delivery;
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
  LinkTraffic traffic;
  RemoteRequester remote_requester{deferred,  keys,    durability, qps,  transit,
                                   link_work, traffic, clients,    clock};
  Requester requester{options, keys,      cqs,     durability, errors,  ready,           qps,
                      turn,    responder, retries, snapshots,  transit, remote_requester};
  RemoteResponder remote_responder{keys, qps, responder, link_work, traffic, clients, clock};
  Doorbells doorbells{clients, requester, turn};
  AdversarialSchedule schedule{options, doorbells, retries, qps,       ready,
                               keys,    snapshots, transit, requester, dice};
  bool slow = false;  // single steps of `schedule`
  uint32_t all_umems = 0;
  std::map<uint64_t, LinkId> peers;  // by GID prefix
  uint64_t services_asked = 0;
  uint32_t next_pd = 1;
  uint32_t next_umem = 1;
};

}  // namespace hyperloop::softrnic
