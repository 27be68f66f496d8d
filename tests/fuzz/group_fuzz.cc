// A hostile primary: it sends messages of any content to the members of a group, and infos of any
// content to their Connect. It may damage the members' own region and rings, whose keys it has
// (HyperLoop §4.1). Rules: nothing else in the replicas' processes changes (other protection
// domains, memory beside the registered range), nothing is read out of bounds, no call hangs, and
// other users of the same RNIC are served.
//
// Keys and addresses differ from run to run, so an input does not hold messages. It says which
// operations a primary's PatchMessages encodes, and which bytes of each message are then changed.
//
// The messages of the cpu datapaths hold no keys but in their check. They are fuzzed as bytes: one
// that a member accepts leaves its region nowhere, and says the same when it is encoded again. The
// ring in which they arrive is fuzzed under a whole member: its writer puts there what it likes,
// and makes the check right or not.
#include <algorithm>

#include "fuzz/fuzz.h"
#include "group/cpu_member.h"
#include "group/cpu_message.h"
#include "group/offload_member.h"
#include "group/patch_messages.h"
#include "softrnic/embedded/embedded.h"
#include "softrnic/engine/testing/adversarial_schedule.h"
#include "support/must.h"

namespace hyperloop::fuzz {
namespace {

constexpr uint64_t kRegion = 4096;
constexpr uint64_t kGuard = 512;
constexpr std::byte kGuardByte{0xa5};
constexpr uint32_t kWindow = 2;
constexpr uint32_t kAllRights =
    rnic::kLocalWrite | rnic::kRemoteWrite | rnic::kRemoteRead | rnic::kRemoteAtomic;

// One emulated host: a region between guards, and another protection domain with all rights over
// memory of its own.
struct Host {
  Host(softrnic::EmbeddedRnic& rnic, const std::string& name)
      : device(Must(rnic.OpenDevice(name))),
        pd(Must(device->AllocatePd())),
        memory(Must(device->AllocateBuffer(kRegion + 2 * kGuard))),
        region(Must(pd->Register(memory->data() + kGuard, kRegion, kAllRights, {}))),
        other_pd(Must(device->AllocatePd())),
        other(Must(device->AllocateBuffer(4096))),
        other_mr(Must(other_pd->Register(other->data(), 4096, kAllRights, {}))),
        cq(Must(device->CreateCq({.depth = 64, .ignore_overrun = true}))) {
    std::memset(memory->data(), std::to_integer<int>(kGuardByte), kGuard);
    std::memset(memory->data() + kGuard + kRegion, std::to_integer<int>(kGuardByte), kGuard);
    std::memset(other->data(), std::to_integer<int>(kGuardByte), 4096);
  }
  std::unique_ptr<rnic::QueuePair> Queue(uint32_t receives) const {
    rnic::QpAttr attr;
    attr.send_cq = attr.recv_cq = cq.get();
    attr.send_wqebbs = 64;
    attr.recv_wqes = receives;
    return Must(pd->CreateQueuePair(attr));
  }
  void CheckUntouched() const {
    for (uint64_t i = 0; i < kGuard; ++i)
      HL_FUZZ_CHECK(
          memory->data()[i] == kGuardByte && memory->data()[kGuard + kRegion + i] == kGuardByte,
          "memory beside the region changed");
    for (uint64_t i = 0; i < 4096; ++i)
      HL_FUZZ_CHECK(other->data()[i] == kGuardByte, "memory of another protection domain changed");
  }

