// The Seal of a candidate that then dies or stops.
#pragma once

#include "control/messages.h"

namespace hyperloop::test {

// `hello`: what the candidate has seen of the replica. `step`: by how much it raises the epoch.
inline control::SealRequestT RivalSeal(const control::HelloReplyT& hello, uint64_t step = 1) {
  control::SealRequestT seal;
  seal.epoch = hello.sealed_epoch + step;
  seal.owner_id.assign(16, 0xcd);
  seal.owner_name = "a candidate that died";
  seal.group = hello.group;
  seal.seen_sealed_epoch = hello.sealed_epoch;
  seal.seen_installed_epoch = hello.installed_epoch;
  seal.seen_served_epoch = hello.served_epoch;
  return seal;
}

}  // namespace hyperloop::test
