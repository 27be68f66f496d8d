// The engine over rings of any content. Whatever send queue, receive queue, doorbell records and
// registers hold, nothing outside the registered ranges changes, nothing is read out of bounds
// (AddressSanitizer), every call returns, and other clients are served as before.
//
// Raw bytes hardly ever make a WQE that a strict device runs. So an input is a list of
// instructions. An instruction that places a WQE may ask for a right header, right keys, addresses
// or object numbers; the other bytes stay as in the input.
#include "fuzz/fuzz.h"
#include "fuzz/guarded_host.h"
#include "softrnic/engine/testing/adversarial_schedule.h"

namespace hyperloop::fuzz {
namespace {

using namespace softrnic;  // NOLINT(google-build-using-namespace)

class Machine {
 public:
  explicit Machine(Reader& in)
      : in_(in),
        engine_(Options(in)),
        a_(engine_, 0, (setup_ & 1) != 0, (setup_ & 2) != 0),
        b_(engine_, 1, (setup_ & 4) != 0, (setup_ & 8) != 0),
        quiet_a_(engine_, 2, false, false),
        quiet_b_(engine_, 3, false, false) {
    for (int i : {0, 1}) Connect(a_, i, b_, i), Connect(b_, i, a_, i);
    Connect(a_, 2, a_, 2), Connect(b_, 2, b_, 2);
    Connect(quiet_a_, 0, quiet_b_, 0), Connect(quiet_b_, 0, quiet_a_, 0);
  }

  void Run() {
    for (int i = 0; i < 200 && !in_.done(); ++i) Instruction();
    engine_.Run(3000);
    a_.CheckGuards();
    b_.CheckGuards();
    for (Host* host : {&a_, &b_}) PollAll(*host);
    CheckOthersAreServed();
  }

 private:
  EngineOptions Options(Reader& in) {
    const uint8_t mode = in.U8();
    setup_ = in.U8();
    EngineOptions options;
    options.test.check_wqe_index = (mode & 1) == 0;
    options.test.check_qpn = (mode & 2) == 0;
    if ((mode & 4) != 0) options.test.steps = RandomSteps;
    options.test.fetch = static_cast<EngineTestHooks::Fetch>((mode >> 3 & 3) % 3);
    options.test.defer_delivery = (mode & 32) != 0 && (mode & 4) != 0;
    options.test.retransmit = options.test.defer_delivery && (mode & 64) != 0;
    options.prefetch_depth = (mode & 128) != 0 ? 3 : 0;
    options.test.scatter_to_cqe = (setup_ & 16) != 0;
    return options;
  }
  static void Connect(Host& from, int i, Host& to, int j) {
    from.client.Connect(from.qps[static_cast<size_t>(i)], to.qps[static_cast<size_t>(j)]);
  }

  void Instruction() {
    const uint8_t what = in_.U8();
    const uint8_t where = in_.U8();
    Host& host = (where & 1) != 0 ? b_ : a_;
    Host& other = (where & 1) != 0 ? a_ : b_;
    const size_t index = (where >> 1) % host.qps.size();
    TestQp& qp = host.qps[index];
    Host& peer = index == 2 ? host : other;
    switch (what % 9) {
      case 0:
      case 1:
      case 2:
        PlaceWqe(host, peer, qp);
        break;
      case 3:
        PlaceReceive(host, qp);
        break;
      case 4:
        qp.Ring((where & 64) != 0 ? in_.U16() : qp.next);
        break;
      case 5:
        engine_.Run(1 + in_.U8());
        break;
      case 6:
        Disturb(host, peer, qp);
        break;
      case 7:
        // The whole of a registered range, rings included where they are.
        in_.Fill(qp.sq, 16);
        in_.Fill(host.data + in_.U16() % kData / 2, in_.U8());
        if ((where & 128) != 0) in_.Fill(host.cq.ring + in_.U8() % host.cq.depth, 64);
        break;
      case 8:
        Encode(host, peer, qp);
    }
  }

