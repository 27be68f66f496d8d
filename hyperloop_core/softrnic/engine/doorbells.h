// Doorbells collects what clients wrote into the registers of their UAR pages: producer indexes of
// send queues, and the arming of completion channels.
//
// May call: Clients, CompletionQueues (Arm), Requester, Turn.
#pragma once

#include "softrnic/engine/clients.h"
#include "softrnic/engine/requester.h"
#include "softrnic/engine/turn.h"

namespace hyperloop::softrnic {

class Doorbells {
 public:
  Doorbells(const Clients& clients, Requester& requester, Turn& turn)
      : clients_(clients), requester_(requester), turn_(turn) {}

  // Takes the doorbells that were rung since the last call, but only a bounded number of each
  // client; later calls take the rest. True if one of them was a send queue's.
  bool Collect();
  // True if there is one to collect. Called before sleeping.
  bool Pending() const;

 private:
  bool CollectLeft();
  // Carries out the doorbells `bits` of a summary word. What exceeds the client's bound is kept in
  // Context::rung.
  bool Take(Context& c, uint32_t word, uint64_t bits);

  const Clients& clients_;
  Requester& requester_;
  Turn& turn_;
  bool left_ = false;  // some Context::rung has doorbells
  uint64_t collection_ = 0;
  size_t first_ = 0;  // the index in open() at which CollectLeft begins
};

}  // namespace hyperloop::softrnic
