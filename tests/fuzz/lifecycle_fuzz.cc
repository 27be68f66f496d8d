// The life of objects under several rogue clients at once: queues and completion queues are made,
// connected to any other, reset, broken and destroyed, and clients vanish, while WQEs of all of
// them run: WAIT and SEND_EN on any object of their owner, messages to queues that are gone, rings
// that others' messages rewrite. Rules: no pointer dangles (AddressSanitizer), every call returns,
// the engine comes to rest, and two quiet clients are served as before.
//
// The WQEs are well formed; wqe_fuzz covers malformed ones.
#include <algorithm>
#include <optional>
#include <vector>

#include "fuzz/fuzz.h"
#include "fuzz/guarded_host.h"

namespace hyperloop::fuzz {
namespace {

constexpr size_t kRogues = 3, kMostQueues = 6;

enum Instruction : uint8_t {
  kCreateCq,
  kCreateQp,
  kConnect,
  kPost,
  kReceive,
  kRing,
  kRun,
  kModify,
  kDestroyQp,
  kDestroyCq,
  kVanish,
  kDestroyKey,
  kInstructions
};

// A client whose one key covers its rings, too, so that its peers can rewrite them.
struct Rogue {
  Rogue(Engine& engine, size_t number)
      : client(engine, "rogue" + std::to_string(number), rnic::Media::kRam,
               FreshArena(static_cast<int>(number))) {}
  Client client;
  std::vector<TestCq> cqs;
  std::vector<TestQp> qps;
};

class World {
 public:
  explicit World(Reader& in)
      : in_(in), engine_(Options(in)), from_(engine_, "from"), to_(engine_, "to") {
    for (size_t i = 0; i < kRogues; ++i) rogues_.emplace_back(std::make_unique<Rogue>(engine_, i));
    from_cq_ = from_.Cq(), to_cq_ = to_.Cq();
    from_qp_ = from_.Qp(from_cq_, from_cq_), to_qp_ = to_.Qp(to_cq_, to_cq_);
    from_.Connect(from_qp_, to_qp_), to_.Connect(to_qp_, from_qp_);
    word_ = from_.Allocate(8), target_ = to_.Allocate(8);
  }

  void Run() {
    for (int i = 0; i < 300 && !in_.done(); ++i) Step();
    CheckQuietClientsAreServed();
    for (auto& rogue : rogues_) rogue.reset();
    engine_.Run(3000);
    CheckQuietClientsAreServed();
  }

 private:
  EngineOptions Options(Reader& in) {
    const uint8_t mode = in.U8();
    EngineOptions options;
    options.now_ns = [this] { return now_; };
    options.schedule =
        (mode & 1) != 0 ? EngineOptions::Schedule::kRandom : EngineOptions::Schedule::kRunToStall;
    options.fetch = static_cast<EngineOptions::Fetch>((mode >> 1 & 3) % 3);
    options.defer_delivery = (mode & 8) != 0 && (mode & 1) != 0;
    options.retransmit = options.defer_delivery && (mode & 16) != 0;
    options.prefetch_depth = (mode & 32) != 0 ? 3 : 0;
    return options;
  }

  Rogue& Pick() { return *rogues_[in_.U8() % kRogues]; }
  template <class T>
  T* PickOf(std::vector<T>& all) {
    return all.empty() ? nullptr : &all[in_.U8() % all.size()];
  }
  // Memory of anybody: data, or the rings that lie in front of it.
  std::pair<uint64_t, uint32_t> Target() {
    Rogue& rogue = Pick();
    return {reinterpret_cast<uint64_t>(rogue.client.memory) + in_.U16() % 16384 * 8,
            rogue.client.rkey};
  }

