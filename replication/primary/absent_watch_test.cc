#include "primary/absent_watch.h"

#include <gtest/gtest.h>

#include "support/must.h"
#include "support/silent_peer.h"

namespace hyperloop {
namespace {

TEST(AbsentWatchTest, EndsWhileAReplicaIsSilent) {
  test::SilentPeer peer;
  Configuration configuration;
  configuration.epoch = 2;
  configuration.absent.push_back({RandomUuid(), peer.endpoint()});
  {
    AbsentWatch watch(Must(control::Trust::Load("", nullptr)), {}, nullptr, -1);
    watch.Set(configuration, RandomUuid(), 1 << 20);
    peer.AwaitQuestion();
    peer.AwaitQuestion();  // the first one was given up
  }
}

}  // namespace
}  // namespace hyperloop
