// Engine::Impl: an engine put together from its parts. The header of each part says what it does
// and which other parts it may call; a part is given references to these and to no others. A part
// calls only parts on lines below its own, or to the right on its line (tests/engine_picture_test).
//
//   called for   commands    steps of tests        doorbells   links              page faults
//   -----------------------------------------------------------------------------------------
//   entrances    Control     SingleSteps           Doorbells   Links              TruncatedFiles
//                Services
//   queue pairs  QpLife      Requester                         RemoteRequester    RemoteResponder
//   on the way   Routes      ServiceAsks   Transit   Retries   Snapshots
//   effects      Responder   CompletionQueues   Durability
//   clients      Clients
//   failures     ErrorState
//   lists        ReadyList   LookList   LinkWork   Waiters
//   tables       KeyTable    QpTable
//   the rest     LinkTraffic   Turn   Dice   Clock
#pragma once

#include <memory>
#include <utility>

#include "hyperloop/core/invariant.h"
#include "softrnic/engine/clients.h"
#include "softrnic/engine/clock.h"
#include "softrnic/engine/completion_queues.h"
#include "softrnic/engine/control.h"
#include "softrnic/engine/dice.h"
#include "softrnic/engine/doorbells.h"
#include "softrnic/engine/durability.h"
#include "softrnic/engine/error_state.h"
#include "softrnic/engine/key_table.h"
#include "softrnic/engine/link_traffic.h"
#include "softrnic/engine/link_work.h"
#include "softrnic/engine/links.h"
#include "softrnic/engine/look_list.h"
#include "softrnic/engine/qp_life.h"
#include "softrnic/engine/qp_table.h"
#include "softrnic/engine/ready_list.h"
#include "softrnic/engine/remote_requester.h"
#include "softrnic/engine/remote_responder.h"
#include "softrnic/engine/requester.h"
#include "softrnic/engine/responder.h"
#include "softrnic/engine/retries.h"
#include "softrnic/engine/routes.h"
#include "softrnic/engine/service_asks.h"
#include "softrnic/engine/services.h"
#include "softrnic/engine/single_steps.h"
#include "softrnic/engine/snapshots.h"
#include "softrnic/engine/transit.h"
#include "softrnic/engine/truncated_files.h"
#include "softrnic/engine/turn.h"

namespace hyperloop::softrnic {

struct Engine::Impl {
  explicit Impl(EngineOptions o) : options(std::move(o)) {
    HL_INVARIANT(!deferred || steps != nullptr);
  }

  const EngineOptions options;
  // Requests and answers wait in Transit until a later step delivers them.
  const bool deferred = options.test.defer_delivery;
  Dice dice{options.test.seed};
  Clock clock{options.now_ns};
  Turn turn;
  ReadyList ready;
  KeyTable keys;
  QpTable qps;
  LookList looks{kMaxQps};
  LinkWork link_work;
  ErrorState errors{link_work, looks, ready};
  CompletionQueues cqs{errors, ready, turn};
  Durability durability{options, turn};
  Responder responder{options, keys, cqs, durability, errors, turn};
  Clients clients{options, errors, ready, link_work};
  TruncatedFiles truncated_files{options, clients, keys, turn};
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
  Routes routes{clients, traffic};
  ServiceAsks asks{qps, traffic, clock};
  QpLife life{options, qps, cqs, ready, looks, link_work, errors, durability, routes, asks};
  Services services{qps, clients, traffic, routes, asks, life};
  Links links{traffic, link_work, remote_requester, remote_responder, routes, asks, services, turn};
  Control control{options, clients, keys, cqs, durability, life, services};
  // Not null: the engine runs by these.
  const std::unique_ptr<SingleSteps> steps =
      options.test.steps == nullptr
          ? nullptr
          : options.test.steps({options, doorbells, retries, qps, ready, keys, snapshots, transit,
                                requester, dice});
};

}  // namespace hyperloop::softrnic
