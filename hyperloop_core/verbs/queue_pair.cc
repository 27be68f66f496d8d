#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string>

#include "rnic/checks.h"
#include "verbs/connection.h"
#include "verbs/open.h"
#include "verbs/queues.h"

namespace hyperloop::verbs {
namespace {

using rnic::Opcode;
using rnic::QpState;
using std::chrono::microseconds;

constexpr uint8_t kHopLimit = 64;

// rnic::Sge goes to the device as it is.
static_assert(sizeof(rnic::Sge) == sizeof(ibv_sge) &&
              offsetof(rnic::Sge, addr) == offsetof(ibv_sge, addr) &&
              offsetof(rnic::Sge, length) == offsetof(ibv_sge, length) &&
              offsetof(rnic::Sge, lkey) == offsetof(ibv_sge, lkey));
ibv_sge* DeviceSges(std::span<const rnic::Sge> sges) {
  return reinterpret_cast<ibv_sge*>(const_cast<rnic::Sge*>(sges.data()));
}

Status CheckAttr(const rnic::QpAttr& attr, const ibv_device_attr& device) {
  if (attr.cross_channel || attr.managed_send || attr.managed_recv) {
    return NotSupported(
        "libibverbs has no cross-channel queue pairs; use provider softrnic, or a "
        "datapath that does without");
  }
  HL_RETURN_IF_ERROR(rnic::CheckQueues(
      attr, {std::min(rnic::kMaxRingEntries, static_cast<uint32_t>(device.max_qp_wr)),
             static_cast<uint32_t>(device.max_sge)}));
  if (attr.mtu != 0) return MtuFromBytes(attr.mtu).status();
  return {};
}

// The least code whose time is not below `timer` (InfiniBand's table of RNR NAK timers).
uint8_t RnrTimerCode(microseconds timer) {
  constexpr std::array<uint32_t, 32> kTimes = {
      655360, 10,    20,    30,    40,    60,     80,     120,    160,    240,   320,
      480,    640,   960,   1280,  1920,  2560,   3840,   5120,   7680,   10240, 15360,
      20480,  30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520};
  const auto found = std::lower_bound(kTimes.begin() + 1, kTimes.end(), timer.count());
  return static_cast<uint8_t>(found - kTimes.begin());
}

// The least t with 4.096 µs · 2^t not below `timeout`; 0: no limit.
uint8_t AckTimeoutCode(std::chrono::milliseconds timeout) {
  if (timeout.count() == 0) return 0;
  const uint64_t units = (static_cast<uint64_t>(timeout.count()) * 1'000'000 + 4095) / 4096;
  return static_cast<uint8_t>(std::min<uint64_t>(31, std::bit_width(units - 1)));
}

// The first packet number of a queue pair follows from its number, which is all that the peer knows
// of it.
uint32_t FirstPacket(uint32_t qpn) { return (qpn * 0x9e3779u) & 0xffffff; }

}  // namespace

VerbsQueuePair::VerbsQueuePair(std::shared_ptr<VerbsContext> context, const rnic::QpAttr& attr)
    : context_(std::move(context)),
      attr_(attr),
      send_cq_(static_cast<VerbsCompletionQueue*>(attr.send_cq)),
      recv_cq_(static_cast<VerbsCompletionQueue*>(attr.recv_cq != nullptr ? attr.recv_cq
                                                                          : attr.send_cq)),
      sq_ids_(attr.send_wqebbs),
      rq_ids_(attr.recv_wqes) {}

Result<std::unique_ptr<VerbsQueuePair>> VerbsQueuePair::Create(
    std::shared_ptr<VerbsContext> context, ibv_pd* pd, const rnic::QpAttr& attr) {
  if (!context->Usable()) return context->DeadStatus();
  HL_RETURN_IF_ERROR(CheckAttr(attr, context->attributes()));
  std::unique_ptr<VerbsQueuePair> qp(new VerbsQueuePair(std::move(context), attr));
  HL_RETURN_IF_ERROR(qp->Allocate(pd));
  return qp;
}

Status VerbsQueuePair::Allocate(ibv_pd* pd) {
  ibv_qp_init_attr init{};
  init.send_cq = send_cq_->cq();
  init.recv_cq = recv_cq_->cq();
  init.qp_type = IBV_QPT_RC;
  init.cap.max_send_wr = attr_.send_wqebbs;
  init.cap.max_recv_wr = attr_.recv_wqes;
  init.cap.max_send_sge =
      std::min(kMaxSendSge, static_cast<uint32_t>(context_->attributes().max_sge));
  init.cap.max_recv_sge = attr_.recv_max_sge;
  init.cap.max_inline_data = attr_.max_inline;
  qp_ = context_->lib().ibv_create_qp(pd, &init);
  if (qp_ == nullptr) {
    return VerbsError(errno, "making a queue pair of " + std::to_string(attr_.send_wqebbs) +
                                 " sends, " + std::to_string(attr_.recv_wqes) + " receives, " +
                                 std::to_string(attr_.max_inline) + " B inline");
  }
  const int device_limit =
      std::min(context_->attributes().max_qp_rd_atom, context_->attributes().max_qp_init_rd_atom);
  max_read_atomic_ = static_cast<uint8_t>(
      std::min({attr_.max_read_atomic, static_cast<uint32_t>(device_limit), 255u}));
  HL_ASSIGN_OR_RETURN(slot_, context_->AddQueuePair(this));
  listed_ = true;
  generation_ = context_->NextGeneration() & WorkId::kGenerationMask;
  return ToInit();
}

VerbsQueuePair::~VerbsQueuePair() {
  if (!context_->IsOwner()) {
    connection_.release();  // in a forked child: its descriptors are the parent's
    return;
  }
  if (listed_) context_->RemoveQueuePair(slot_);
  if (qp_ != nullptr) context_->lib().ibv_destroy_qp(qp_);
}

// --- states

Status VerbsQueuePair::Modify(ibv_qp_attr attr, int mask, const char* what) {
  const int error = context_->lib().ibv_modify_qp(qp_, &attr, mask);
  if (error == 0) return {};
  return FromErrno(error, "queue pair " + std::to_string(qp_->qp_num) + " to " + what);
}

// rnic:: takes receives in kReset, libibverbs only from INIT on. So the device's queue pair is in
// INIT while rnic:: says kReset.
Status VerbsQueuePair::ToInit() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = context_->port().number;
  if ((attr_.remote_access & rnic::kRemoteWrite) != 0)
    attr.qp_access_flags |= IBV_ACCESS_REMOTE_WRITE;
  if ((attr_.remote_access & rnic::kRemoteRead) != 0)
    attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ;
  if ((attr_.remote_access & rnic::kRemoteAtomic) != 0)
    attr.qp_access_flags |= IBV_ACCESS_REMOTE_ATOMIC;
  return Modify(attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT");
}

Status VerbsQueuePair::ToReadyToReceive(const rnic::QpAddress& peer) {
  const VerbsContext::Port& port = context_->port();
  const DeviceOptions& options = context_->options();
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = port.mtu;
  if (const uint32_t mtu = attr_.mtu != 0 ? attr_.mtu : options.mtu; mtu != 0) {
    HL_ASSIGN_OR_RETURN(attr.path_mtu, MtuFromBytes(mtu));
    if (attr.path_mtu > port.mtu) {
      return InvalidArgument("mtu " + std::to_string(mtu) + ": " + port.device + " has " +
                             std::to_string(128u << port.mtu) +
                             "; raise that of the network interface below it, or ask for less");
    }
  }
  attr.dest_qp_num = peer.qpn;
  attr.rq_psn = FirstPacket(peer.qpn);
  attr.max_dest_rd_atomic = max_read_atomic_;
  attr.min_rnr_timer = RnrTimerCode(attr_.rnr_timer);
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = port.number;
  attr.ah_attr.grh.sgid_index = port.gid_index;
  attr.ah_attr.grh.hop_limit = kHopLimit;
  attr.ah_attr.grh.traffic_class =
      attr_.traffic_class != 0 ? attr_.traffic_class : options.traffic_class;
  std::copy(peer.gid.raw.begin(), peer.gid.raw.end(), attr.ah_attr.grh.dgid.raw);
  return Modify(attr,
                IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
                "RTR (is the peer's address of this network, and reachable?)");
}

// Soft-RoCE retries for ever when it is told 7, where InfiniBand retries 7 times. A dead peer would
// never be noticed.
uint8_t VerbsQueuePair::RetryCount() const {
  return context_->IsSoftRoce() ? std::min<uint8_t>(attr_.retry_count, 6) : attr_.retry_count;
}

Status VerbsQueuePair::ToReadyToSend() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = AckTimeoutCode(attr_.ack_timeout);
  attr.retry_cnt = RetryCount();
  attr.rnr_retry = attr_.rnr_retry;
  attr.sq_psn = FirstPacket(qp_->qp_num);
  attr.max_rd_atomic = max_read_atomic_;
  return Modify(attr,
                IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
                "RTS");
}