  std::unique_ptr<rnic::Device> device;
  std::unique_ptr<rnic::ProtectionDomain> pd;
  std::unique_ptr<rnic::Buffer> memory;
  std::unique_ptr<rnic::MemoryRegion> region;
  std::unique_ptr<rnic::ProtectionDomain> other_pd;
  std::unique_ptr<rnic::Buffer> other;
  std::unique_ptr<rnic::MemoryRegion> other_mr;
  std::unique_ptr<rnic::CompletionQueue> cq;
  std::unique_ptr<Member> member;  // last: goes first
};

class Madness {
 public:
  explicit Madness(Reader& in) : in_(in), rnic_(Options(in)), primary_(rnic_, "primary") {
    const uint8_t shape = in_.U8();
    size_ = 1 + shape % 3u;
    program_ = SlotProgram::For(Must(GroupGeometry::For(Datapath::kOffload, size_, kWindow, 0)));
    program_.order = shape < 128 ? FlushOrder::kPipelined : FlushOrder::kHopByHop;
    for (uint32_t i = 0; i < size_; ++i) {
      replicas_.push_back(std::make_unique<Host>(rnic_, "r" + std::to_string(i)));
      Host& host = *replicas_.back();
      host.member = Must(OffloadMember::Create(*host.device, *host.pd, *host.region, i, program_));
      chain_.push_back(host.member->info());
    }
    down_ = primary_.Queue(0);
    ack_ = primary_.Queue(16);
    for (uint32_t i = 0; i + 1 < size_; ++i) {
      proofs_.push_back(primary_.Queue(16));
      info_.direct_qpn[i] = proofs_[i]->qpn();
    }
    info_.down_qpn = down_->qpn();
    info_.ack_qpn = ack_->qpn();
    info_.group_size = size_;
    info_.gid = primary_.device->gid().raw;
    info_.ack_addr = primary_.region->addr();
    info_.ack_size = kRegion;
    info_.ack_rkey = primary_.region->rkey();
    info_.window = program_.geometry.window;
    info_.slots = program_.geometry.slots;
  }

  void Run() {
    if (in_.U8() < 40) SendInfos();
    bool connected = true;
    for (auto& host : replicas_) {
      if (host->member == nullptr) continue;
      connected &= host->member->Connect(info_, chain_).ok();
    }
    if (connected) {
      HL_FUZZ_CHECK(down_->Connect({{chain_[0].gid}, chain_[0].up_qpn}).ok(), "connect");
      HL_FUZZ_CHECK(ack_->Connect({{chain_.back().gid}, chain_.back().down_qpn}).ok(), "connect");
      for (uint32_t i = 0; i + 1 < size_; ++i)
        HL_FUZZ_CHECK(proofs_[i]->Connect({{chain_[i].gid}, chain_[i].ack_qpn}).ok(), "connect");
      SendMessages();
    }
    Step(2000);
    for (auto& host : replicas_) host->CheckUntouched();
    CheckOthersAreServed();
    replicas_.clear();  // teardown while requests are still running
    Step(200);
  }

 private:
  static softrnic::EngineOptions Options(Reader& in) {
    softrnic::EngineOptions options;
    const uint8_t mode = in.U8();
    using Fetch = softrnic::EngineTestHooks::Fetch;
    if ((mode & 1) != 0) options.test.fetch = Fetch::kEarly;
    if ((mode & 2) != 0) options.test.steps = softrnic::RandomSteps;
    options.test.defer_delivery = (mode & 6) == 6;
    options.test.check_wqe_index = (mode & 8) == 0;
    return options;
  }

  void Step(size_t steps) { rnic_.engine().Run(steps); }

  // Calls Connect with infos in which some bytes are changed: refused with a reason, or harmless.
  void SendInfos() {
    PrimaryInfo primary = info_;
    std::vector<MemberInfo> chain = chain_;
    for (unsigned n = in_.U8() % 8u; n > 0; --n) {
      const uint16_t at = in_.U16();
      auto* const bytes = (at & 1) != 0 ? reinterpret_cast<uint8_t*>(&primary)
                                        : reinterpret_cast<uint8_t*>(chain.data());
      const size_t size = (at & 1) != 0 ? sizeof(primary) : chain.size() * sizeof(MemberInfo);
      bytes[(at >> 1) % size] = in_.U8();
    }
    if (const uint8_t length = in_.U8(); length >= 128) chain.resize(length % 10u);
    for (auto& host : replicas_) {
      const Status status = host->member->Connect(primary, chain);
      if (!status.ok()) HL_FUZZ_CHECK(!status.message().empty(), "a refusal without a reason");
    }
  }