  void Step() {
    const uint8_t what = in_.U8() % kInstructions;
    Rogue& rogue = Pick();
    switch (what) {
      case kCreateCq:
        if (rogue.cqs.size() < kMostQueues) rogue.cqs.push_back(rogue.client.Cq(2, in_.U8() < 128));
        break;
      case kCreateQp:
        CreateQp(rogue);
        break;
      case kConnect:
        Connect(rogue);
        break;
      case kPost:
        Post(rogue);
        break;
      case kReceive:
        if (TestQp* qp = PickOf(rogue.qps)) qp->Receive(rogue.client.At(Local(rogue), 64));
        break;
      case kRing:
        if (TestQp* qp = PickOf(rogue.qps)) qp->Ring();
        break;
      case kRun:
        now_ += in_.U8() * 1'000'000ull;
        engine_.Run(1 + in_.U8());
        break;
      case kModify:
        if (TestQp* qp = PickOf(rogue.qps)) Modify(rogue, *qp);
        break;
      case kDestroyQp:
        Destroy(rogue, &rogue.qps, Op::kDestroyQp, [](const TestQp& qp) { return qp.qpn; });
        break;
      case kDestroyCq:
        Destroy(rogue, &rogue.cqs, Op::kDestroyCq, [](const TestCq& cq) { return cq.cqn; });
        break;
      case kVanish:
        Vanish();
        break;
      default:
        rogue.client.Destroy(Op::kDestroyMkey, rogue.client.lkey).IgnoreError();
    }
  }

  void CreateQp(Rogue& rogue) {
    const TestCq* send = PickOf(rogue.cqs);
    const TestCq* receive = PickOf(rogue.cqs);
    if (send == nullptr || rogue.qps.size() >= kMostQueues) return;
    QpSpec spec;
    spec.log_sq = 4, spec.log_rq = 2, spec.max_read_atomic = 2;
    spec.ack_timeout_ms = 8, spec.retry_count = 1, spec.rnr_retry = 1;
    spec.flags = in_.U8() & (kQpMaster | kQpSlaveSend);
    rogue.qps.push_back(rogue.client.Qp(*send, *receive, spec));
  }
  void Connect(Rogue& rogue) {
    TestQp* const qp = PickOf(rogue.qps);
    Rogue& peer = Pick();
    const TestQp* const to = PickOf(peer.qps);
    if (qp == nullptr || to == nullptr) return;
    rogue.client.TryModify(*qp, QpState::kReadyToReceive, 0, to).IgnoreError();
    rogue.client.TryModify(*qp, QpState::kReadyToSend).IgnoreError();
  }
  std::byte* Local(Rogue& rogue) { return rogue.client.memory + in_.U16() % 16384 * 8; }

  void Post(Rogue& rogue) {
    TestQp* const qp = PickOf(rogue.qps);
    if (qp == nullptr) return;
    const uint8_t kind = in_.U8();
    const CqeMode mode = (kind & 64) != 0 ? CqeMode::kAlways : CqeMode::kOnError;
    const Sge local = rogue.client.At(Local(rogue), 8 * (1 + kind / 8 % 8));
    const auto [address, rkey] = Target();
    const TestCq* const cq = PickOf(rogue.cqs);
    const TestQp* const enabled = PickOf(rogue.qps);
    switch (kind % 8) {
      case 0:
        return qp->Nop(mode);
      case 1:
        return qp->Write(address, rkey, local, mode);
      case 2:
        return qp->Send(local, mode);
      case 3:
        return qp->Read(address, rkey, local, mode);
      case 4:
        return qp->Add(address, rkey, 1, {local.addr, 8, local.lkey}, mode);
      case 5:
        return qp->WriteImm(address, rkey, local, 7, mode);
      case 6:
        if (cq != nullptr) qp->Wait(*cq, cq->consumer + in_.U8() % 4, mode);
        return;
      default:
        qp->Enable(*enabled, static_cast<uint16_t>(enabled->next + in_.U8() % 4 - 1), mode);
    }
  }

  void Modify(Rogue& rogue, const TestQp& qp) {
    const bool reset = in_.U8() < 128;
    rogue.client.TryModify(qp, reset ? QpState::kReset : QpState::kError).IgnoreError();
    if (reset) rogue.client.TryModify(qp, QpState::kInit, 0xf).IgnoreError();
  }

  template <class T, class Number>
  void Destroy(Rogue& rogue, std::vector<T>* all, Op op, Number number) {
    if (all->empty()) return;
    const auto at = all->begin() + in_.U8() % all->size();
    // Refused while others use it.
    if (rogue.client.Destroy(op, number(*at)).ok()) all->erase(at);
  }
  // A client dies with all of its objects, and another one comes.
  void Vanish() {
    const size_t which = in_.U8() % kRogues;
    rogues_[which].reset();
    if ((in_.U8() & 1) != 0) engine_.Run(1 + in_.U8());
    rogues_[which] = std::make_unique<Rogue>(engine_, which);
  }