Status VerbsQueuePair::Connect(const rnic::QpAddress& peer) {
  if (!context_->Usable()) return context_->DeadStatus();
  if (state() != QpState::kReset) return NotInReset();
  HL_RETURN_IF_ERROR(ToReadyToReceive(peer));
  state_ = QpState::kReadyToReceive;
  HL_RETURN_IF_ERROR(ToReadyToSend());
  state_ = QpState::kReadyToSend;
  return {};
}

Status VerbsQueuePair::Connect(std::unique_ptr<CmConnection> connection) {
  HL_RETURN_IF_ERROR(connection->Advance(qp_, IBV_QPS_RTR));
  state_ = QpState::kReadyToReceive;
  HL_RETURN_IF_ERROR(connection->Advance(qp_, IBV_QPS_RTS));
  HL_RETURN_IF_ERROR(connection->Establish());
  connection_ = std::move(connection);
  state_ = QpState::kReadyToSend;
  return {};
}

Status VerbsQueuePair::NotInReset() const {
  return InvalidArgument("queue pair " + std::to_string(qpn()) +
                         " is connected, or failed while it was being connected; Reset it first");
}

// Completions that are in a completion queue already belong to the old generation: Poll drops them.
Status VerbsQueuePair::Reset() {
  if (!context_->Usable()) return context_->DeadStatus();
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RESET;
  HL_RETURN_IF_ERROR(Modify(attr, IBV_QP_STATE, "RESET"));
  generation_ = context_->NextGeneration() & WorkId::kGenerationMask;
  sq_producer_ = sq_consumer_ = 0;
  rq_producer_ = rq_consumer_ = 0;
  connection_.reset();
  HL_RETURN_IF_ERROR(ToInit());
  state_ = QpState::kReset;
  return {};
}