  // A WQE as a driver makes it.
  void Encode(Host& host, Host& peer, TestQp& qp) {
    const uint8_t kind = in_.U8();
    const Sge local{reinterpret_cast<uint64_t>(host.data), in_.U8(), host.keys[0].lkey};
    const auto there = reinterpret_cast<uint64_t>(peer.data);
    constexpr rnic::WqeOpcode kInline[] = {rnic::kWqeSend, rnic::kWqeSendImm, rnic::kWqeWrite,
                                           rnic::kWqeWriteImm};
    qp.Put([&](void* wqe) {
      const auto control = qp.Control(CqeMode::kAlways, (kind & 64) != 0);
      if (kind % 8 < 4)
        return EncodeInline(wqe, control, kInline[kind % 4], {&local, 1}, there, peer.keys[0].rkey,
                            7);
      if (kind % 8 == 4)
        return EncodeReceiveEnable(wqe, control, peer.qps[kind / 8 % 3].qpn, in_.U8());
      return EncodeSendImm(wqe, control, {&local, 1}, 7);
    });
  }

  // Whatever the rings hold has a meaning.
  static void PollAll(Host& host) {
    for (TestCq* cq : {&host.cq, &host.small_cq}) {
      for (const rnic::Completion& each : cq->PollAll())
        HL_FUZZ_CHECK(each.qpn <= rnic::kObjectMask && !WcStatusName(each.status).empty(),
                      "a completion of nothing");
      for (uint32_t i = 0; i < cq->depth; ++i) rnic::DecodeCqe(cq->ring[i]);
    }
  }

  // Raw bytes with some fields put right, at the queue's next place.
  void PlaceWqe(Host& host, Host& peer, TestQp& qp) {
    alignas(64) std::array<std::byte, 128> wqe{};
    const uint8_t fix = in_.U8();
    const uint8_t opcode = in_.U8();
    const uint8_t segments = in_.U8();
    in_.Fill(wqe.data(), (fix & 1) != 0 ? wqe.size() : 64);
    if ((fix & 2) != 0) {  // header
      mlx5_wqe_ctrl_seg control;
      std::memcpy(&control, wqe.data(), sizeof(control));
      const uint8_t ds = (segments & 63) != 0 ? segments & 63 : 1;
      mlx5dv_set_ctrl_seg(&control, qp.next, opcode % 0x20, 0, qp.qpn, control.fm_ce_se, ds, 0,
                          control.imm);
      std::memcpy(wqe.data(), &control, sizeof(control));
    }
    if ((fix & 4) != 0) {  // remote address
      const size_t key = in_.U8() % peer.keys.size();
      const mlx5_wqe_raddr_seg remote{htobe64(Address(peer, key)), htobe32(peer.keys[key].rkey), 0};
      std::memcpy(wqe.data() + 16, &remote, sizeof(remote));
    }
    if ((fix & 8) != 0) FixData(host, wqe.data() + 16 * (1 + in_.U8() % 3));
    if ((fix & 16) != 0) {  // WAIT and enables
      const uint32_t objects[] = {host.cq.cqn,     host.small_cq.cqn, host.qps[0].qpn,
                                  host.qps[1].qpn, host.qps[2].qpn,   peer.qps[0].qpn};
      const uint8_t pick = in_.U8();
      const uint32_t object = htobe32(objects[pick % std::size(objects)]);
      const uint32_t number = htobe32((pick & 128) != 0 ? in_.U32() : in_.U8());
      std::memcpy(wqe.data() + 24, &number, 4);
      std::memcpy(wqe.data() + 28, &object, 4);
    }
    const uint32_t blocks = (fix & 1) != 0 ? 2 : 1;
    rnic::CopyToRing(qp.sq, qp.sq_wqebbs, qp.next, wqe.data(), blocks * rnic::kWqebbBytes);
    const uint32_t taken = std::max(1u, ((segments & 63u) + 3) / 4);
    qp.next = static_cast<uint16_t>(qp.next + taken);
  }

  uint64_t Address(Host& host, size_t key) {
    if (key == 2) return reinterpret_cast<uint64_t>(host.qps[0].sq) + in_.U16() % 4096;
    // Now and then one that reaches beyond the end.
    return reinterpret_cast<uint64_t>(host.data) + in_.U16() % (kData + 64);
  }
  void FixData(Host& host, std::byte* segment) {
    const size_t key = in_.U8() % host.keys.size();
    const uint32_t length = in_.U16();
    const mlx5_wqe_data_seg data{htobe32(length), htobe32(host.keys[key].lkey),
                                 htobe64(Address(host, key))};
    std::memcpy(segment, &data, sizeof(data));
  }

