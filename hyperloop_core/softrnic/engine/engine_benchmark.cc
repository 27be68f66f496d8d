// Measures the cost of each kind of WQE in the software RNIC's engine, on one thread, with the
// rings in cache. items_per_second counts WQEs.
//
// Each iteration rings one doorbell for a batch and runs the engine to rest. The ring holds one lap
// of WQEs, and between batches only their indexes are rewritten. The times include that, because
// stopping the clock for it would cost more; the "Repost" line shows how much it is.
#include <benchmark/benchmark.h>

#include "softrnic/engine/testing/engine_test_util.h"

namespace hyperloop::softrnic {
namespace {

constexpr uint16_t kBatch = 16;

// Posts the next lap of the batch at the producer index of `qp`.
void Repost(TestQp& qp) {
  for (uint16_t i = 0; i < kBatch; ++i, ++qp.next) {
    std::byte* const wqe = qp.sq + (qp.next % qp.sq_wqebbs) * 64;
    const uint16_t be = htobe16(qp.next);
    std::memcpy(wqe + 1, &be, 2);
  }
}

// `put` writes WQE i of the ring (one WQEBB each), which then runs lap after lap.
template <class Put>
void Laps(benchmark::State& state, Pair& p, Put&& put, uint32_t receives_per_batch = 0) {
  for (uint32_t i = 0; i < p.a_qp.sq_wqebbs; ++i) put(i);
  p.a_qp.next = 0;
  uint32_t receives = 0;
  for (auto _ : state) {
    Repost(p.a_qp);
    if (receives_per_batch != 0) p.b_qp.SetReceiveCounter(receives += receives_per_batch);
    p.a_qp.Ring();
    while (p.engine.Run(64) != 0) {
    }
  }
  if (p.a.Counter("error_cqes") != 0) state.SkipWithError("a WQE failed");
  state.SetItemsProcessed(state.iterations() * kBatch);
}

struct BenchPair : Pair {
  BenchPair() : Pair({}, {}, {.log_rq = 4, .log_stride = 8}) {}
};

void BM_Repost(benchmark::State& state) {
  BenchPair p;
  for (auto _ : state) {
    Repost(p.a_qp);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * kBatch);
}
BENCHMARK(BM_Repost);

void BM_IdleRun(benchmark::State& state) {
  BenchPair p;
  Client c(p.engine, "c"), d(p.engine, "d");
  for (Client* client : {&c, &d}) {
    TestCq cq = client->Cq();
    client->Qp(cq, cq);
  }
  for (auto _ : state) benchmark::DoNotOptimize(p.engine.Run(64));
}
BENCHMARK(BM_IdleRun);

void BM_Nop(benchmark::State& state) {
  BenchPair p;
  Laps(state, p, [&](uint32_t) { p.a_qp.Nop(); });
}
BENCHMARK(BM_Nop);

void BM_Write(benchmark::State& state) {
  BenchPair p;
  Laps(state, p, [&](uint32_t) {
    p.a_qp.Write(p.Remote(p.dst), p.b.rkey, p.a.At(p.src, static_cast<size_t>(state.range(0))));
  });
}
BENCHMARK(BM_Write)->Arg(8)->Arg(128)->Arg(1024)->Arg(4096);

void BM_Read8(benchmark::State& state) {
  BenchPair p;
  Laps(state, p, [&](uint32_t) { p.a_qp.Read(p.Remote(p.dst), p.b.rkey, p.a.At(p.src, 8)); });
}
BENCHMARK(BM_Read8);

void BM_CompareSwap(benchmark::State& state) {
  BenchPair p;
  Laps(state, p, [&](uint32_t) { p.a_qp.Cas(p.Remote(p.dst), p.b.rkey, 0, 0, p.a.At(p.src, 8)); });
}
BENCHMARK(BM_CompareSwap);

// A metadata message: 3 SGEs gathered, 12 scattered over 300 B.
void BM_SendScatter12(benchmark::State& state) {
  BenchPair p;
  std::vector<Sge> to;
  const uint32_t lengths[] = {48, 48, 4, 28, 28, 28, 4, 48, 4, 4, 4, 52};
  std::byte* at = p.dst;
  for (const uint32_t n : lengths) to.push_back(p.b.At(at, n)), at += 64;
  TestCq big = p.b.Cq(6, /*ignore_overrun=*/true);
  TestQp receiver = p.b.Qp(big, big, {.log_rq = 4, .log_stride = 8});
  TestQp sender = p.a.Qp(p.a_cq, p.a_recv);
  p.a.Connect(sender, receiver);
  p.b.Connect(receiver, sender);
  for (uint32_t i = 0; i < 16; ++i) rnic::EncodeReceive(receiver.rq + i * 256, 256, to);
  p.a_qp = sender, p.b_qp = receiver;
  Laps(
      state, p,
      [&](uint32_t) {
        const Sge from[] = {p.a.At(p.src, 200), p.a.At(p.src + 512, 60), p.a.At(p.src + 1024, 40)};
        p.a_qp.Send(from);
      },
      kBatch);
}
BENCHMARK(BM_SendScatter12);

// The control queue WAITs for the data queue's last CQE, then enables its next NOP. An item is a
// WQE: WAIT, SEND_EN or NOP.
void BM_WaitEnable(benchmark::State& state) {
  BenchPair p;
  TestCq cq = p.a.Cq(6, true), control_cq = p.a.Cq();
  TestQp data = p.a.Qp(cq, cq, {.flags = kQpSlaveSend});
  p.a.Connect(data, data);
  TestQp control = p.a.Qp(control_cq, control_cq, {.flags = kQpMaster});
  p.a.Connect(control, control);
  for (int i = 0; i < 64; ++i) data.Nop(CqeMode::kAlways);
  data.next = 0;
  uint32_t cqes = 0;
  for (auto _ : state) {
    Repost(data);
    const uint16_t first = static_cast<uint16_t>(data.next - kBatch);
    for (uint16_t i = 0; i < kBatch; ++i) {
      control.Enable(data, static_cast<uint16_t>(first + i + 1));
      control.Wait(cq, cqes++);
    }
    control.Ring();
    while (p.engine.Run(64) != 0) {
    }
  }
  if (p.a.Counter("error_cqes") != 0) state.SkipWithError("a WQE failed");
  state.SetItemsProcessed(state.iterations() * kBatch * 3);
}
BENCHMARK(BM_WaitEnable);

}  // namespace
}  // namespace hyperloop::softrnic

BENCHMARK_MAIN();