// --- posting

Status VerbsQueuePair::CheckRequest(const rnic::SendRequest& request) const {
  switch (request.opcode) {
    case Opcode::kNop:
      return {};
    case Opcode::kCompareSwap:
    case Opcode::kFetchAdd:
      if (request.sges.size() != 1 || request.sges[0].length != 8) {
        return InvalidArgument(
            "an atomic needs one scatter/gather entry of 8 bytes for the old value");
      }
      break;
    case Opcode::kWait:
    case Opcode::kSendEnable:
    case Opcode::kReceiveEnable:
      return NotSupported("WAIT and enables need a cross-channel device; libibverbs has none");
    default:
      break;
  }
  HL_RETURN_IF_ERROR(rnic::CheckSges(request.sges, kMaxSendSge));
  if (!request.inline_data) return {};
  if (request.opcode == Opcode::kRead || request.opcode == Opcode::kCompareSwap ||
      request.opcode == Opcode::kFetchAdd) {
    return InvalidArgument("inline data is for sends and writes only");
  }
  uint64_t bytes = 0;
  for (const rnic::Sge& sge : request.sges) bytes += sge.length;
  if (bytes <= attr_.max_inline) return {};
  return InvalidArgument(std::to_string(bytes) +
                         " bytes of inline data: this queue pair has max_inline " +
                         std::to_string(attr_.max_inline));
}

