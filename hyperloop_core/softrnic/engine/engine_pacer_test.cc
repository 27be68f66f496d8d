// Tests an engine whose queues a Pacer lets run.
#include <gmock/gmock.h>

#include <map>
#include <vector>

#include "softrnic/engine/pacer.h"
#include "softrnic/engine/testing/engine_test_util.h"

namespace hyperloop::softrnic {
namespace {

using testing::ElementsAre;

// Each WQE takes as long as its queue's `pace`. It notes what ran when.
class TestPacer : public Pacer {
 public:
  struct Ran {
    uint32_t qpn;
    uint16_t index;
    bool done;
    bool operator==(const Ran&) const = default;
  };

  void Look(const Queue& queue) override { producers[queue.qpn] = queue.producer; }
  uint64_t RunsAt(const Queue& queue) override { return next[queue.qpn]; }
  bool Begin(const Queue& queue, uint64_t runs_at) override {
    waits_until = runs_at;
    if (runs_at > now) return false;
    running = queue;
    return true;
  }
  void End(bool done) override {
    ran.push_back({running.qpn, running.consumer, done});
    if (done) next[running.qpn] = now + pace[running.qpn];
  }

  uint64_t now = 0;
  uint64_t waits_until = 0;
  std::map<uint32_t, uint64_t> pace, next;
  std::map<uint32_t, uint16_t> producers;
  std::vector<Ran> ran;
  Queue running;
};

struct Paced {
  EngineOptions Options() {
    EngineOptions options;
    options.test.steps = PacedBy(&pacer);
    return options;
  }
  TestPacer pacer;
  Pair p{Options(), {.flags = kQpMaster}};
};

// Of the queues that are ready that one runs which may first, and none runs before its time.
TEST(Pacer, ChoosesTheQueueAndTheMoment) {
  Paced paced;
  Pair& p = paced.p;
  TestPacer& pacer = paced.pacer;
  const uint32_t a = p.a_qp.qpn, b = p.b_qp.qpn;
  pacer.pace = {{a, 10}, {b, 25}};
  pacer.next = {{a, 5}, {b, 3}};
  for (int i = 0; i < 3; ++i) p.a_qp.Nop(), p.b_qp.Nop();
  p.a_qp.Ring(), p.b_qp.Ring();
  EXPECT_EQ(p.engine.Run(100), 0u);
  EXPECT_EQ(pacer.waits_until, 3u);
  EXPECT_EQ(pacer.producers.at(a), 3u);
  for (pacer.now = 0; pacer.now < 100; ++pacer.now) p.Run();
  EXPECT_THAT(pacer.ran, ElementsAre(TestPacer::Ran{b, 0, true}, TestPacer::Ran{a, 0, true},
                                     TestPacer::Ran{a, 1, true}, TestPacer::Ran{a, 2, true},
                                     TestPacer::Ran{b, 1, true}, TestPacer::Ran{b, 2, true}));
}

// A WAIT that is not met has not run wholly, and takes no time until it is.
TEST(Pacer, LearnsThatAQueueWaits) {
  Paced paced;
  Pair& p = paced.p;
  TestPacer& pacer = paced.pacer;
  p.a_qp.Wait(p.a_recv, 0);
  p.a_qp.Ring();
  p.Run();
  const uint32_t a = p.a_qp.qpn;
  EXPECT_THAT(pacer.ran, ElementsAre(TestPacer::Ran{a, 0, false}));
  p.a_qp.Receive(p.a.At(p.src, 64));
  p.b_qp.Send(p.b.At(p.dst, 64));
  p.b_qp.Ring();
  p.Run();
  EXPECT_THAT(pacer.ran,
              ElementsAre(TestPacer::Ran{a, 0, false}, TestPacer::Ran{p.b_qp.qpn, 0, true},
                          TestPacer::Ran{a, 0, true}));
}

}  // namespace
}  // namespace hyperloop::softrnic