  void SendMessages() {
    PatchMessages messages(program_);
    // Also holds the data that operations write.
    auto buffer = Must(primary_.device->AllocateBuffer(messages.memory_bytes()));
    auto mr = Must(primary_.pd->Register(buffer->data(), buffer->size(), rnic::kLocalWrite, {}));
    messages.PlaceIn(buffer->data(), info_, chain_);
    for (uint64_t m = 0; m < 24 && !in_.done(); ++m) {
      Operation operation = Pick();
      operation.flush = in_.U8() < 128;
      messages.Encode(m, operation);
      std::byte* const message = messages.message(m);
      uint32_t length = messages.message_bytes();
      for (unsigned n = in_.U8() % 16u; n > 0; --n) {
        const uint16_t at = in_.U16();
        message[at % length] = static_cast<std::byte>(in_.U8());
      }
      const uint8_t how = in_.U8();
      if (how > 250) length = 1 + in_.U16() % length;
      rnic::Sge sge{reinterpret_cast<uint64_t>(message), length, mr->lkey()};
      rnic::SendRequest send{.id = m, .opcode = rnic::Opcode::kSend};
      send.sges = {&sge, 1};
      if (!down_->Post({&send, 1}).ok()) break;
      if (how < 200) Step(how);
    }
    Step(3000);
    down_->Reset().IgnoreError();  // before the messages go
  }

  Operation Pick() {
    Operation operation;
    const uint8_t parts = in_.U8();
    // Some reach beyond the region, which no primary of ours would send.
    const auto offset = [&] { return in_.U8() * 17u / 8 * 8; };
    if ((parts & 1) != 0) operation.write = {offset(), 1u + in_.U8()};
    if ((parts & 2) != 0) operation.copy = {offset(), offset(), 1u + in_.U8()};
    if ((parts & 4) != 0) operation.cas = {true, offset(), in_.U8(), in_.U8(), in_.U8()};
    return operation;
  }

  void CheckOthersAreServed() {
    Host a(rnic_, "quiet-a"), b(rnic_, "quiet-b");
    auto from = a.Queue(0), to = b.Queue(0);
    HL_FUZZ_CHECK(from->Connect(to->address()).ok() && to->Connect(from->address()).ok(),
                  "connect");
    a.memory->data()[kGuard] = std::byte{0x5a};
    rnic::Sge sge{a.region->addr(), 8, a.region->lkey()};
    rnic::SendRequest write{.id = 1, .opcode = rnic::Opcode::kWrite, .signaled = true};
    write.sges = {&sge, 1};
    write.remote_addr = b.region->addr();
    write.rkey = b.region->rkey();
    HL_FUZZ_CHECK(from->Post({&write, 1}).ok(), "post");
    rnic::Completion done;
    size_t polled = 0;
    for (int i = 0; i < 1000 && polled == 0; ++i) {
      Step(100);
      polled = Must(a.cq->Poll({&done, 1}));
    }
    HL_FUZZ_CHECK(polled == 1 && done.status == rnic::WcStatus::kSuccess, "not served");
    HL_FUZZ_CHECK(b.memory->data()[kGuard] == std::byte{0x5a}, "not written");
  }