void VerbsQueuePair::Translate(const rnic::SendRequest& request, uint16_t index,
                               ibv_send_wr* wr) const {
  *wr = {};
  wr->wr_id = IdOf(false, index);
  const auto flag = [](bool on, unsigned bit) { return on ? bit : 0u; };
  wr->send_flags = flag(request.signaled, IBV_SEND_SIGNALED) | flag(request.fence, IBV_SEND_FENCE) |
                   flag(request.solicited, IBV_SEND_SOLICITED) |
                   flag(request.inline_data, IBV_SEND_INLINE);
  if (request.opcode == Opcode::kNop) {  // libibverbs has none: a WRITE of no bytes touches nothing
    wr->opcode = IBV_WR_RDMA_WRITE;
    wr->send_flags &= ~static_cast<unsigned>(IBV_SEND_INLINE);
    return;
  }
  wr->sg_list = DeviceSges(request.sges);
  wr->num_sge = static_cast<int>(request.sges.size());
  wr->imm_data = htobe32(request.imm);
  wr->wr.rdma.remote_addr = request.remote_addr;
  wr->wr.rdma.rkey = request.rkey;
  switch (request.opcode) {
    case Opcode::kSend:
      wr->opcode = IBV_WR_SEND;
      break;
    case Opcode::kSendImm:
      wr->opcode = IBV_WR_SEND_WITH_IMM;
      break;
    case Opcode::kWrite:
      wr->opcode = IBV_WR_RDMA_WRITE;
      break;
    case Opcode::kWriteImm:
      wr->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
      break;
    case Opcode::kRead:
      wr->opcode = IBV_WR_RDMA_READ;
      break;
    default:
      wr->opcode = request.opcode == Opcode::kCompareSwap ? IBV_WR_ATOMIC_CMP_AND_SWP
                                                          : IBV_WR_ATOMIC_FETCH_AND_ADD;
      wr->wr.atomic.remote_addr = request.remote_addr;
      wr->wr.atomic.compare_add = request.compare_or_add;
      wr->wr.atomic.swap = request.swap;
      wr->wr.atomic.rkey = request.rkey;
  }
}

Status VerbsQueuePair::Post(std::span<const rnic::SendRequest> requests) {
  if (!context_->Usable()) [[unlikely]]
    return context_->DeadStatus();
  if (const QpState now = state(); now != QpState::kReadyToSend && now != QpState::kError) {
    return InvalidArgument("queue pair " + std::to_string(qpn()) + " is not connected");
  }
  for (const rnic::SendRequest& request : requests) HL_RETURN_IF_ERROR(CheckRequest(request));
  uint16_t producer = sq_producer_.load(std::memory_order_relaxed);
  const uint16_t used = producer - sq_consumer_.load(std::memory_order_acquire);
  if (requests.size() > attr_.send_wqebbs - used) [[unlikely]] {
    return rnic::RingFull("send", "requests", {used, attr_.send_wqebbs, requests.size()});
  }
  if (requests.empty()) return {};
  send_requests_.resize(std::max(send_requests_.size(), requests.size()));
  for (size_t i = 0; i < requests.size(); ++i, ++producer) {
    Translate(requests[i], producer, &send_requests_[i]);
    send_requests_[i].next = i + 1 < requests.size() ? &send_requests_[i + 1] : nullptr;
    sq_ids_[producer & (attr_.send_wqebbs - 1)] = requests[i].id;
  }
  // The producer is stored before the device may complete the requests, because Poll reads it.
  sq_producer_.store(producer, std::memory_order_release);
  ibv_send_wr* refused = nullptr;
  const int error = ibv_post_send(qp_, send_requests_.data(), &refused);
  if (error == 0) [[likely]]
    return {};
  const auto posted = static_cast<size_t>(refused - send_requests_.data());
  sq_producer_.store(static_cast<uint16_t>(producer - (requests.size() - posted)),
                     std::memory_order_release);
  if (posted == 0 && error == ENOMEM) {
    return NoSpace(
        "the device's send ring is full: it gets room only when a completion behind the "
        "work is polled, so some requests must be signaled");
  }
  if (posted == 0) return FromErrno(error, "the device refuses the request; nothing was posted");
  // Some requests may run, and the caller cannot tell which. In ERROR no further one runs.
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  Modify(attr, IBV_QP_STATE, "ERROR").IgnoreError();
  state_.store(QpState::kError, std::memory_order_relaxed);
  return FromErrno(error, "posting request " + std::to_string(posted + 1) + " of " +
                              std::to_string(requests.size()) + "; the queue pair is in error now");
}

