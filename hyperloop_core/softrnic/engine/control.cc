#include "softrnic/engine/control.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "softrnic/engine/rings.h"
#include "softrnic/engine/text.h"

namespace hyperloop::softrnic {
namespace {

constexpr size_t kMaxPds = 256;
constexpr uint32_t kMaxLogCqes = 20;
constexpr uint64_t kMaxUmemBytes = 1ull << 44;
constexpr uint32_t kAllAccess =
    rnic::kLocalWrite | rnic::kRemoteWrite | rnic::kRemoteRead | rnic::kRemoteAtomic;
constexpr uint64_t kCqeAlign = 64;
constexpr uint64_t kRecordAlign = 8;

uint64_t CqRingBytes(const CreateCqArgs& a) { return uint64_t{sizeof(mlx5_cqe64)} << a.log_size; }

// Checks the arguments of CreateCq against each other, and that the queue's memory is in `umem`.
Status CheckCqArgs(const CreateCqArgs& a, const Umem& umem, bool has_channel) {
  if (umem.length > kMaxRingUmemBytes)
    return InvalidArgument(Text("create CQ: its ring is in registered memory of ", umem.length,
                                " B; at most ", kMaxRingUmemBytes));
  if (a.log_size > kMaxLogCqes || a.ignore_overrun > 1)
    return InvalidArgument(Text("create CQ: 2^", a.log_size, " entries; at most 2^", kMaxLogCqes));
  if (RingAt(umem, a.ring_addr, CqRingBytes(a), kCqeAlign) == nullptr ||
      RingAt(umem, a.dbrec_addr, rnic::kDoorbellRecordBytes, kRecordAlign) == nullptr)
    return InvalidArgument(
        "create CQ: ring or doorbell record is outside the registered memory or not aligned (ring "
        "64 B, record 8 B)");
  if (a.events > 1 || (a.events != 0) != has_channel || (a.events != 0 && a.ignore_overrun != 0))
    return InvalidArgument(Text("create CQ: events ", a.events,
                                ": 0 or 1, with a channel, and not with ignored overrun"));
  return {};
}

}  // namespace

bool Control::CloseContextPart(ContextId id, size_t objects) {
  Context* const open = clients_.Find(id);
  if (open == nullptr) return true;
  Context& c = *open;
  clients_.StopServing(c);
  for (; c.first_qp != nullptr; --objects) {
    if (objects == 0) return false;
    life_.Destroy(*c.first_qp);
  }
  for (; !c.cqs.empty(); --objects) {
    if (objects == 0) return false;
    Erase(*c.cqs.begin()->second);
  }
  for (; !c.umems.empty(); --objects) {
    Umem& umem = *c.umems.begin()->second;
    for (; umem.keys != nullptr; --objects) {
      if (objects == 0) return false;
      Release(*umem.keys);
    }
    if (objects == 0) return false;
    Erase(c, umem);
  }
  clients_.Close(c);
  return true;
}

Result<IdReply> Control::RegisterUmem(Context& c, const RegisterUmemArgs& a, UmemMapping mapping) {
  if (mapping.base == nullptr || a.length == 0 || a.length > kMaxUmemBytes ||
      mapping.length < a.length || a.client_addr + a.length < a.client_addr)
    return InvalidArgument(Text("register memory: ", a.length, " B at ", a.client_addr,
                                " with a mapping of ", mapping.length, " B"));
  if (((reinterpret_cast<uintptr_t>(mapping.base) ^ a.client_addr) & 63) != 0)
    return InvalidArgument(
        "register memory: client address and file offset differ within a cache line; align both to "
        "a page");
  if (c.account->umems >= options_.limits.mappings)
    return NoSpace(Text("register memory: this client has ", options_.limits.mappings,
                        " pieces, the most (--client-mappings of the RNIC daemon)"));
  if (all_umems_ >= options_.limits.all_mappings)
    return NoSpace(Text("register memory: the device has ", all_umems_,
                        " pieces, the most; raise vm.max_map_count of its machine and start it "
                        "again"));
  if (a.length > options_.limits.mapped_bytes - c.account->umem_bytes)
    return NoSpace(Text("register memory: ", a.length, " B more than the ", c.account->umem_bytes,
                        " B that this client has would exceed ", options_.limits.mapped_bytes,
                        " B, the most (--client-mapped-gib of the RNIC daemon)"));
  if (a.length > options_.limits.all_mapped_bytes - all_umem_bytes_)
    return NoSpace(Text("register memory: the device has ", all_umem_bytes_, " B, and takes no ",
                        a.length, " B more; some client must free memory"));
  auto umem = std::make_unique<Umem>();
  umem->id = next_umem_++;
  umem->addr = a.client_addr;
  umem->length = a.length;
  umem->base = mapping.base;
  umem->owner = std::move(mapping.owner);
  umem->fd = mapping.fd;
  umem->fd_offset = mapping.fd_offset;
  umem->waits_for_disk = mapping.waits_for_disk;
  umem->flush_failed = std::make_shared<std::atomic<bool>>(false);
  umem->account = c.account;
  const IdReply reply{umem->id, 0};
  c.umems.emplace(umem->id, std::move(umem));
  ++c.account->umems, ++all_umems_;
  c.account->umem_bytes += a.length, all_umem_bytes_ += a.length;
  return reply;
}

void Control::Erase(Context& c, const Umem& umem) {
  --c.account->umems, --all_umems_;
  c.account->umem_bytes -= umem.length, all_umem_bytes_ -= umem.length;
  c.account->table_bytes -= umem.ring_map.bytes();
  c.umems.erase(umem.id);
}

Status Control::FreeUmem(Context& c, uint32_t id) {
  const auto it = c.umems.find(id);
  if (it == c.umems.end()) return NotFound(Text("free memory: no registered memory ", id));
  if (it->second->users != 0)
    return Busy(Text("free memory ", id, ": ", it->second->users,
                     " keys or queues use it; destroy them first"));
  Erase(c, *it->second);
  return {};
}

Status Control::AllocPd(Context& c, IdReply* reply) {
  if (c.pds.size() >= kMaxPds)
    return NoSpace(Text("allocate PD: this client has ", kMaxPds, ", the most"));
  auto pd = std::make_unique<Pd>();
  pd->id = next_pd_++;
  pd->context = &c;
  *reply = {pd->id, 0};
  c.pds.emplace(pd->id, std::move(pd));
  return {};
}

Status Control::FreePd(Context& c, uint32_t id) {
  const auto it = c.pds.find(id);
  if (it == c.pds.end()) return NotFound(Text("free PD: no protection domain ", id));
  if (it->second->users != 0)
    return Busy(Text("free PD ", id, ": ", it->second->users,
                     " keys, queue pairs or services use it; destroy them first"));
  c.pds.erase(it);
  return {};
}

// --- memory keys

Status Control::CreateMkey(Context& c, const CreateMkeyArgs& a, CreateMkeyReply* reply) {
  const auto pd = c.pds.find(a.pdn);
  if (pd == c.pds.end()) return NotFound(Text("register: no protection domain ", a.pdn));
  const auto it = c.umems.find(a.umem);
  if (it == c.umems.end()) return NotFound(Text("register: no registered memory ", a.umem));
  Umem& umem = *it->second;
  const uint64_t offset = a.addr - umem.addr;
  if (a.length == 0 || offset > umem.length || a.length > umem.length - offset)
    return InvalidArgument(Text("register: ", a.length, " B at ", a.addr, " are not inside the ",
                                umem.length, " B at ", umem.addr));
  std::byte* const base = umem.base + offset;
  if (base < umem.lost_end && base + a.length > umem.lost_begin)
    return ProtectionError(
        Text("register: the file behind the ", a.length, " B at ", a.addr,
             " was truncated; register the memory anew once the file has its length"));
  if ((a.access & ~kAllAccess) != 0 || a.media > static_cast<uint32_t>(rnic::Media::kPmem))
    return InvalidArgument(
        Text("register: unknown access rights ", a.access, " or media ", a.media));
  if ((a.access & (rnic::kRemoteWrite | rnic::kRemoteAtomic)) != 0 &&
      (a.access & rnic::kLocalWrite) == 0)
    return InvalidArgument(
        "register: remote write and atomic rights need the local write right too");
  if (c.account->keys >= options_.limits.memory_keys)
    return NoSpace(Text("register: this client has ", options_.limits.memory_keys,
                        " memory keys, the most (--client-memory-keys of the RNIC daemon)"));
  auto made = std::make_unique<MemoryKey>();
  made->addr = a.addr;
  made->length = a.length;
  made->base = base;
  made->pd = pd->second.get();
  made->access = a.access;
  made->media = static_cast<rnic::Media>(a.media);
  made->has_media = made->media != rnic::Media::kRam || options_.test.watch != nullptr;
  made->has_rings = !umem.ring_map.empty();
  made->umem = &umem;
  MemoryKey* const key = keys_.Insert(std::move(made));
  if (key == nullptr) return NoSpace("register: the device has no memory key left");
  ++umem.users, ++key->pd->users, ++c.account->keys;
  key->next_of_umem = umem.keys;
  if (umem.keys != nullptr) umem.keys->before_of_umem = key;
  umem.keys = key;
  reply->lkey = key->lkey;
  reply->rkey = key->rkey;
  return {};
}

void Control::Release(MemoryKey& key) {
  if (key.has_media)
    ForEachQp(*key.pd->context, [&](Qp& qp) { durability_.FlushAllOf(qp, *key.umem); });
  --key.umem->users, --key.pd->users, --key.umem->account->keys;
  (key.before_of_umem != nullptr ? key.before_of_umem->next_of_umem : key.umem->keys) =
      key.next_of_umem;
  if (key.next_of_umem != nullptr) key.next_of_umem->before_of_umem = key.before_of_umem;
  keys_.Erase(key);
}

Status Control::DestroyMkey(Context& c, uint32_t lkey) {
  MemoryKey* const key = keys_.FindLocal(lkey);
  if (key == nullptr || key->pd->context != &c)
    return NotFound(Text("deregister: no memory key ", lkey, " of this client"));
  Release(*key);
  return {};
}

// --- completion queues

// `events`: the queue needs a register of the UAR page to arm its channel with.
Status Control::CheckRoomForCq(const Context& c, bool events) const {
  if (events && c.FreeRegister() == kMaxQpsPerContext)
    return NoSpace(Text("create CQ: this client has ", kMaxQpsPerContext,
                        " queue pairs and completion queues with events, the most; destroy some"));
  if (c.account->cqs >= options_.limits.completion_queues)
    return NoSpace(Text("create CQ: this client has ", options_.limits.completion_queues,
                        " completion queues, the most (--client-completion-queues of the RNIC "
                        "daemon); destroy some"));
  return {};
}

// Makes an empty completion queue, with its number, in the table and among those of `c`.
Result<Cq*> Control::NewCq(Context& c) {
  auto owned = std::make_unique<Cq>();
  Cq* const cq = owned.get();
  const uint32_t cqn = cqs_.Insert(std::move(owned));
  if (cqn == 0) return NoSpace("create CQ: the device has no completion queue number left");
  cq->cqn = cqn;
  try {
    c.cqs.emplace(cqn, cq);
  } catch (const std::bad_alloc&) {
    cqs_.Erase(cqn);
    throw;
  }
  return cq;
}

Status Control::CreateCq(Context& c, const CreateCqArgs& a, std::function<void()> notify,
                         CreateCqReply* reply) {
  const auto it = c.umems.find(a.umem);
  if (it == c.umems.end()) return NotFound(Text("create CQ: no registered memory ", a.umem));
  Umem& umem = *it->second;
  HL_RETURN_IF_ERROR(CheckCqArgs(a, umem, notify != nullptr));
  HL_RETURN_IF_ERROR(CheckRoomForCq(c, notify != nullptr));
  HL_RETURN_IF_ERROR(ReserveRings(umem, options_.limits));
  HL_ASSIGN_OR_RETURN(Cq* const made, NewCq(c));
  Cq& cq = *made;
  cq.ring = RingAt(umem, a.ring_addr, CqRingBytes(a), kCqeAlign);
  cq.log_size = a.log_size;
  cq.mask = (1u << a.log_size) - 1;
  cq.dbrec = RingAt(umem, a.dbrec_addr, rnic::kDoorbellRecordBytes, kRecordAlign);
  cq.producer = cq.consumer = options_.test.first_cqe & rnic::kWaitIndexMask;
  cq.ignore_overrun = a.ignore_overrun != 0;
  cq.context = &c;
  cq.umem = &umem;
  cq.ring_addr = a.ring_addr;
  cq.dbrec_addr = a.dbrec_addr;
  ++umem.users, ++c.account->cqs;
  MarkRings(cq, true);
  if (notify != nullptr) {
    cq.notify = std::move(notify);
    cq.arm_index = c.FreeRegister();
    c.arms[cq.arm_index] = &cq;
    c.UseRegister(cq.arm_index);
  }
  *reply = {cq.cqn, cq.arm_index};
  return {};
}

Status Control::DestroyCq(Context& c, uint32_t cqn) {
  Cq* const cq = cqs_.Find(cqn);
  if (cq == nullptr || cq->context != &c)
    return NotFound(Text("destroy CQ: no completion queue ", cqn, " of this client"));
  if (cq->users != 0 || cq->waiters != nullptr)
    return Busy(Text("destroy CQ ", cqn, ": ", cq->users,
                     " queue ends use it, or a WAIT; destroy the queue pairs first"));
  Erase(*cq);
  return {};
}

void Control::Erase(Cq& cq) {
  MarkRings(cq, false);
  --cq.umem->users, --cq.context->account->cqs;
  if (cq.notify != nullptr) cq.context->arms[cq.arm_index] = nullptr;
  cq.context->cqs.erase(cq.cqn);
  cqs_.Erase(cq.cqn);
}

// --- dispatch

Status Control::Execute(Context& c, const Command& command, Reply* reply, std::string* text) {
  if (command.magic != kCommandMagic || command.version != kCommandVersion)
    return NotSupported(Text("command of another protocol version (", command.version,
                             "; this device speaks ", kCommandVersion, ")"));
  if (c.evicted) return Aborted("this client is not served any more: see the RNIC daemon's log");
  switch (command.op) {
    case Op::kAllocPd:
      return AllocPd(c, &reply->result.id);
    case Op::kFreePd:
      return FreePd(c, command.args.id.id);
    case Op::kFreeUmem:
      return FreeUmem(c, command.args.id.id);
    case Op::kCreateMkey:
      return CreateMkey(c, command.args.mkey, &reply->result.mkey);
    case Op::kDestroyMkey:
      return DestroyMkey(c, command.args.id.id);
    case Op::kCreateCq:
      return CreateCq(c, command.args.cq, nullptr, &reply->result.cq);
    case Op::kDestroyCq:
      return DestroyCq(c, command.args.id.id);
    case Op::kCreateQp:
      return life_.CreateQp(c, command.args.qp, &reply->result.qp);
    case Op::kModifyQp:
      return life_.ModifyQp(c, command.args.modify);
    case Op::kDestroyQp:
      return life_.DestroyQp(c, command.args.id.id);
    case Op::kPublish:
      return services_.Publish(c, command.args.publish);
    case Op::kConnectService:
      return services_.Connect(c, command.args.connect, &reply->result.connect);
    case Op::kQueryCounters: {
      HL_ASSIGN_OR_RETURN(const auto lines, Counters(c, command.args.counters));
      *text = lines();
      return {};
    }
    case Op::kOpen:
    case Op::kRegisterUmem:
      break;  // these come with descriptors, and not through Execute
  }
  return InvalidArgument(Text("unknown command ", static_cast<unsigned>(command.op)));
}

}  // namespace hyperloop::softrnic
