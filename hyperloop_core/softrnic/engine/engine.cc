// Engine: the public functions and the run loop.
#include "softrnic/engine/engine.h"

#include "softrnic/engine/engine_impl.h"

namespace hyperloop::softrnic {
namespace {

// How many queue pairs that wait for a receive, and how many in error, one Run looks at.
constexpr size_t kLooksPerTurn = 16;

Status NotOpen(ContextId context) {
  return NotFound("context " + std::to_string(context) + " is not open");
}

}  // namespace

Engine::Engine(EngineOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Engine::~Engine() {
  while (const Context* const c = impl_->clients.Any()) CloseContext(c->id);
}

Result<ContextId> Engine::OpenContext(const std::string& host, UarPage* uar, OpenReply* reply,
                                      ClientNumber client) {
  HL_ASSIGN_OR_RETURN(Context* const c, impl_->clients.Open(host, uar, client));
  *reply = {};
  std::copy(c->host->gid.begin(), c->host->gid.end(), reply->gid);
  reply->rnic = impl_->clients.rnic();
  return c->id;
}

void Engine::ForgetClient(ClientNumber client) { impl_->clients.Forget(client); }

void Engine::CloseContext(ContextId context) { CloseContextPart(context, ~size_t{0}); }

bool Engine::CloseContextPart(ContextId context, size_t objects) {
  return impl_->control.CloseContextPart(context, objects);
}

Result<IdReply> Engine::RegisterUmem(ContextId context, const RegisterUmemArgs& args,
                                     UmemMapping mapping) {
  Context* const c = impl_->clients.Find(context);
  if (c == nullptr) return NotOpen(context);
  return impl_->control.RegisterUmem(*c, args, std::move(mapping));
}

Result<CreateCqReply> Engine::CreateEventCq(ContextId context, const CreateCqArgs& args,
                                            std::function<void()> notify) {
  Context* const c = impl_->clients.Find(context);
  if (c == nullptr) return NotOpen(context);
  CreateCqReply reply{};
  HL_RETURN_IF_ERROR(impl_->control.CreateCq(*c, args, std::move(notify), &reply));
  return reply;
}

Status Engine::Execute(ContextId context, const Command& command, Reply* reply, std::string* text) {
  Context* const c = impl_->clients.Find(context);
  if (c == nullptr) return NotOpen(context);
  try {
    return impl_->control.Execute(*c, command, reply, text);
  } catch (const std::bad_alloc&) {
    impl_->clients.Evict(*c->account, "out of memory in a command");
    return NoSpace("the device is out of memory: this client is ended");
  }
}

Result<std::function<std::string()>> Engine::Counters(ContextId context,
                                                      const QueryCountersArgs& args) {
  Context* const c = impl_->clients.Find(context);
  if (c == nullptr) return NotOpen(context);
  return impl_->control.Counters(*c, args);
}

std::vector<std::string> Engine::Hosts() const { return impl_->clients.HostNames(); }

std::optional<Engine::HostCounters> Engine::CountersOf(const std::string& host) const {
  const Host* const found = impl_->clients.FindHost(host);
  if (found == nullptr) return std::nullopt;
  HostCounters counters;
  impl_->control.Count(*found->tally, &counters.sum, &counters.queue_pairs);
  return counters;
}

size_t Engine::contexts() const { return impl_->clients.open().size(); }

void Engine::SetEvict(std::function<void(ContextId, const char* why)> evict) {
  impl_->clients.SetEvict(std::move(evict));
}

void Engine::AttachPort(LinkPort* port) { impl_->traffic.Attach(port); }

Status Engine::AddRoute(const std::string& host, LinkId link) {
  return impl_->routes.Add(host, link);
}

size_t Engine::Run(size_t budget) {
  Impl& e = *impl_;
  const Clock::InTurn in_turn(e.clock);
  const size_t linked = e.traffic.attached() ? e.links.Poll((budget + 1) / 2) : 0;
  budget -= std::min(linked, budget / 2);
  size_t done = 0;
  if (e.steps != nullptr) [[unlikely]] {
    while (done < budget && e.steps->Step()) ++done;
    if (e.traffic.attached()) e.traffic.port()->Flush();
    return linked + done;
  }
  e.clients.EvictDoomed();
  e.doorbells.Collect();
  // Queue pairs that wait are looked at also while other queues keep the engine busy.
  if (!e.looks.empty()) e.retries.LookAtSome(kLooksPerTurn);
  Qp* qp = nullptr;
  try {
    while (done < budget) {
      // A client that has little to do must not wait until a busy client's turns fill the budget.
      if (e.turn.work() >= kTurnSteps) e.doorbells.Collect();
      qp = e.ready.Next();
      if (qp == nullptr) {
        if (!e.doorbells.Collect()) break;
        qp = e.ready.Next();
      }
      // A client may ring for nothing faster than its doorbells are collected.
      done += qp != nullptr ? e.requester.RunQueue(*qp, budget - done) : kTurnSteps;
    }
  } catch (const std::bad_alloc&) {
    if (qp == nullptr) throw;
    e.clients.Evict(*qp->account, Clients::kNoMemory);
    ++done;
  }
  if (e.traffic.attached()) e.traffic.port()->Flush();
  return linked + done;
}

bool Engine::Step() { return Run(1) != 0; }

bool Engine::DoorbellPending() const {
  return impl_->doorbells.Pending() ||
         (impl_->traffic.attached() && impl_->traffic.port()->Pending());
}

bool Engine::RetryPending() const {
  if (impl_->link_work.NeedsLooks() || impl_->looks.AnyWaits()) return true;
  if (!impl_->deferred) return false;
  bool pending = false;
  impl_->qps.ForEach([&pending](const Qp& qp) { pending |= !qp.transit.inflight.empty(); });
  return pending;
}

const EngineOptions& Engine::options() const { return impl_->options; }

bool Engine::HandleFault(void* address) { return impl_->truncated_files.HandleFault(address); }

}  // namespace hyperloop::softrnic