  void PlaceReceive(Host& host, TestQp& qp) {
    std::byte* const entry =
        qp.rq + static_cast<size_t>(qp.next_recv & (qp.rq_wqes - 1)) * qp.rq_stride;
    const uint8_t fix = in_.U8();
    if ((fix & 1) != 0) in_.Fill(entry, qp.rq_stride);
    for (uint32_t i = 0; i < (fix >> 1) % 5u; ++i) FixData(host, entry + i * 16);
    qp.SetReceiveCounter((fix & 128) != 0 ? in_.U32() : ++qp.next_recv);
  }

  void Disturb(Host& host, Host& peer, TestQp& qp) {
    const uint8_t how = in_.U8();
    switch (how % 8) {
      case 0:
        host.client.TryModify(qp, QpState::kReset).IgnoreError();
        break;
      case 1:
        host.client.TryModify(qp, QpState::kError).IgnoreError();
        break;
      case 2:  // RESET, then back
        host.client.TryModify(qp, QpState::kReset).IgnoreError();
        host.client.TryModify(qp, QpState::kInit, in_.U8() & 0xf).IgnoreError();
        host.client.TryModify(qp, QpState::kReadyToReceive, 0, &peer.qps[in_.U8() % 3])
            .IgnoreError();
        host.client.TryModify(qp, QpState::kReadyToSend).IgnoreError();
        break;
      case 3:
        (how & 8) != 0 ? host.small_cq.Release() : host.cq.Release();
        break;
      case 4: {  // the register page is the client's to write
        const uint64_t value = in_.U64();
        const size_t at = in_.U16() % kUarBytes;
        std::memcpy(reinterpret_cast<std::byte*>(host.client.uar()) + at, &value,
                    std::min(sizeof(value), kUarBytes - at));
        break;
      }
      case 5: {
        const uint32_t raw = in_.U32();
        std::memcpy((how & 8) != 0 ? host.small_cq.dbrec : host.cq.dbrec, &raw, sizeof(raw));
        break;
      }
      case 6:
        host.client.Destroy(Op::kDestroyMkey, host.keys[1].lkey).IgnoreError();
        break;
      case 7:
        host.client.Destroy(Op::kDestroyQp, host.qps[1].qpn).IgnoreError();
    }
  }

  void CheckOthersAreServed() {
    Host& from = quiet_a_;
    Host& to = quiet_b_;
    from.data[7] = std::byte{0x5a};
    to.data[7] = std::byte{0};
    from.qps[0].Write(reinterpret_cast<uint64_t>(to.data), to.keys[0].rkey,
                      {reinterpret_cast<uint64_t>(from.data), 8, from.keys[0].lkey},
                      CqeMode::kAlways);
    from.qps[0].Ring();
    std::optional<rnic::Completion> done;
    for (int i = 0; i < 1000 && !done; ++i) {
      engine_.Run(100);
      done = from.cq.Poll();
    }
    HL_FUZZ_CHECK(done.has_value(), "another client's WRITE does not complete");
    HL_FUZZ_CHECK(done->status == rnic::WcStatus::kSuccess, rnic::WcStatusName(done->status));
    HL_FUZZ_CHECK(to.data[7] == std::byte{0x5a}, "another client's WRITE went elsewhere");
    from.CheckGuards();
    to.CheckGuards();
  }

