#include "group/offload_member.h"

#include <array>

#include "group/infos.h"
#include "hyperloop/core/out_of_memory.h"
#include "hyperloop/core/text.h"

namespace hyperloop {

using rnic::Sge;

namespace {

rnic::QpAttr ManagedQueue(rnic::CompletionQueue* send_cq, rnic::CompletionQueue* recv_cq,
                          uint32_t blocks) {
  rnic::QpAttr attr;
  attr.send_cq = send_cq;
  attr.recv_cq = recv_cq;
  attr.send_wqebbs = blocks;
  attr.recv_wqes = 0;
  attr.link_timeout = kMemberPatience;
  attr.cross_channel = true;
  attr.managed_send = true;
  return attr;
}

}  // namespace

Result<std::unique_ptr<Member>> OffloadMember::Create(rnic::Device& device,
                                                      rnic::ProtectionDomain& pd,
                                                      rnic::MemoryRegion& region, uint32_t position,
                                                      const SlotProgram& program) {
  const rnic::Caps& caps = device.caps();
  if (!caps.cross_channel || !caps.ignore_cq_overrun) {
    return NotSupported(Text(
        "the offload datapath needs an RNIC with cross-channel operations (WAIT, SEND_EN, managed "
        "queues, ignored CQ overrun); provider '",
        caps.provider, "' has none: use another device or another datapath"));
  }
  if (caps.max_sge != 0 && caps.max_sge < kMaxReceiveSges) {
    return NotSupported(Text("a slot's receive scatters to up to ", kMaxReceiveSges,
                             " places; provider '", caps.provider, "' allows ", caps.max_sge));
  }
  HL_RETURN_IF_ERROR(CheckRegion(region));
  std::unique_ptr<OffloadMember> member(new OffloadMember(position, program));
  HL_RETURN_IF_ERROR(
      member->Build(device, pd, region).WithContext("setting up the replica's queues"));
  return std::unique_ptr<Member>(std::move(member));
}

Status OffloadMember::Build(rnic::Device& device, rnic::ProtectionDomain& pd,
                            rnic::MemoryRegion& region) {
  const size_t staging_bytes = size_t{geometry_.slots} * program_.staging_bytes(position_) +
                               kSinkBytes + geometry_.slots * kFlushReadBytes;
  HL_ASSIGN_OR_RETURN(staging_, device.AllocateBuffer(staging_bytes));
  HL_ASSIGN_OR_RETURN(staging_mr_, pd.Register(staging_->data(), staging_->size(),
                                               rnic::kLocalWrite | rnic::kRemoteRead, {}));
  HL_ASSIGN_OR_RETURN(receive_cq_, device.CreateCq({.depth = 64, .ignore_overrun = true}));
  HL_ASSIGN_OR_RETURN(error_cq_, device.CreateCq({.depth = 64, .ignore_overrun = true}));
  HL_ASSIGN_OR_RETURN(flush_cq_, device.CreateCq({.depth = 64, .ignore_overrun = true}));

  const uint32_t down_blocks = program_.down_blocks(position_);
  rnic::QpAttr down = ManagedQueue(flush_cq_.get(), flush_cq_.get(), down_blocks * geometry_.slots);
  down.remote_access = 0;  // the next node only answers
  HL_ASSIGN_OR_RETURN(down_, pd.CreateQueuePair(down));
  if (!geometry_.is_tail(position_)) {
    rnic::QpAttr ack = ManagedQueue(error_cq_.get(), error_cq_.get(), kAckBlocks * geometry_.slots);
    ack.remote_access = 0;  // the primary only answers
    HL_ASSIGN_OR_RETURN(ack_, pd.CreateQueuePair(ack));
    HL_ASSIGN_OR_RETURN(ack_queues_, ack_->raw_queues());
  }
  HL_ASSIGN_OR_RETURN(local_, pd.CreateQueuePair(ManagedQueue(error_cq_.get(), error_cq_.get(),
                                                              kLocalBlocks * geometry_.slots)));
  rnic::QpAttr up = ManagedQueue(error_cq_.get(), receive_cq_.get(), kUpBlocks * geometry_.slots);
  up.recv_wqes = geometry_.slots;
  up.recv_max_sge = kMaxReceiveSges;
  up.remote_access = rnic::kRemoteWrite | rnic::kRemoteRead;
  HL_ASSIGN_OR_RETURN(up_, pd.CreateQueuePair(up));
  HL_ASSIGN_OR_RETURN(up_queues_, up_->raw_queues());
  HL_ASSIGN_OR_RETURN(local_queues_, local_->raw_queues());
  HL_ASSIGN_OR_RETURN(down_queues_, down_->raw_queues());
  // The patches' places assume that slot m mod N lies at the same address in every lap.
  if (up_queues_.sq_wqebbs != kUpBlocks * geometry_.slots ||
      local_queues_.sq_wqebbs != kLocalBlocks * geometry_.slots ||
      down_queues_.sq_wqebbs != down_blocks * geometry_.slots ||
      (ack_ && ack_queues_.sq_wqebbs != kAckBlocks * geometry_.slots) ||
      up_queues_.rq_wqes != geometry_.slots) {
    return Internal(Text("the device made rings of ", up_queues_.sq_wqebbs, ", ",
                         local_queues_.sq_wqebbs, ", ", down_queues_.sq_wqebbs, " blocks and ",
                         up_queues_.rq_wqes, " receives for ", geometry_.slots, " slots"));
  }
  info_ = InfoOf(device, region, position_, geometry_);
  info_.up_qpn = up_->qpn();
  info_.local_qpn = local_->qpn();
  info_.down_qpn = down_->qpn();
  info_.ack_qpn = ack_ ? ack_->qpn() : 0;
  info_.staging_addr = reinterpret_cast<uint64_t>(staging_->data());
  info_.staging_rkey = staging_mr_->rkey();
  return Status::Ok();
}

OffloadMember::~OffloadMember() {
  // The queues go straight to RESET, and the upstream one first, so that no queue which still runs
  // starts the others. A queue in ERROR would flush its receives, which the control program takes
  // for messages.
  static_cast<void>(RanOutOfMemory([this] {
    if (up_) up_->Reset().IgnoreError();
    if (local_) local_->Reset().IgnoreError();
    if (down_) down_->Reset().IgnoreError();
    if (ack_) ack_->Reset().IgnoreError();
  }));
}

Status OffloadMember::Connect(const PrimaryInfo& primary, std::span<const MemberInfo> chain) {
  if (connected_) return InvalidArgument("this member is connected already; create a new one");
  HL_RETURN_IF_ERROR(CheckInfos(primary, chain, geometry_, info_));
  connected_ = true;
  program_.Place(primary, chain);
  const bool tail = geometry_.is_tail(position_);
  const auto [previous, next] = Neighbours(primary, chain, position_);
  HL_RETURN_IF_ERROR(
      local_->Connect(local_->address()).WithContext("connecting the loopback queue"));
  HL_RETURN_IF_ERROR(down_->Connect(next).WithContext("connecting to the next node"));
  HL_RETURN_IF_ERROR(up_->Connect(previous).WithContext("connecting to the previous node"));

  WriteUpRing();
  WriteLocalRing();
  if (tail) {
    WriteTailRing(primary);
  } else if (program_.pipelined()) {
    HL_RETURN_IF_ERROR(ack_->Connect({{primary.gid}, primary.direct_qpn[position_]})
                           .WithContext("connecting to the primary"));
    WritePipelinedRing(chain[position_ + 1]);
    WriteAckRing(primary);
  } else {
    WriteForwardRing(chain[position_ + 1]);
  }
  HL_RETURN_IF_ERROR(PostReceives().WithContext("posting the slots' receives"));
  // This is the only doorbell of this process. It lets slots [0, lookahead) wait for their
  // messages, and each slot enables a later one when it runs. The ring writes above are ordered
  // before the doorbell. Only up's program starts the other queues.
  return up_->RingDoorbell(static_cast<uint16_t>(kUpBlocks * program_.lookahead));
}

std::byte* OffloadMember::Block(const rnic::RawQueues& queues, uint32_t slot, uint32_t blocks,
                                uint32_t block) const {
  return queues.sq + (size_t{slot} * blocks + block) * rnic::kWqebbBytes;
}

Sge OffloadMember::Staging(uint32_t slot, uint32_t offset, uint32_t length) const {
  const size_t at = size_t{slot} * program_.staging_bytes(position_) + offset;
  return {reinterpret_cast<uint64_t>(staging_->data() + at), length, staging_mr_->lkey()};
}

Sge OffloadMember::Original(uint32_t slot) const {
  const size_t at = kStagingResult + sizeof(ResultHeader) + position_ * sizeof(ReplicaResult);
  return Staging(slot, static_cast<uint32_t>(at + offsetof(ReplicaResult, original)),
                 sizeof(uint64_t));
}

Sge OffloadMember::Sink() const { return Staging(geometry_.slots, 0, kFlushReadBytes); }

Sge OffloadMember::Proof(uint32_t slot) const {
  return Staging(geometry_.slots, kSinkBytes + slot * kFlushReadBytes, kFlushReadBytes);
}

void OffloadMember::WriteUpRing() {
  for (uint32_t s = 0; s < geometry_.slots; ++s) {
    rnic::WqeControl control = PlainControl(info_.up_qpn);
    control.index = static_cast<uint16_t>(kUpBlocks * s + kUpWait);
    rnic::EncodeWait(Block(up_queues_, s, kUpBlocks, kUpWait), control, receive_cq_->cqn(), s);
    control.index = static_cast<uint16_t>(kUpBlocks * s + kUpEnableLocal);
    rnic::EncodeSendEnable(Block(up_queues_, s, kUpBlocks, kUpEnableLocal), control,
                           info_.local_qpn, static_cast<uint16_t>(kLocalBlocks * (s + 1)));
  }
}

void OffloadMember::WriteLocalRing() {
  const uint32_t qpn = info_.local_qpn;
  for (uint32_t s = 0; s < geometry_.slots; ++s) {
    EncodeLocalCopy(Block(local_queues_, s, kLocalBlocks, kLocalCopy), qpn, info_);
    const Sge original = Original(s);
    EncodeLocalCas(Block(local_queues_, s, kLocalBlocks, kLocalCas), qpn, info_, original);
    const Sge word[] = {
        {original.addr + offsetof(ReplicaResult, word), sizeof(uint64_t), original.lkey}};
    rnic::EncodeRead(Block(local_queues_, s, kLocalBlocks, kLocalRead), PlainControl(qpn),
                     Staging(s, kStagingResult, 0).addr, staging_mr_->rkey(), word);
    rnic::EncodeSendEnable(Block(local_queues_, s, kLocalBlocks, kLocalEnableDown),
                           FencedControl(qpn), info_.down_qpn, 0);
  }
}

// The next node's own patch comes first, wherever it lay in this node's message. Without later
// patches the third SGE is empty and left out.
void OffloadMember::EncodeForward(uint32_t slot, std::byte* wqe,
                                  const rnic::WqeControl& control) const {
  const uint32_t result = ResultBytes(geometry_.group_size);
  const uint32_t patch = program_.patch_bytes(position_ + 1);
  const uint32_t rest = program_.later_patch_bytes(position_ + 1);
  const Sge message[] = {Staging(slot, kStagingResult + result, patch),
                         Staging(slot, kStagingResult, result),
                         Staging(slot, kStagingResult + result + patch, rest)};
  rnic::EncodeSend(wqe, control, message);
}

void OffloadMember::WriteForwardRing(const MemberInfo& next) {
  const uint32_t qpn = info_.down_qpn;
  for (uint32_t s = 0; s < geometry_.slots; ++s) {
    EncodeDownWrite(Block(down_queues_, s, kDownBlocks, kDownWrite), qpn, info_, next);
    const Sge sink[] = {Sink()};
    rnic::EncodeRead(Block(down_queues_, s, kDownBlocks, kDownFlush), PlainControl(qpn),
                     next.region_addr, next.region_rkey, sink);
    EncodeForward(s, Block(down_queues_, s, kDownBlocks, kDownSend), FencedControl(qpn));
    rnic::EncodeSendEnable(Block(down_queues_, s, kDownBlocks, kDownEnableUp), PlainControl(qpn),
                           info_.up_qpn, 0);
  }
}

void OffloadMember::WritePipelinedRing(const MemberInfo& next) {
  const uint32_t qpn = info_.down_qpn;
  rnic::WqeControl counted = PlainControl(qpn);
  counted.completion = rnic::CqeMode::kAlways;
  for (uint32_t s = 0; s < geometry_.slots; ++s) {
    EncodeDownWrite(Block(down_queues_, s, kDownBlocks, kDownWrite), qpn, info_, next);
    EncodeForward(s, Block(down_queues_, s, kDownBlocks, kPipelinedSend), PlainControl(qpn));
    const Sge proof[] = {Proof(s)};
    rnic::EncodeRead(Block(down_queues_, s, kDownBlocks, kPipelinedFlush), counted,
                     program_.sequence_addr(next, s), next.staging_rkey, proof);
    rnic::EncodeSendEnable(Block(down_queues_, s, kDownBlocks, kPipelinedEnableAck),
                           PlainControl(qpn), info_.ack_qpn, 0);
  }
}

void OffloadMember::WriteAckRing(const PrimaryInfo& primary) {
  const uint32_t qpn = info_.ack_qpn;
  for (uint32_t s = 0; s < geometry_.slots; ++s) {
    rnic::EncodeWait(Block(ack_queues_, s, kAckBlocks, kAckWait), PlainControl(qpn),
                     flush_cq_->cqn(), s);
    const Sge proof[] = {Proof(s)};
    rnic::EncodeWriteImm(
        Block(ack_queues_, s, kAckBlocks, kAckProof), PlainControl(qpn),
        primary.ack_addr + ProofOffset(geometry_.slots, geometry_.group_size, s, position_),
        primary.ack_rkey, proof, s);
    std::byte* const read = Block(ack_queues_, s, kAckBlocks, kAckRead);
    program_.ack_reads(s) ? EncodeAckRead(read, qpn, primary, Sink()) : EncodeAckNop(read, qpn);
    rnic::EncodeSendEnable(Block(ack_queues_, s, kAckBlocks, kAckEnableUp), FencedControl(qpn),
                           info_.up_qpn, 0);
  }
}

void OffloadMember::WriteTailRing(const PrimaryInfo& primary) {
  const uint32_t qpn = info_.down_qpn;
  for (uint32_t s = 0; s < geometry_.slots; ++s) {
    const Sge result[] = {Staging(s, kStagingResult, ResultBytes(geometry_.group_size))};
    rnic::EncodeWriteImm(Block(down_queues_, s, kTailBlocks, kTailAck), PlainControl(qpn),
                         primary.ack_addr + uint64_t{s} * AckStride(geometry_.group_size),
                         primary.ack_rkey, result, s);
    std::byte* follow = Block(down_queues_, s, kTailBlocks, kTailFollow);
    if (SlotProgram::tail_enables(s)) {
      rnic::EncodeSendEnable(follow, program_.tail_enable_control(qpn, s), info_.up_qpn, 0);
    } else if (program_.tail_reads(s)) {
      EncodeAckRead(follow, qpn, primary, Sink());
    } else {
      EncodeAckNop(follow, qpn);
    }
  }
}

template <class Part>
void OffloadMember::AddPart(const rnic::RawQueues& queues, uint32_t slot, uint32_t blocks,
                            uint32_t block, std::vector<Sge>* places) const {
  const auto wqe = reinterpret_cast<uint64_t>(Block(queues, slot, blocks, block));
  for (const PatchPlace& place : Part::kPlaces)
    places->push_back({wqe + place.offset, place.length, queues.lkey});
}

template <class Parts>
void OffloadMember::AddCommonPlaces(uint32_t slot, std::vector<Sge>* places) const {
  const uint32_t rearmed = geometry_.slot(program_.rearmed(slot));
  using Enable = typename Parts::Enable;
  AddPart<typename Parts::Write>(local_queues_, slot, kLocalBlocks, kLocalCopy, places);
  AddPart<typename Parts::Cas>(local_queues_, slot, kLocalBlocks, kLocalCas, places);
  AddPart<typename Parts::Step>(local_queues_, slot, kLocalBlocks, kLocalRead, places);
  AddPart<Enable>(local_queues_, slot, kLocalBlocks, kLocalEnableDown, places);
  AddPart<typename Parts::Wait>(up_queues_, rearmed, kUpBlocks, kUpWait, places);
  AddPart<Enable>(up_queues_, rearmed, kUpBlocks, kUpEnableLocal, places);
}

void OffloadMember::AddForwardPlaces(uint32_t slot, std::vector<Sge>* places) const {
  using Parts = ForwardPatch::Parts;
  const rnic::RawQueues& down = down_queues_;
  AddPart<Parts::Write>(down, slot, kDownBlocks, kDownWrite, places);
  AddPart<Parts::Step>(down, slot, kDownBlocks, kDownFlush, places);
  AddPart<Parts::Step>(down, slot, kDownBlocks, kDownSend, places);
  AddPart<Parts::Enable>(down, slot, kDownBlocks, kDownEnableUp, places);
}

void OffloadMember::AddPipelinedPlaces(uint32_t slot, std::vector<Sge>* places) const {
  using Parts = PipelinedPatch::Parts;
  const rnic::RawQueues &down = down_queues_, &ack = ack_queues_;
  AddPart<Parts::Write>(down, slot, kDownBlocks, kDownWrite, places);
  AddPart<Parts::Step>(down, slot, kDownBlocks, kPipelinedSend, places);
  AddPart<Parts::Step>(down, slot, kDownBlocks, kPipelinedFlush, places);
  AddPart<Parts::Enable>(down, slot, kDownBlocks, kPipelinedEnableAck, places);
  AddPart<Parts::Wait>(ack, slot, kAckBlocks, kAckWait, places);
  AddPart<Parts::Step>(ack, slot, kAckBlocks, kAckProof, places);
  AddPart<Parts::Step>(ack, slot, kAckBlocks, kAckRead, places);
  AddPart<Parts::Enable>(ack, slot, kAckBlocks, kAckEnableUp, places);
}

template <class Parts>
void OffloadMember::AddTailPlaces(uint32_t slot, std::vector<Sge>* places) const {
  AddPart<typename Parts::Step>(down_queues_, slot, kTailBlocks, kTailAck, places);
  AddPart<typename Parts::Enable>(down_queues_, slot, kTailBlocks, kTailFollow, places);
}

void OffloadMember::AddStagingPlaces(uint32_t slot, std::vector<Sge>* places) const {
  const uint32_t rest = ResultBytes(geometry_.group_size) + program_.later_patch_bytes(position_);
  if (program_.writes_receive_counter(slot)) {
    places->push_back(
        {reinterpret_cast<uint64_t>(up_queues_.doorbell_record + rnic::kReceiveCounterOffset),
         sizeof(uint32_t), up_queues_.lkey});
    places->push_back(Staging(slot, kStagingResult, rest));
  } else {
    places->push_back(Staging(slot, kStagingCounter, sizeof(uint32_t) + rest));
  }
}

Status OffloadMember::PostReceives() {
  const bool tail = geometry_.is_tail(position_);
  std::vector<Sge> places;
  places.reserve(kMaxReceiveSges);
  for (uint32_t s = 0; s < geometry_.slots; ++s) {
    places.clear();
    if (program_.pipelined()) {
      AddCommonPlaces<FieldParts>(s, &places);
      tail ? AddTailPlaces<FieldParts>(s, &places) : AddPipelinedPlaces(s, &places);
    } else {
      AddCommonPlaces<WholeParts>(s, &places);
      tail ? AddTailPlaces<WholeParts>(s, &places) : AddForwardPlaces(s, &places);
    }
    AddStagingPlaces(s, &places);
    const rnic::ReceiveRequest request{.id = s, .sges = places};
    HL_RETURN_IF_ERROR(up_->PostReceive(std::span(&request, 1)));
  }
  return Status::Ok();
}

}  // namespace hyperloop
