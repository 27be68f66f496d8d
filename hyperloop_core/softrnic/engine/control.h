// Control executes the commands of clients. It makes and destroys protection domains, registered
// memory, memory keys and completion queues, reports counters, and destroys what a closed context
// leaves. Every field of a command comes from a client and is checked.
//
// May call: Clients, KeyTable, CompletionQueues, Durability, QpLife, Services, rings.h.
#pragma once

#include <functional>
#include <string>

#include "softrnic/engine/clients.h"
#include "softrnic/engine/completion_queues.h"
#include "softrnic/engine/durability.h"
#include "softrnic/engine/key_table.h"
#include "softrnic/engine/qp_life.h"
#include "softrnic/engine/services.h"

namespace hyperloop::softrnic {

class Control {
 public:
  Control(const EngineOptions& options, Clients& clients, KeyTable& keys, CompletionQueues& cqs,
          Durability& durability, QpLife& life, Services& services)
      : options_(options),
        clients_(clients),
        keys_(keys),
        cqs_(cqs),
        durability_(durability),
        life_(life),
        services_(services) {}

  // These do what the functions of Engine with these names do.
  bool CloseContextPart(ContextId id, size_t objects);
  Result<IdReply> RegisterUmem(Context& c, const RegisterUmemArgs& args, UmemMapping mapping);
  Status Execute(Context& c, const Command& command, Reply* reply, std::string* text);
  Result<std::function<std::string()>> Counters(const Context& c,
                                                const QueryCountersArgs& args) const;
  // Sums up the counters of a host, and counts the queue pairs that it has now.
  void Count(const Tally& tally, QpCounters* sum, uint64_t* queue_pairs) const;
  // `notify`: of the completion channel (Engine::CreateEventCq); null if the queue has none.
  Status CreateCq(Context& c, const CreateCqArgs& args, std::function<void()> notify,
                  CreateCqReply* reply);

 private:
  Status AllocPd(Context& c, IdReply* reply);
  Status FreePd(Context& c, uint32_t id);
  Status FreeUmem(Context& c, uint32_t id);
  void Erase(Context& c, const Umem& umem);
  Status CreateMkey(Context& c, const CreateMkeyArgs& args, CreateMkeyReply* reply);
  Status DestroyMkey(Context& c, uint32_t lkey);
  void Release(MemoryKey& key);
  Status CheckRoomForCq(const Context& c, bool events) const;
  Result<Cq*> NewCq(Context& c);
  Status DestroyCq(Context& c, uint32_t cqn);
  void Erase(Cq& cq);

  const EngineOptions& options_;
  Clients& clients_;
  KeyTable& keys_;
  CompletionQueues& cqs_;
  Durability& durability_;
  QpLife& life_;
  Services& services_;
  uint32_t all_umems_ = 0;
  uint64_t all_umem_bytes_ = 0;
  uint32_t next_pd_ = 1;
  uint32_t next_umem_ = 1;
};

}  // namespace hyperloop::softrnic
