// The command interface of the software RNIC: the driver's requests outside the queues, in the
// manner of mlx5's DevX commands. Commands are fixed-layout values in host byte order. They go to
// an engine in this process (EmbeddedPort) or over hyperloop-rnicd's Unix socket (SocketPort). The
// engine checks every field.
#pragma once

#include <cstdint>
#include <type_traits>

#include "hyperloop/core/name.h"

namespace hyperloop::softrnic {

inline constexpr uint32_t kCommandMagic = 0x484c5243;  // "HLRC"
inline constexpr uint16_t kCommandVersion = 6;
inline constexpr uint32_t kMaxQpsPerContext = 512;
inline constexpr uint32_t kMaxPrivateData = 512;

enum class Op : uint16_t {
  // Attaches to a host. The answer carries the descriptors of the UAR page and of the event that
  // wakes the engine.
  kOpen = 1,
  kAllocPd,
  kFreePd,
  kRegisterUmem,  // with one descriptor
  kFreeUmem,
  kCreateMkey,
  kDestroyMkey,
  kCreateCq,  // with events: the answer carries the descriptor that completions make readable
  kDestroyCq,
  kCreateQp,
  kModifyQp,
  kDestroyQp,
  kPublish,
  kConnectService,
  kQueryCounters,  // the answer is followed by text lines "name value\n"
};

struct OpenArgs {
  char host[kNameBytes];
};
struct OpenReply {
  uint8_t gid[16];
  uint64_t rnic;  // rnic::Device::rnic
};
struct IdArgs {  // kFree*, kDestroy*: object id (pdn, umem id, lkey, cqn, qpn)
  uint32_t id;
  uint32_t reserved;
};
struct IdReply {
  uint32_t id;
  uint32_t reserved;
};
// A range of the client's memory: the `length` bytes at client_addr are those at fd_offset of the
// descriptor. All other commands name memory by client address.
struct RegisterUmemArgs {
  uint64_t client_addr;
  uint64_t fd_offset;
  uint64_t length;
};
struct CreateMkeyArgs {
  uint32_t pdn;
  uint32_t umem;
  uint64_t addr;  // client address, inside the umem
  uint64_t length;
  uint32_t access;  // rnic::Access
  uint32_t media;   // rnic::Media
};
struct CreateMkeyReply {
  uint32_t lkey;
  uint32_t rkey;
};
struct CreateCqArgs {
  uint32_t umem;
  uint32_t log_size;    // CQEs
  uint64_t ring_addr;   // client address, 64 B aligned; the client has made its CQEs invalid
  uint64_t dbrec_addr;  // 8 B aligned
  uint32_t ignore_overrun;
  uint32_t events;  // 1: has a completion channel and a register to arm it with
};
struct CreateCqReply {
  uint32_t cqn;
  uint32_t arm_index;  // with events: register of the UAR page; its values: ArmValue
};
enum QpFlags : uint32_t { kQpMaster = 1, kQpSlaveSend = 2, kQpSlaveReceive = 4 };
struct CreateQpArgs {
  uint32_t pdn;
  uint32_t send_cqn;
  uint32_t recv_cqn;
  uint32_t umem;
  uint64_t sq_addr;  // client addresses
  uint64_t rq_addr;
  uint64_t dbrec_addr;
  uint32_t log_sq_wqebbs;
  uint32_t log_rq_wqes;
  uint32_t log_rq_stride;  // bytes
  uint32_t has_rq;
  uint32_t flags;  // QpFlags
  uint32_t max_read_atomic;
};
struct CreateQpReply {
  uint32_t qpn;
  uint32_t doorbell_index;  // register of the UAR page: 8 bytes at 8 * index past the header
};
struct ModifyQpArgs {
  uint32_t qpn;
  uint32_t state;          // rnic::QpState
  uint8_t remote_gid[16];  // kReadyToReceive
  uint32_t remote_qpn;
  uint32_t access;  // kInit: remote access rights of the QP
  // As in rnic::QpAttr.
  uint32_t rnr_timer_us;    // kReadyToReceive
  uint32_t ack_timeout_ms;  // kReadyToSend, with the three below
  uint32_t link_timeout_ms;
  uint32_t retry_count;
  uint32_t rnr_retry;
};
struct PublishArgs {
  char service[kNameBytes];
  uint32_t pdn;
  uint32_t private_length;
  uint8_t private_data[kMaxPrivateData];
};
struct ConnectServiceArgs {
  char host[kNameBytes];
  char service[kNameBytes];
  uint32_t qpn;
  uint32_t reserved;
};
struct QueryCountersArgs {
  char host[kNameBytes];  // empty: the client's own
};
struct ConnectServiceReply {
  uint8_t gid[16];
  uint32_t remote_qpn;
  uint32_t private_length;
  uint8_t private_data[kMaxPrivateData];
};

struct Command {
  uint32_t magic = kCommandMagic;
  uint16_t version = kCommandVersion;
  Op op{};
  union {
    OpenArgs open;
    IdArgs id;
    RegisterUmemArgs umem;
    CreateMkeyArgs mkey;
    CreateCqArgs cq;
    CreateQpArgs qp;
    ModifyQpArgs modify;
    PublishArgs publish;
    ConnectServiceArgs connect;
    QueryCountersArgs counters;
    uint8_t raw[640];
  } args{};
};

struct Reply {
  uint32_t magic = kCommandMagic;
  uint16_t version = kCommandVersion;
  uint16_t code = 0;  // hyperloop::Code
  // Bytes of text that follow: the error message, or kQueryCounters' lines.
  uint32_t text_length = 0;
  uint32_t reserved = 0;
  union {
    OpenReply open;
    IdReply id;
    CreateMkeyReply mkey;
    CreateCqReply cq;
    CreateQpReply qp;
    ConnectServiceReply connect;
    uint8_t raw[640];
  } result{};
};

static_assert(std::is_trivially_copyable_v<Command> && sizeof(Command) == 648);
static_assert(std::is_trivially_copyable_v<Reply> && sizeof(Reply) == 656);

// The UAR page: device memory that the client maps. The client stores the register, then sets its
// summary bit with a seq_cst fetch_or, then loads `engine_sleeping`. If that is set, it clears it
// and writes to the event descriptor that came with the page. The engine's side is
// Doorbells::Collect and EngineLoop::Sleep.
struct UarHeader {
  alignas(64) uint64_t summary[kMaxQpsPerContext / 64];  // bit per register that was rung
  alignas(64) uint32_t engine_sleeping;
  // 1 while the engine serves this page; 0 for good once it stopped in order.
  uint32_t engine_alive;
  uint64_t engine_heartbeat;  // grows while the engine runs or sleeps in order
  uint32_t engine_cpu;        // processor that the engine's thread was last seen on
};
struct UarPage {
  UarHeader header;
  // A queue pair's: producer index (low 16 bits); a completion queue's: ArmValue. Both | 1<<63, so
  // that a rung register is never 0.
  alignas(64) uint64_t registers[kMaxQpsPerContext];
};
// Arms a completion queue whose first `consumed` CQEs (24 bits count) the client has polled: CQE
// number `completions` behind them, or an earlier one that is solicited or an error, makes the
// channel readable, once. A CQE that is there already counts too, so none is missed between the
// client's last poll and the engine's reading of the register.
inline constexpr uint64_t kArmSolicited = 1u << 24;  // only a solicited or an error CQE
inline constexpr unsigned kArmMoreShift = 25;        // `completions` - 1, in 16 bits
inline constexpr uint32_t kMostArmed = 1u << 16;     // the most `completions`
constexpr uint64_t ArmValue(uint64_t consumed, bool solicited_only, uint32_t completions = 1) {
  return (consumed & 0xffffff) | (solicited_only ? kArmSolicited : 0) |
         uint64_t{completions - 1} << kArmMoreShift;
}
static_assert(sizeof(UarPage) <= 8192);
inline constexpr uint64_t kUarBytes = 8192;

}  // namespace hyperloop::softrnic
