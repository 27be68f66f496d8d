// Promises: a replica that grants an epoch to an owner (SealRequest, control.fbs) serves no older
// epoch from then on, and no other owner in this one. Its answers on the control plane show whether
// it does.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "control/messages.h"

namespace hyperloop::simulation {

class Promises {
 public:
  // The replica answered a request.
  void Note(const std::string& replica, const control::BodyUnion& request,
            const control::BodyUnion& reply);
  // The replica's pool is gone, and what it promised with it.
  void Forget(const std::string& replica) { made_.erase(replica); }
  // The first that was broken, in words; empty: none was.
  const std::string& broken() const { return broken_; }

 private:
  struct Promise {
    uint64_t epoch = 0;
    std::vector<uint8_t> owner;
  };
  static bool Allows(const Promise& made, const control::BodyUnion& request);

  std::map<std::string, Promise> made_;  // the last one of each replica
  std::string broken_;
};

}  // namespace hyperloop::simulation