Status VerbsQueuePair::PostReceive(std::span<const rnic::ReceiveRequest> requests) {
  if (!context_->Usable()) [[unlikely]]
    return context_->DeadStatus();
  for (const rnic::ReceiveRequest& request : requests) {
    HL_RETURN_IF_ERROR(rnic::CheckSges(request.sges, attr_.recv_max_sge));
  }
  uint16_t producer = rq_producer_.load(std::memory_order_relaxed);
  const uint16_t used = producer - rq_consumer_.load(std::memory_order_acquire);
  if (requests.size() > attr_.recv_wqes - used) [[unlikely]] {
    return rnic::RingFull("receive", "entries", {used, attr_.recv_wqes, requests.size()});
  }
  if (requests.empty()) return {};
  receives_.resize(std::max(receives_.size(), requests.size()));
  for (size_t i = 0; i < requests.size(); ++i, ++producer) {
    receives_[i] = {};
    receives_[i].wr_id = IdOf(true, producer);
    receives_[i].next = i + 1 < requests.size() ? &receives_[i + 1] : nullptr;
    receives_[i].sg_list = DeviceSges(requests[i].sges);
    receives_[i].num_sge = static_cast<int>(requests[i].sges.size());
    rq_ids_[producer & (attr_.recv_wqes - 1)] = requests[i].id;
  }
  rq_producer_.store(producer, std::memory_order_release);
  ibv_recv_wr* refused = nullptr;
  const int error = ibv_post_recv(qp_, receives_.data(), &refused);
  if (error == 0) [[likely]]
    return {};
  const auto posted = static_cast<size_t>(refused - receives_.data());
  rq_producer_.store(static_cast<uint16_t>(producer - (requests.size() - posted)),
                     std::memory_order_release);
  return FromErrno(error, "posting receive " + std::to_string(posted + 1) + " of " +
                              std::to_string(requests.size()));
}

// --- completion

void VerbsQueuePair::Retire(uint16_t wqe_counter) {
  if (!context_->IsOwner()) [[unlikely]]
    return;
  const uint16_t consumer = sq_consumer_.load(std::memory_order_relaxed);
  const uint16_t used = sq_producer_.load(std::memory_order_acquire) - consumer;
  const auto end = static_cast<uint16_t>(wqe_counter + 1);
  const uint16_t step = end - consumer;
  if (step <= used) sq_consumer_.store(end, std::memory_order_release);
}

bool VerbsQueuePair::Resolve(const WorkId& id, rnic::Completion* completion) {
  if (id.generation != generation_.load(std::memory_order_relaxed)) return false;
  if (completion->status != rnic::WcStatus::kSuccess) [[unlikely]] {
    state_.store(QpState::kError, std::memory_order_relaxed);
  }
  if (!id.receive) {
    completion->id = sq_ids_[id.index & (attr_.send_wqebbs - 1)];
    Retire(id.index);
    return true;
  }
  completion->id = rq_ids_[id.index & (attr_.recv_wqes - 1)];
  rq_consumer_.store(static_cast<uint16_t>(id.index + 1), std::memory_order_release);
  return true;
}

Result<rnic::RawQueues> VerbsQueuePair::raw_queues() {
  return NotSupported("libibverbs gives no access to a queue's memory");
}

Status VerbsQueuePair::RingDoorbell(uint16_t) {
  return NotSupported("libibverbs has no managed queues");
}

}  // namespace hyperloop::verbs