  Reader& in_;
  softrnic::EmbeddedRnic rnic_;
  Host primary_;
  uint32_t size_ = 1;
  SlotProgram program_;
  std::vector<std::unique_ptr<Host>> replicas_;
  std::vector<MemberInfo> chain_;
  std::unique_ptr<rnic::QueuePair> down_, ack_;
  std::vector<std::unique_ptr<rnic::QueuePair>> proofs_;  // by replica
  PrimaryInfo info_;
};

// The first byte.
constexpr uint8_t kCpuMessageInput = 255, kCpuRingInput = 254;
constexpr uint64_t kCpuSequence = 7;

void DecodeOne(const CpuMessage& message) {
  constexpr uint32_t kGroupSize = 3;
  Operation op;
  const Status good = DecodeCpuMessage(message, kCpuSequence, kRegion, kGroupSize, &op);
  if (!good.ok()) {
    HL_FUZZ_CHECK(!good.message().empty(), "a refusal without a reason");
    return;
  }
  const auto inside = [](uint64_t offset, uint64_t size) {
    return offset <= kRegion && size <= kRegion - offset;
  };
  HL_FUZZ_CHECK(inside(op.write.offset, op.write.size), "gWRITE");
  HL_FUZZ_CHECK(op.copy.size == 0 || (inside(op.copy.source, op.copy.size) &&
                                      inside(op.copy.destination, op.copy.size)),
                "gMEMCPY");
  HL_FUZZ_CHECK(!op.cas.present || inside(op.cas.offset, sizeof(uint64_t)), "gCAS");
  const CpuMessage again = EncodeCpuMessage(kCpuSequence, op);
  HL_FUZZ_CHECK(std::memcmp(&again, &message, offsetof(CpuMessage, reserved)) == 0,
                "what was decoded is not what was sent");
}

// What the writer of a ring does for one message: bytes of the input, of which some are made right.
enum RingFlags : unsigned { kRightNumber = 1, kRightCheck = 2, kRightEnd = 4 };

// A replica of cpu-polling alone in its group, whose ring is written by an enemy.
class RingMadness {
 public:
  explicit RingMadness(Reader& in) : in_(in), primary_(rnic_, "primary"), replica_(rnic_, "r0") {
    const GroupGeometry geometry = Must(GroupGeometry::For(Datapath::kCpuPolling, 1, kWindow, 0));
    auto member = Must(CpuMember::Create(*replica_.device, *replica_.pd, *replica_.region,
                                         {.datapath = Datapath::kCpuPolling, .window = kWindow},
                                         geometry, CpuMember::Driver::kCaller));
    member_ = static_cast<CpuMember*>(member.get());
    replica_.member = std::move(member);
    down_ = primary_.Queue(0);
    ack_ = primary_.Queue(16);
    PrimaryInfo info;
    info.datapath = static_cast<uint32_t>(Datapath::kCpuPolling);
    info.group_size = 1;
    info.gid = primary_.device->gid().raw;
    info.down_qpn = down_->qpn();
    info.ack_qpn = ack_->qpn();
    info.ack_addr = primary_.region->addr();
    info.ack_size = kRegion;
    info.ack_rkey = primary_.region->rkey();
    info.window = geometry.window;
    info.slots = geometry.slots;
    const MemberInfo& own = member_->info();
    HL_FUZZ_CHECK(member_->Connect(info, {&own, 1}).ok(), "connect");
    HL_FUZZ_CHECK(ack_->Connect({{own.gid}, own.down_qpn}).ok(), "connect");
  }

  void Run() {
    for (uint64_t sequence = 1; sequence <= 20 && !in_.done();) {
      Write(sequence);
      const auto taken = member_->Turn();
      if (!taken.ok()) {
        HL_FUZZ_CHECK(!taken.status().message().empty(), "a refusal without a reason");
        HL_FUZZ_CHECK(!member_->Turn().ok(), "it goes on behind an error");
        break;
      }
      sequence += *taken != 0;
      rnic_.engine().Run(200);
    }
    replica_.CheckUntouched();
    primary_.CheckUntouched();
  }

