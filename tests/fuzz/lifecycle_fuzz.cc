// The life of objects under several rogue clients at once: queues, completion queues with events or
// without, and services are made, connected to any other, reset, broken and destroyed, and clients
// vanish, all at once or a part at a time, while WQEs of all of them run: WAIT and SEND_EN on any
// object of their owner, messages to queues that are gone, rings that others' messages rewrite,
// long transfers, and flushes of files and of persistent memory. Rules: no pointer dangles
// (AddressSanitizer), every call returns, the engine comes to rest, and two quiet clients are
// served as before.
//
// The WQEs are well formed; wqe_fuzz covers malformed ones.
#include <algorithm>
#include <optional>
#include <vector>

#include "fuzz/fuzz.h"
#include "fuzz/guarded_host.h"
#include "fuzz/held_disk.h"
#include "softrnic/engine/testing/adversarial_schedule.h"

namespace hyperloop::fuzz {
namespace {

constexpr size_t kRogues = 3, kMostQueues = 6;
constexpr size_t kUsed = 256 << 10;  // bytes of a rogue's arena

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
  kCreateEventCq,
  kArm,
  kRingAll,
  kPublish,
  kAsk,
  kFinishFlush,
  kInstructions
};

// A client whose one key covers its rings, too, so that its peers can rewrite them.
struct Rogue {
  // The memory of the second is a file, on a disk, and that of the third is persistent.
  Rogue(Engine& engine, size_t number)
      : client(engine, "rogue" + std::to_string(number), static_cast<rnic::Media>(number),
               FreshArena(static_cast<int>(number), kUsed), /*number=*/0, /*fd=*/-1,
               /*waits_for_disk=*/number == 1) {}
  Client client;
  std::vector<TestCq> cqs;
  std::vector<uint32_t> arms;  // registers of completion queues with events
  std::vector<TestQp> qps;
};
static_assert(static_cast<size_t>(rnic::Media::kPmem) == kRogues - 1);

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
    disk_.FinishAll();
    engine_.Run(3000);
    CheckQuietClientsAreServed();
  }

 private:
  EngineOptions Options(Reader& in) {
    const uint8_t mode = in.U8();
    EngineOptions options;
    options.now_ns = [this] { return now_; };
    if ((mode & 1) != 0) options.test.steps = RandomSteps;
    options.test.fetch = static_cast<EngineTestHooks::Fetch>((mode >> 1 & 3) % 3);
    options.test.defer_delivery = (mode & 8) != 0 && (mode & 1) != 0;
    options.test.retransmit = options.test.defer_delivery && (mode & 16) != 0;
    options.prefetch_depth = (mode & 32) != 0 ? 3 : 0;
    if ((mode & 64) != 0) options.flusher = &disk_;
    options.test.zero_byte_read_flushes = (mode & 128) != 0;
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
        if (TestQp* qp = PickOf(rogue.qps)) {
          std::byte* const at = Local(rogue);
          qp->Receive(rogue.client.At(at, in_.U8() < 128 ? 64 : 64 << 10));
        }
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
      case kCreateEventCq:
        if (rogue.cqs.size() < kMostQueues) CreateEventCq(rogue);
        break;
      case kArm:
        if (const uint32_t* arm = PickOf(rogue.arms)) Arm(rogue, *arm);
        break;
      case kRingAll:
        for (const TestQp& qp : rogue.qps) qp.Ring();
        for (const uint32_t arm : rogue.arms) Arm(rogue, arm);
        break;
      case kPublish:
        Publish(rogue);
        break;
      case kAsk:
        Ask(rogue);
        break;
      case kFinishFlush:
        disk_.FinishOne(in_.U8() < 200);
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
  void CreateEventCq(Rogue& rogue) {
    Client& client = rogue.client;
    TestCq cq;
    cq.depth = 4;
    cq.ring = reinterpret_cast<mlx5_cqe64*>(client.Allocate(cq.depth * 64));
    rnic::InitCqeRing(cq.ring, cq.depth);
    cq.dbrec = client.Allocate(64);
    CreateCqArgs args{};
    args.umem = client.umem, args.log_size = 2, args.events = 1;
    args.ring_addr = reinterpret_cast<uint64_t>(cq.ring);
    args.dbrec_addr = reinterpret_cast<uint64_t>(cq.dbrec);
    const auto made = engine_.CreateEventCq(client.id(), args, [this] { ++events_; });
    if (!made.ok()) return;  // no register is left
    cq.cqn = made->cqn;
    rogue.cqs.push_back(cq);
    rogue.arms.push_back(made->arm_index);
  }
  void Arm(Rogue& rogue, uint32_t arm) {
    UarPage* const page = rogue.client.uar();
    const uint8_t how = in_.U8();
    __atomic_store_n(&page->registers[arm], 1ull << 63 | ArmValue(how / 2, (how & 1) != 0),
                     __ATOMIC_RELEASE);
    __atomic_fetch_or(&page->header.summary[arm / 64], 1ull << (arm % 64), __ATOMIC_SEQ_CST);
  }
  void Publish(Rogue& rogue) {
    Command command = rogue.client.Make(Op::kPublish);
    const uint8_t how = in_.U8();
    const bool fresh = how / 64u == 2;  // a name that nobody offers yet
    const std::string name = fresh ? "n" + std::to_string(names_++) : std::string(1, 'a' + how % 4);
    name.copy(command.args.publish.service, sizeof command.args.publish.service - 1);
    command.args.publish.pdn = rogue.client.pdn;
    command.args.publish.private_length = how / 4u * 9;
    Reply reply;
    rogue.client.Try(command, &reply).IgnoreError();
  }
  void Ask(Rogue& rogue) {
    const TestQp* const qp = PickOf(rogue.qps);
    const uint8_t how = in_.U8();
    Command command = rogue.client.Make(Op::kConnectService);
    const std::string host = "rogue" + std::to_string(how % 4);  // one of them never comes
    std::strcpy(command.args.connect.host, host.c_str());
    command.args.connect.service[0] = static_cast<char>('a' + how / 4 % 4);
    command.args.connect.qpn = qp != nullptr ? qp->qpn : how;
    if ((how & 64) != 0 && qp != nullptr)  // a fresh one
      rogue.client.TryModify(*qp, QpState::kReset).IgnoreError();
    Reply reply;
    if (!rogue.client.Try(command, &reply).ok() || qp == nullptr) return;
    TestQp answerer;
    std::copy(std::begin(reply.result.connect.gid), std::end(reply.result.connect.gid),
              answerer.gid.begin());
    answerer.qpn = reply.result.connect.remote_qpn;
    rogue.client.TryModify(*qp, QpState::kInit, 0xf).IgnoreError();
    rogue.client.TryModify(*qp, QpState::kReadyToReceive, 0, &answerer).IgnoreError();
    rogue.client.TryModify(*qp, QpState::kReadyToSend).IgnoreError();
  }

  std::byte* Local(Rogue& rogue) { return rogue.client.memory + in_.U16() % 16384 * 8; }

  void Post(Rogue& rogue) {
    TestQp* const qp = PickOf(rogue.qps);
    if (qp == nullptr) return;
    const uint8_t kind = in_.U8();
    const CqeMode mode = (kind & 64) != 0 ? CqeMode::kAlways : CqeMode::kOnError;
    const size_t unit = (kind & 128) != 0 ? 8192 : 8;
    const Sge local = rogue.client.At(Local(rogue), unit * (1 + kind / 8 % 8));
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
    const uint8_t how = in_.U8();
    if ((how & 2) != 0) engine_.CloseContextPart(rogues_[which]->client.id(), how / 4u);
    if ((how & 1) != 0) engine_.Run(1 + in_.U8());
    rogues_[which].reset();
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
  uint64_t events_ = 0;
  HeldDisk disk_;
  Engine engine_;
  Client from_, to_;
  TestCq from_cq_, to_cq_;
  TestQp from_qp_, to_qp_;
  std::byte *word_, *target_;
  uint64_t round_ = 0, names_ = 0;
  std::vector<std::unique_ptr<Rogue>> rogues_;
};

std::vector<Input> Seeds() {
  std::vector<Input> seeds;
  for (const unsigned mode : {0u, 1u, 1u + 8u + 16u, 32u, 64u + 128u}) {
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
      out.U8(kReceive).U8(1).U8(0).U16(3000).U8(0);
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
    for (const unsigned kind : {1u, 2u, 3u, 5u}) {  // long, both ways, also to where it overlaps
      Writer out;
      begin(out);
      for (unsigned i : {0u, 1u}) out.U8(kReceive).U8(1).U8(i).U16(3000).U8(200);
      post(out, 0, 0, 128 + 64 + 56 + kind, 0, 0);
      post(out, 0, 1, 128 + 64 + kind, 0, 0);
      out.U8(kPost).U8(0).U8(0).U8(128 + 64 + 24 + kind).U16(4000).U8(0).U16(4100).U8(0).U8(0);
      out.U8(kRingAll).U8(0);
      run(out), run(out);
      post(out, 1, 0, 128 + 64 + 24 + kind, 0, 0);
      out.U8(kRing).U8(1).U8(0).U8(kRun).U8(0).U8(0).U8(2).U8(kDestroyKey).U8(0);
      run(out);
      seeds.push_back(out.Finish());
    }
    {
      Writer out;  // writes to a file and to persistent memory, each followed by a READ
      begin(out);
      out.U8(kCreateCq).U8(2).U8(0).U8(kCreateQp).U8(2).U8(0).U8(0).U8(0);
      out.U8(kModify).U8(0).U8(1).U8(0).U8(kConnect).U8(0).U8(1).U8(2).U8(0);
      out.U8(kConnect).U8(2).U8(0).U8(0).U8(1);
      const auto to = [&out](unsigned qp, unsigned kind, unsigned rogue, unsigned at) {
        out.U8(kPost).U8(0).U8(qp).U8(kind).U16(4000).U8(rogue).U16(at).U8(0).U8(0);
      };
      for (unsigned i = 0; i < 20; ++i)
        for (unsigned rogue : {1u, 2u}) to(rogue - 1, 64 + 1, rogue, 9000 + 100 * i);
      for (unsigned rogue : {1u, 2u}) {
        to(rogue - 1, 128 + 64 + 8 + 1, rogue, 5000);
        out.U8(kRing).U8(0).U8(rogue - 1);
        run(out);
        to(rogue - 1, 64 + 3, rogue, 5000);
        out.U8(kRing).U8(0).U8(rogue - 1);
        run(out);
      }
      for (unsigned how : {0u, 0u, 255u, 0u}) {
        out.U8(kFinishFlush).U8(0).U8(how);
        run(out);
      }
      out.U8(kVanish).U8(0).U8(1).U8(2 + 4 * 3).U8(0);
      run(out);
      seeds.push_back(out.Finish());
    }
    {
      Writer out;  // completion queues with events, armed before and after
      out.U8(mode);
      for (unsigned rogue : {0u, 1u}) {
        for (int i = 0; i < 3; ++i) out.U8(kCreateEventCq).U8(rogue);
        out.U8(kCreateQp).U8(rogue).U8(0).U8(1).U8(0);
      }
      out.U8(kConnect).U8(0).U8(0).U8(1).U8(0).U8(kConnect).U8(1).U8(0).U8(0).U8(0);
      out.U8(kArm).U8(0).U8(0).U8(0).U8(kArm).U8(0).U8(1).U8(1);
      for (int i = 0; i < 6; ++i) post(out, 0, 0, 64 + 1, 0, 0);
      for (int i = 0; i < 6; ++i) {
        out.U8(kRingAll).U8(0).U8(0).U8(1).U8(2);
        run(out);
      }
      out.U8(kDestroyCq).U8(0).U8(2).U8(kModify).U8(0).U8(0).U8(0);
      run(out);
      seeds.push_back(out.Finish());
    }
    {
      Writer out;  // services, of others and of nobody
      begin(out);
      for (unsigned how : {0u, 5u, 250u}) out.U8(kPublish).U8(1).U8(how);
      out.U8(kPublish).U8(0).U8(0);
      for (int i = 0; i < 70; ++i) out.U8(kPublish).U8(2).U8(128);  // more than a host may offer
      for (unsigned how : {64u + 1, 1u, 64u + 3, 64u + 9, 64u + 0, 64u + 1})
        out.U8(kAsk).U8(0).U8(0).U8(how);
      post(out, 0, 0, 64 + 3, 0, 0);
      out.U8(kRing).U8(0).U8(0);
      run(out);
      out.U8(kAsk).U8(0).U8(1).U8(64 + 1).U8(kVanish).U8(0).U8(1).U8(0);
      run(out);
      out.U8(kAsk).U8(0).U8(1).U8(64 + 1).U8(kDestroyQp).U8(0).U8(0);
      seeds.push_back(out.Finish());
    }
  }
  return seeds;
}

const FuzzTarget kFuzzTarget("lifecycle", Seeds, [](Reader& in) {
  AbortOnFailedExpectation();
  World(in).Run();
});

}  // namespace
}  // namespace hyperloop::fuzz
