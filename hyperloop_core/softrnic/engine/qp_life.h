// QpLife creates, connects, resets and destroys queue pairs, and moves them between their states.
// Every field of the arguments comes from a client and is checked.
//
// May call: QpTable, CompletionQueues (Find), Waiters, ReadyList, LookList, LinkWork, ErrorState,
// Durability, Routes, ServiceAsks, rings.h, and the DurabilityWatch of EngineTestHooks.
#pragma once

#include <map>
#include <utility>

#include "softrnic/engine/completion_queues.h"
#include "softrnic/engine/durability.h"
#include "softrnic/engine/error_state.h"
#include "softrnic/engine/link_work.h"
#include "softrnic/engine/look_list.h"
#include "softrnic/engine/objects.h"
#include "softrnic/engine/qp_table.h"
#include "softrnic/engine/ready_list.h"
#include "softrnic/engine/routes.h"
#include "softrnic/engine/service_asks.h"

namespace hyperloop::softrnic {

class QpLife {
 public:
  QpLife(const EngineOptions& options, QpTable& qps, CompletionQueues& cqs, ReadyList& ready,
         LookList& looks, LinkWork& link_work, ErrorState& errors, Durability& durability,
         const Routes& routes, ServiceAsks& asks)
      : options_(options),
        qps_(qps),
        cqs_(cqs),
        ready_(ready),
        looks_(looks),
        link_work_(link_work),
        errors_(errors),
        durability_(durability),
        routes_(routes),
        asks_(asks) {}

  Status CreateQp(Context& c, const CreateQpArgs& args, CreateQpReply* reply);
  Status ModifyQp(Context& c, const ModifyQpArgs& args);
  Status DestroyQp(Context& c, uint32_t qpn);
  // Makes a queue pair in the publisher's protection domain that only answers READs of the queue
  // pair `client_qpn` at `gid`. `asker`: the client that has that queue pair; null: it is in
  // another engine.
  Result<Qp*> MakeResponder(Service& service, Host& host, const GidBytes& gid, uint32_t client_qpn,
                            const Account* asker);
  // The queue pair that MakeResponder made for that one in another engine. Null: there is none.
  Qp* ResponderFor(const GidBytes& gid, uint32_t client_qpn) const;
  // Needs no memory.
  void Destroy(Qp& qp);
  // Prepares `qp` for a peer in another engine, which `link` leads to.
  static void StartRemote(Qp& qp, LinkId link);

 private:
  // The objects and the memory that the arguments of CreateQp name.
  struct Parts {
    Pd* pd = nullptr;
    Umem* umem = nullptr;
    Cq* send_cq = nullptr;
    Cq* recv_cq = nullptr;
    std::byte* sq = nullptr;
    std::byte* rq = nullptr;  // null: no receive queue
    std::byte* dbrec = nullptr;
  };
  Result<Parts> FindParts(const Context& c, const CreateQpArgs& args) const;
  static Status PlaceRings(const CreateQpArgs& args, Parts* parts);
  Status CheckRoomForQp(const Context& c) const;
  void MakeSnapshots(Qp& qp, uint32_t ring) const;
  static void SetUpQueues(Qp& qp, const CreateQpArgs& args, const Parts& parts);
  // --- the transitions of ModifyQp
  void Reset(Qp& qp);
  static Status GrantAccess(Qp& qp, const ModifyQpArgs& args);
  Status ConnectToPeer(Qp& qp, const ModifyQpArgs& args);
  static Status SetTimers(Qp& qp, const ModifyQpArgs& args);

  static void Enlist(Qp& qp, Context& c);
  static void Delist(const Qp& qp);
  void StartCounters(Qp& qp) const;
  void ResetQueues(Qp& qp);

  const EngineOptions& options_;
  QpTable& qps_;
  CompletionQueues& cqs_;
  ReadyList& ready_;
  LookList& looks_;
  LinkWork& link_work_;
  ErrorState& errors_;
  Durability& durability_;
  const Routes& routes_;
  ServiceAsks& asks_;
  // By the queue pairs in other engines for which they were made.
  std::map<std::pair<GidBytes, uint32_t>, Qp*> responders_;
};

}  // namespace hyperloop::softrnic