  void CheckQuietClientsAreServed() {
    const uint64_t value = ++round_;
    std::memcpy(word_, &value, sizeof value);
    from_qp_.Write(reinterpret_cast<uint64_t>(target_), to_.rkey, from_.At(word_, 8),
                   CqeMode::kAlways);
    from_qp_.Ring();
    std::optional<rnic::Completion> done;
    for (int i = 0; i < 1000 && !done; ++i) {
      engine_.Run(100);
      done = from_cq_.Poll();
    }
    HL_FUZZ_CHECK(done.has_value(), "a quiet client's WRITE does not complete");
    HL_FUZZ_CHECK(done->status == rnic::WcStatus::kSuccess, rnic::WcStatusName(done->status));
    from_cq_.Release();
    HL_FUZZ_CHECK(std::memcmp(target_, &value, sizeof value) == 0, "a WRITE went elsewhere");
  }

  Reader& in_;
  uint64_t now_ = 1;
  Engine engine_;
  Client from_, to_;
  TestCq from_cq_, to_cq_;
  TestQp from_qp_, to_qp_;
  std::byte *word_, *target_;
  uint64_t round_ = 0;
  std::vector<std::unique_ptr<Rogue>> rogues_;
};

}  // namespace

std::vector<Input> Seeds() {
  std::vector<Input> seeds;
  for (const unsigned mode : {0u, 1u, 1u + 8u + 16u, 32u}) {
    const auto begin = [&](Writer& out) {
      out.U8(mode);
      for (unsigned rogue : {0u, 1u}) {
        out.U8(kCreateCq).U8(rogue).U8(0).U8(kCreateCq).U8(rogue).U8(200);
        for (int i = 0; i < 2; ++i) out.U8(kCreateQp).U8(rogue).U8(0).U8(1).U8(0xff);
      }
      for (unsigned i : {0u, 1u}) {
        out.U8(kConnect).U8(0).U8(i).U8(1).U8(i);
        out.U8(kConnect).U8(1).U8(i).U8(0).U8(i);
      }
    };
    const auto post = [](Writer& out, unsigned rogue, unsigned qp, unsigned kind, unsigned object,
                         unsigned count) {
      out.U8(kPost).U8(rogue).U8(qp).U8(kind).U16(4000).U8(1 - rogue).U16(5000).U8(object).U8(
          object);
      out.U8(count);
    };
    const auto run = [](Writer& out) { out.U8(kRun).U8(0).U8(1).U8(250); };
    {
      Writer out;  // a queue that enables itself and waits
      begin(out);
      post(out, 0, 0, 7, 0, 3);
      post(out, 0, 0, 6, 0, 3);
      out.U8(kRing).U8(0).U8(0);
      run(out);
      out.U8(kDestroyQp).U8(0).U8(0);
      run(out);
      seeds.push_back(out.Finish());
    }
    {
      Writer out;  // messages both ways, then one end vanishes
      begin(out);
      out.U8(kReceive).U8(1).U8(0).U16(3000);
      for (unsigned kind : {64u + 1, 64u + 2, 64u + 3, 64u + 4}) post(out, 0, 0, kind, 0, 0);
      out.U8(kRing).U8(0).U8(0);
      run(out);
      out.U8(kVanish).U8(0).U8(1).U8(1).U8(20);
      run(out);
      out.U8(kModify).U8(0).U8(0).U8(0).U8(kDestroyCq).U8(0).U8(0);
      seeds.push_back(out.Finish());
    }
    {
      Writer out;  // two queues wait for one CQ that is destroyed
      begin(out);
      post(out, 0, 0, 6, 1, 3);
      post(out, 0, 1, 6, 1, 3);
      out.U8(kRing).U8(0).U8(0).U8(kRing).U8(0).U8(1);
      run(out);
      out.U8(kModify).U8(0).U8(1).U8(200).U8(kDestroyCq).U8(0).U8(1).U8(kDestroyQp).U8(0).U8(0);
      run(out);
      seeds.push_back(out.Finish());
    }
  }
  return seeds;
}

}  // namespace hyperloop::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hyperloop::fuzz::AbortOnFailedExpectation();
  hyperloop::fuzz::Reader in(data, size);
  hyperloop::fuzz::World(in).Run();
  return 0;
}