 private:
  // Puts bytes where message number `sequence` is due.
  void Write(uint64_t sequence) {
    const MemberInfo& own = member_->info();
    auto* const ring = reinterpret_cast<std::byte*>(own.staging_addr);
    const uint32_t slot = static_cast<uint32_t>((sequence - 1) & (own.slots - 1));
    const CpuPlace place(ring + size_t{slot + 1} * CpuSlotBytes(1), 1);
    const unsigned flags = in_.U8();
    place.message() = in_.Get<CpuMessage>();
    in_.Fill(place.results(), sizeof(ReplicaResult));
    if ((flags & kRightNumber) != 0) place.message().result.sequence = sequence;
    const uint32_t carried = CarriedBytes(place.message().write_size);
    in_.Fill(place.carried(carried), std::min<size_t>(carried, in_.U8()));
    if ((flags & kRightCheck) != 0) {
      CheckedMessage(place, {place.carried(carried), carried}).Finish(CpuRingSeed(own));
    } else {
      place.tail().check = in_.U64();
    }
    if ((flags & kRightEnd) == 0) place.tail().sequence = in_.U64();
  }

  Reader& in_;
  softrnic::EmbeddedRnic rnic_;
  Host primary_, replica_;
  CpuMember* member_ = nullptr;
  std::unique_ptr<rnic::QueuePair> down_, ack_;
};

std::vector<Input> Seeds() {
  std::vector<Input> seeds;
  Operation write, copy, cas;
  write.write = {8, 100};
  write.flush = true;
  copy.copy = {0, 2048, 2048};
  cas.cas = {true, 64, 1, 2, 5};
  for (const Operation& op : {write, copy, cas}) {
    const CpuMessage message = EncodeCpuMessage(kCpuSequence, op);
    seeds.push_back(Writer().U8(kCpuMessageInput).Put(message).Finish());
    Writer ring;
    ring.U8(kCpuRingInput);
    for (unsigned m = 0; m < 3; ++m) {
      ring.U8(kRightNumber | kRightCheck | kRightEnd).Put(message).Put(ReplicaResult{});
      ring.U8(8).U64(m);  // of what it carries
    }
    ring.U8(kRightNumber).Put(message).Put(ReplicaResult{}).U8(0).U64(1).U64(4);
    seeds.push_back(ring.Finish());
  }
  for (const unsigned mode : {0u, 1u, 2u, 6u}) {
    for (const unsigned size : {1u, 2u, 3u}) {
      Writer out;
      out.U8(mode).U8(size - 1).U8(255);
      for (unsigned m = 0; m < 12; ++m) {
        out.U8(m % 8);  // parts
        if ((m & 1) != 0) out.U8(m).U8(100);
        if ((m & 2) != 0) out.U8(m).U8(m).U8(50);
        if ((m & 4) != 0) out.U8(m).U8(0).U8(m).U8(7);
        out.U8(m % 2 != 0 ? 0 : 255).U8(0).U8(150);  // flush, nothing changed, steps
      }
      seeds.push_back(out.Finish());
    }
  }
  Writer infos;
  infos.U8(0).U8(2).U8(0).U8(2).U16(1).U8(9).U16(8).U8(9).U8(0);
  seeds.push_back(infos.Finish());
  for (const unsigned part :
       {1u, 2u, 3u}) {  // across the region's end: at the primary, at replicas
    Writer beyond;
    beyond.U8(0).U8(2).U8(255).U8(part).U8(part == 2 ? 0 : 239).U8(part == 2 ? 239 : 63);
    if (part == 2) beyond.U8(63);
    if (part == 3) beyond.U8(0).U8(239).U8(63);
    beyond.U8(255).U8(0).U8(150);
    seeds.push_back(beyond.Finish());
  }
  Writer short_chain;
  short_chain.U8(0).U8(2).U8(0).U8(0).U8(130);
  seeds.push_back(short_chain.Finish());
  return seeds;
}

const FuzzTarget kFuzzTarget("group", Seeds, [](Reader& in) {
  if (in.Next() == kCpuMessageInput) {
    in.U8();
    DecodeOne(in.Get<CpuMessage>());
  } else if (in.Next() == kCpuRingInput) {
    in.U8();
    RingMadness(in).Run();
  } else {
    Madness(in).Run();
  }
});

}  // namespace
}  // namespace hyperloop::fuzz
