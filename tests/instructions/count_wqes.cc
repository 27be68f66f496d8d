#include "instructions/cases.h"
#include "softrnic/engine/testing/engine_test_util.h"

namespace hyperloop::instructions {
namespace {

using namespace softrnic;

constexpr uint16_t kBatch = 48;

// Two hosts, and CQs that are never polled.
struct Bench : Pair {
  Bench() : Pair({}, {}, {.log_rq = 6, .log_stride = 8}) {
    a_cq = a.Cq(6, /*ignore_overrun=*/true);
    b_recv = b.Cq(6, /*ignore_overrun=*/true);
    a_qp = a.Qp(a_cq, a_cq);
    b_qp = b.Qp(b_recv, b_recv, {.log_rq = 6, .log_stride = 8});
    a.Connect(a_qp, b_qp);
    b.Connect(b_qp, a_qp);
  }
  // The next lap of a batch: only indexes change.
  static void Repost(TestQp& qp) {
    for (uint16_t i = 0; i < kBatch; ++i, ++qp.next) {
      const uint16_t be = htobe16(qp.next);
      std::memcpy(qp.sq + (qp.next % qp.sq_wqebbs) * 64 + 1, &be, 2);
    }
  }
  void RunToRest() {
    while (engine.Run(64) != 0) {
    }
  }
  // `put` fills the ring of `qp`, one WQEBB each; `prepare` goes before each batch.
  template <class Put, class Prepare>
  void Laps(Meter& meter, const char* name, uint64_t batches, TestQp& qp, Put&& put,
            Prepare&& prepare) {
    for (uint32_t i = 0; i < qp.sq_wqebbs; ++i) put();
    qp.next = 0;
    for (uint64_t batch = 0; batch < batches + 2; ++batch) {  // two to warm up
      Repost(qp);
      prepare();
      qp.Ring();
      if (batch >= 2) meter.Start();
      RunToRest();
      if (batch >= 2) meter.Stop();
    }
    if (a.Counter("error_cqes") + b.Counter("error_cqes") != 0) Fail(name, "a WQE failed");
    meter.Report(std::string("wqe.") + name, batches * kBatch);
  }
  template <class Put>
  void Laps(Meter& meter, const char* name, uint64_t batches, Put&& put) {
    Laps(meter, name, batches, a_qp, put, [] {});
  }
};

void CountSend(Meter& meter, const char* name, uint64_t batches, std::span<const uint32_t> from,
               std::span<const uint32_t> to) {
  Bench p;
  const auto pieces = [](Client& client, std::byte* at, std::span<const uint32_t> lengths) {
    std::vector<Sge> sges;
    for (const uint32_t n : lengths) sges.push_back(client.At(at, n)), at += 128;
    return sges;
  };
  const std::vector<Sge> gather = pieces(p.a, p.src, from), scatter = pieces(p.b, p.dst, to);
  for (uint32_t i = 0; i < p.b_qp.rq_wqes; ++i)
    rnic::EncodeReceive(p.b_qp.rq + i * p.b_qp.rq_stride, p.b_qp.rq_stride, scatter);
  uint32_t receives = 0;
  p.Laps(
      meter, name, batches, p.a_qp, [&] { p.a_qp.Send(gather); },
      [&] { p.b_qp.SetReceiveCounter(receives += kBatch); });
}

void CountWriteImm(Meter& meter, uint64_t batches) {
  Bench p;
  uint32_t receives = 0;
  p.Laps(
      meter, "write_imm_8", batches, p.a_qp,
      [&] { p.a_qp.WriteImm(p.Remote(p.dst), p.b.rkey, p.a.At(p.src, 8), 1); },
      [&] { p.b_qp.SetReceiveCounter(receives += kBatch); });
}

// One WAIT that is met when it is fetched.
void CountWaitMet(Meter& meter, uint64_t batches) {
  Bench p;
  TestCq other = p.a.Cq(6, true), control_cq = p.a.Cq(6, true);
  TestQp source = p.a.Qp(other, other);
  p.a.Connect(source, source);
  source.Nop(CqeMode::kAlways);
  source.Ring();
  p.RunToRest();
  TestQp control = p.a.Qp(control_cq, control_cq, {.flags = kQpMaster});
  p.a.Connect(control, control);
  p.Laps(
      meter, "wait_met", batches, control, [&] { control.Wait(other, 0); }, [] {});
}

// SEND_EN of a NOP in a second queue, its CQE, and the WAIT for it, which stalls: one step of a
// slot's control program.
void CountWaitAndEnable(Meter& meter, uint64_t batches) {
  Bench p;
  TestCq cq = p.a.Cq(6, true), control_cq = p.a.Cq(6, true);
  TestQp data = p.a.Qp(cq, cq, {.flags = kQpSlaveSend});
  p.a.Connect(data, data);
  TestQp control = p.a.Qp(control_cq, control_cq, {.log_sq = 7, .flags = kQpMaster});
  p.a.Connect(control, control);
  for (uint32_t i = 0; i < data.sq_wqebbs; ++i) data.Nop(CqeMode::kAlways);
  data.next = 0;
  uint32_t cqes = 0;
  for (uint64_t batch = 0; batch < batches + 2; ++batch) {
    const uint16_t first = data.next;
    Bench::Repost(data);
    for (uint16_t i = 0; i < kBatch; ++i) {
      control.Enable(data, static_cast<uint16_t>(first + i + 1));
      control.Wait(cq, cqes++);
    }
    control.Ring();
    if (batch >= 2) meter.Start();
    p.RunToRest();
    if (batch >= 2) meter.Stop();
  }
  if (p.a.Counter("error_cqes") != 0 || static_cast<uint16_t>(cqes) != data.next)
    Fail("enable_nop_wait", "a WQE failed");
  meter.Report("wqe.enable_nop_wait", batches * kBatch);
}

}  // namespace

void CountWqes(Meter& meter, uint64_t batches) {
  const auto laps = [&](const char* name, auto put) {
    Bench p;
    p.Laps(meter, name, batches, [&] { put(p); });
  };
  laps("nop", [](Bench& p) { p.a_qp.Nop(); });
  laps("nop_signaled", [](Bench& p) { p.a_qp.Nop(CqeMode::kAlways); });
  const auto write = [&](const char* name, size_t size) {
    laps(name, [size](Bench& p) { p.a_qp.Write(p.Remote(p.dst), p.b.rkey, p.a.At(p.src, size)); });
  };
  write("write_8", 8);
  write("write_128", 128);
  write("write_1024", 1024);
  laps("read_8", [](Bench& p) { p.a_qp.Read(p.Remote(p.dst), p.b.rkey, p.a.At(p.src, 8)); });
  laps("cas", [](Bench& p) { p.a_qp.Cas(p.Remote(p.dst), p.b.rkey, 0, 0, p.a.At(p.src, 8)); });
  CountWriteImm(meter, batches);
  CountSend(meter, "send_8", batches, {{8}}, {{8}});
  // A metadata message and the RECV that takes it apart, as docs/group-primitives.md describes
  // them.
  CountSend(meter, "send_300_to_12", batches, {{200, 60, 40}},
            {{48, 48, 4, 28, 28, 28, 4, 48, 4, 4, 4, 52}});
  CountWaitMet(meter, batches);
  CountWaitAndEnable(meter, batches);
}

}  // namespace hyperloop::instructions
