// Clients owns the open contexts, the hosts behind them, and an Account for each client. It evicts
// a client that must not go on.
//
// Between StopServing and Close a context exists without being served; its objects are destroyed in
// that time, a part at a time. Evicting needs no memory.
//
// May call: ErrorState, ReadyList, LinkWork, and the Flusher of EngineOptions.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "softrnic/engine/error_state.h"
#include "softrnic/engine/link_work.h"
#include "softrnic/engine/objects.h"
#include "softrnic/engine/ready_list.h"

namespace hyperloop::softrnic {

class Clients {
 public:
  Clients(const EngineOptions& options, ErrorState& errors, ReadyList& ready, LinkWork& link_work);

  Result<Context*> Open(const std::string& host, UarPage* uar, ClientNumber client);
  // Null: not open.
  Context* Find(ContextId id) const;
  // The engine ignores the doorbells of `c` from now on, and withdraws its services.
  void StopServing(Context& c);
  // Destroys `c`, which must own no object any more. Its host and its client are destroyed with
  // their last context. But a client whose faults were counted stays until Forget.
  void Close(Context& c);
  // Destroys a client that has no contexts.
  void Forget(ClientNumber client);
  // Any context that is not closed. Null: there is none.
  Context* Any() const { return contexts_.empty() ? nullptr : contexts_.begin()->second.get(); }
  // The contexts that are served.
  const std::vector<Context*>& open() const { return open_; }
  // Calls `f` for every context, including those that are being closed.
  template <class F>
  void ForEachContext(F&& f) const {
    for (const auto& [id, context] : contexts_) f(*context);
  }

  // OpenReply::rnic of every context.
  uint64_t rnic() const { return rnic_; }

  // Null: no such host is attached.
  Host* FindHost(const std::string& name) const;
  // Of a host that is attached or has been. Null: no such host has been, or it is one of too many
  // that left since, and was forgotten.
  const Tally* FindTally(const std::string& name) const;
  std::vector<std::string> HostNames() const;
  template <class F>
  bool AnyHost(F&& f) const {
    for (const auto& [name, host] : hosts_)
      if (f(*host)) return true;
    return false;
  }

  // --- eviction
  // `evict` is called for each context of a client that is evicted (Engine::SetEvict).
  void SetEvict(std::function<void(ContextId, const char*)> evict) { evict_ = std::move(evict); }
  // Puts the client's queue pairs into the error state and refuses its further commands. Whoever
  // opened its contexts is told to close them. `why` is a literal.
  void Evict(const Account& account, const char* why);
  // Runs `f`, which does something for `qp`. If `f` runs out of memory, the client of `qp` is
  // evicted.
  template <class F>
  void RunFor(const Qp& qp, F&& f) {
    try {
      f();
    } catch (const std::bad_alloc&) {
      Evict(*qp.account, kNoMemory);
    }
  }
  static constexpr char kNoMemory[] = "out of memory in a request";
  // Has the client evicted at the next EvictDoomed. Async-signal-safe. `why` is a literal.
  void Doom(Account& account, const char* why) {
    account.doomed = why;
    doomed_ = true;
  }
  void EvictDoomed() {
    if (doomed_) [[unlikely]]
      EvictAllDoomed();
  }

 private:
  Host& Attach(const std::string& name);
  void Detach(const Host& host);
  void MakeRoomForTally();
  Account& AccountOf(ClientNumber client);
  void Release(const Account& account);
  void EvictAllDoomed();

  const EngineOptions& options_;
  ErrorState& errors_;
  ReadyList& ready_;
  LinkWork& link_work_;
  std::function<void(ContextId, const char*)> evict_;
  std::map<ClientNumber, std::unique_ptr<Account>> accounts_;
  std::map<ContextId, std::unique_ptr<Context>> contexts_;
  std::map<std::string, std::unique_ptr<Host>> hosts_;
  std::map<std::string, Tally> tallies_;
  uint64_t departures_ = 0;  // hosts that ended
  std::vector<Context*> open_;
  volatile bool doomed_ = false;  // some Account::doomed is set
  ContextId next_context_ = 1;
  uint64_t next_host_;
  const uint64_t rnic_;
};

}  // namespace hyperloop::softrnic