  Reader& in_;
  uint8_t setup_ = 0;
  Engine engine_;
  Host a_, b_, quiet_a_, quiet_b_;
};

// One instruction that places a WQE, all fields put right.
void Place(Writer& out, unsigned where, unsigned opcode, unsigned segments, unsigned flags,
           unsigned fix) {
  std::array<uint8_t, 64> raw{};
  raw[11] = static_cast<uint8_t>(flags);
  out.U8(0).U8(where).U8(fix).U8(opcode).U8(segments).Bytes(raw.data(), raw.size());
}

std::vector<Input> Seeds() {
  constexpr unsigned kHeader = 2, kRemote = 4, kLocal = 8, kObject = 16;
  std::vector<Input> seeds;
  for (const unsigned mode : {0u, 4u + 16u, 4u + 32u + 64u}) {
    const auto begin = [&](Writer& out) { out.U8(mode).U8(0xef); };
    const auto end = [&](Writer& out, unsigned where) {
      out.U8(4).U8(where).U8(5).U8(0).U8(200);
      seeds.push_back(out.Finish());
    };
    for (const unsigned opcode : {rnic::kWqeWrite, rnic::kWqeRead, rnic::kWqeWriteImm}) {
      Writer out;
      begin(out);
      out.U8(3).U8(1).U8(2).U8(0).U16(256).U16(0);  // a receive at the peer
      Place(out, 0, opcode, 3, 0x08, kHeader | kRemote | kLocal);
      out.U8(0).U16(64).U8(1).U8(0).U16(100).U16(128);
      end(out, 0);
    }
    for (const unsigned opcode : {rnic::kWqeCompareSwap, rnic::kWqeFetchAdd}) {
      Writer out;
      begin(out);
      Place(out, 4, opcode, 4, 0x88, kHeader | kRemote | kLocal);
      out.U8(0).U16(64).U8(2).U8(0).U16(8).U16(128);
      end(out, 4);
    }
    {
      Writer out;
      begin(out);
      out.U8(3).U8(1).U8(4).U8(0).U16(16).U16(0).U8(2).U16(64).U16(64);  // scatters into a ring
      Place(out, 0, rnic::kWqeSend, 2, 0x08, kHeader | kLocal);
      out.U8(0).U8(0).U16(80).U16(128);
      end(out, 0);
    }
    for (const unsigned length : {20u, 40000u}) {  // into the CQE, where that is on; in parts
      Writer out;
      out.U8(mode).U8(length < 32 ? 0xff : 0xef);
      out.U8(3).U8(1).U8(2).U8(0).U16(40000).U16(0);
      Place(out, 0, rnic::kWqeSend, 2, 0x08, kHeader | kLocal);
      out.U8(0).U8(0).U16(length).U16(128);
      for (const unsigned opcode : {rnic::kWqeWrite, rnic::kWqeRead}) {
        Place(out, 0, opcode, 3, 0x08, kHeader | kRemote | kLocal);
        out.U8(0).U16(64).U8(1).U8(0).U16(length).U16(128);
      }
      end(out, 0);
    }
    {
      Writer out;  // as a driver makes them, where their receives are and are not
      begin(out);
      for (int i = 0; i < 3; ++i) out.U8(3).U8(1).U8(2).U8(0).U16(256).U16(0);
      for (const unsigned kind : {0u, 1u, 2u, 3u, 4u, 5u, 64u, 0u})
        out.U8(8).U8(0).U8(kind).U8(kind == 64 ? 0 : 40).U8(1);
      end(out, 0);
    }
    {
      Writer out;  // rings of completions that somebody else wrote
      begin(out);
      for (unsigned i = 0; i < 16; ++i) {
        out.U8(7).U8(128).U64(0).U64(0).U16(0).U8(0).U8(i);
        std::array<uint8_t, 64> cqe{};
        cqe[55] = static_cast<uint8_t>(0x0f + i), cqe[63] = static_cast<uint8_t>(i << 4);
        out.Bytes(cqe.data(), cqe.size());
        cqe[55] = static_cast<uint8_t>(i), cqe[63] = 0xd0;
        out.U8(7).U8(129).U64(0).U64(0).U16(0).U8(0).U8(i).Bytes(cqe.data(), cqe.size());
      }
      end(out, 0);
    }
    {
      Writer out;  // WAIT for the first CQE, enable the loopback queue, which has a NOP
      begin(out);
      Place(out, 4, rnic::kWqeNop, 1, 0x08, kHeader);
      Place(out, 0, rnic::kWqeNop, 1, 0x08, kHeader);
      Place(out, 0, rnic::kWqeWait, 2, 0, kHeader | kObject);
      out.U8(0).U8(0);
      Place(out, 0, rnic::kWqeSendEnable, 2, 0, kHeader | kObject);
      out.U8(4).U8(1);
      end(out, 0);
    }
  }
  return seeds;
}

const FuzzTarget kFuzzTarget("wqe", Seeds, [](Reader& in) {
  AbortOnFailedExpectation();
  Machine(in).Run();
});

}  // namespace
}  // namespace hyperloop::fuzz
