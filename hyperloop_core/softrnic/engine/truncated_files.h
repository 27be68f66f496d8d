// TruncatedFiles: what happens when a client truncates a file behind its registered memory and the
// engine touches a page that is gone.
//
// HandleFault maps zeroed pages there so that the access ends, poisons the keys over them, and
// dooms clients that do this too often or whose queues lie there. It runs in a signal handler on
// the engine's thread, between any two instructions of the parts that it may call. What it costs
// counts as steps of the turn in which it happens.
//
// May call: Clients, KeyTable, Turn.
#pragma once

#include "softrnic/engine/clients.h"
#include "softrnic/engine/key_table.h"
#include "softrnic/engine/turn.h"

namespace hyperloop::softrnic {

class TruncatedFiles {
 public:
  TruncatedFiles(const EngineOptions& options, Clients& clients, KeyTable& keys, Turn& turn)
      : options_(options), clients_(clients), keys_(keys), turn_(turn) {}

  // False: `address` is in no client's memory, or no page could be mapped there. Async-signal-safe.
  bool HandleFault(void* address);

 private:
  const EngineOptions& options_;
  Clients& clients_;
  KeyTable& keys_;
  Turn& turn_;
};

}  // namespace hyperloop::softrnic
