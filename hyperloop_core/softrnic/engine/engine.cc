// Engine: the public face, the run loop and the doorbells.
#include "softrnic/engine/engine.h"

#include "softrnic/engine/engine_impl.h"

namespace hyperloop::softrnic {
namespace {

// Queue pairs that wait for a receive, or are in error, that are looked at each turn.
constexpr size_t kLooksPerTurn = 16;

}  // namespace

Engine::Impl::Impl(EngineOptions o) : options(std::move(o)) {
  header_mask =
      (options.check_wqe_index ? 0xffffull << 40 : 0) | (options.check_qpn ? 0xffffffull << 8 : 0);
  deferred = options.defer_delivery;
  slow = deferred || options.schedule == EngineOptions::Schedule::kRandom;
  overrun_blocks = options.check_cross_channel ? 0 : 4;
}

// Takes the doorbells rung since the last time. The client stores a register, then sets its summary
// bit (seq_cst RMW); the exchange here takes the bit and, acquiring, sees the register and the WQEs
// written before it.
bool Engine::Impl::CollectDoorbells() {
  bool any = false;
  turn.ForgetWork();
  for (Context* c : clients.open()) {
    for (uint32_t w = 0; w < c->uar_words; ++w) {
      uint64_t* const summary = &c->uar->header.summary[w];
      if (__atomic_load_n(summary, __ATOMIC_RELAXED) == 0) [[likely]]
        continue;
      uint64_t bits = __atomic_exchange_n(summary, 0, __ATOMIC_ACQUIRE);
      for (; bits != 0; bits &= bits - 1) {
        const uint32_t index = w * 64 + static_cast<uint32_t>(__builtin_ctzll(bits));
        Qp* const qp = c->doorbells[index];
        const uint64_t value = __atomic_load_n(&c->uar->registers[index], __ATOMIC_ACQUIRE);
        if (Cq* const cq = c->arms[index]; cq != nullptr && (value >> 63) != 0) [[unlikely]]
          CompletionQueues::Arm(*cq, value);
        if (qp == nullptr || (value >> 63) == 0 || qp->state == rnic::QpState::kReset) continue;
        ++qp->count.doorbells;
        any = true;
        Advance(*qp, static_cast<uint16_t>(value));
      }
    }
  }
  return any;
}

Engine::Engine(EngineOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Engine::~Engine() {
  while (const Context* const c = impl_->clients.Any()) CloseContext(c->id);
}

Result<ContextId> Engine::OpenContext(const std::string& host, UarPage* uar, OpenReply* reply,
                                      ClientNumber client) {
  HL_ASSIGN_OR_RETURN(Context* const c, impl_->clients.Open(host, uar, client));
  *reply = {};
  std::copy(c->host->gid.begin(), c->host->gid.end(), reply->gid);
  reply->uar_id = c->id;
  return c->id;
}

void Engine::CloseContext(ContextId context) { CloseContextPart(context, ~size_t{0}); }

bool Engine::CloseContextPart(ContextId context, size_t objects) {
  return impl_->CloseContextPart(context, objects);
}

Result<IdReply> Engine::RegisterUmem(ContextId context, const RegisterUmemArgs& args,
                                     UmemMapping mapping) {
  Context* const c = impl_->clients.Find(context);
  if (c == nullptr) return NotFound("context " + std::to_string(context) + " is not open");
  return impl_->RegisterUmem(*c, args, std::move(mapping));
}

Result<CreateCqReply> Engine::CreateEventCq(ContextId context, const CreateCqArgs& args,
                                            std::function<void()> notify) {
  Context* const c = impl_->clients.Find(context);
  if (c == nullptr) return NotFound("context " + std::to_string(context) + " is not open");
  CreateCqReply reply{};
  HL_RETURN_IF_ERROR(impl_->CreateCq(*c, args, std::move(notify), &reply));
  return reply;
}

Status Engine::Execute(ContextId context, const Command& command, Reply* reply, std::string* text) {
  Context* const c = impl_->clients.Find(context);
  if (c == nullptr) return NotFound("context " + std::to_string(context) + " is not open");
  try {
    return impl_->Execute(*c, command, reply, text);
  } catch (const std::bad_alloc&) {
    impl_->clients.Evict(*c->account, "out of memory in a command");
    return NoSpace("the device is out of memory: this client is ended");
  }
}

std::function<std::string()> Engine::Counters(ContextId context) {
  Context* const c = impl_->clients.Find(context);
  if (c == nullptr) return [] { return std::string(); };
  return impl_->Counters(*c);
}

void Engine::SetEvict(std::function<void(ContextId, const char* why)> evict) {
  impl_->clients.SetEvict(std::move(evict));
}

void Engine::AttachPort(LinkPort* port) { impl_->port = port; }

Status Engine::AddPeer(const std::string& host, LinkId link) { return impl_->AddPeer(host, link); }

size_t Engine::Run(size_t budget) {
  Impl& e = *impl_;
  const size_t linked = e.port != nullptr ? e.PollLinks((budget + 1) / 2) : 0;
  budget -= std::min(linked, budget / 2);
  size_t done = 0;
  if (e.slow) [[unlikely]] {
    while (done < budget && e.SlowStep()) ++done;
    if (e.port != nullptr) e.port->Flush();
    return linked + done;
  }
  e.clients.EvictDoomed();
  e.CollectDoorbells();
  // Also while other queues keep the engine busy.
  if (!e.looks.empty()) e.retries.LookAtSome(kLooksPerTurn);
  Qp* qp = nullptr;
  try {
    while (done < budget) {
      // A client that has little to do is not to wait until a busy one's turns fill the budget.
      if (e.turn.work() >= kTurnSteps) e.CollectDoorbells();
      qp = e.ready.Next();
      if (qp == nullptr) {
        if (!e.CollectDoorbells()) break;
        continue;
      }
      done += e.RunQueue(*qp, budget - done);
    }
  } catch (const std::bad_alloc&) {
    if (qp == nullptr) throw;
    e.clients.Evict(*qp->account, Clients::kNoMemory);
    ++done;
  }
  if (e.port != nullptr) e.port->Flush();
  return linked + done;
}

bool Engine::Step() { return Run(1) != 0; }

bool Engine::DoorbellPending() const {
  for (const Context* c : impl_->clients.open())
    for (uint32_t w = 0; w < c->uar_words; ++w)
      if (__atomic_load_n(&c->uar->header.summary[w], __ATOMIC_SEQ_CST) != 0) return true;
  return impl_->port != nullptr && impl_->port->Pending();
}

bool Engine::RetryPending() const {
  if (impl_->link_work.NeedsLooks() || impl_->looks.AnyWaits()) return true;
  if (!impl_->deferred) return false;
  bool pending = false;
  impl_->qps.ForEach([&pending](const Qp& qp) { pending |= !qp.inflight.empty(); });
  return pending;
}

const EngineOptions& Engine::options() const { return impl_->options; }

bool Engine::HandleFault(void* address) { return impl_->truncated_files.HandleFault(address); }

}  // namespace hyperloop::softrnic
