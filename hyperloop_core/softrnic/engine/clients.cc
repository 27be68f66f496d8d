#include "softrnic/engine/clients.h"

#include <cstring>
#include <utility>

#include "hyperloop/core/name.h"
#include "softrnic/engine/flusher.h"
#include "softrnic/engine/random_number.h"
#include "softrnic/engine/text.h"

namespace hyperloop::softrnic {
namespace {

constexpr size_t kMaxHosts = 256;
constexpr size_t kMaxTallies = 1024;
constexpr ClientNumber kAlone = 1ull << 63;  // set in the numbers that the engine itself gives

}  // namespace

Clients::Clients(const EngineOptions& options, ErrorState& errors, ReadyList& ready,
                 LinkWork& link_work)
    : options_(options),
      errors_(errors),
      ready_(ready),
      link_work_(link_work),
      next_host_(RandomNumber()),
      rnic_(RandomNumber()) {}

Account& Clients::AccountOf(ClientNumber client) {
  if (client == 0) client = kAlone | next_context_;
  auto it = accounts_.find(client);
  if (it == accounts_.end()) it = accounts_.emplace(client, std::make_unique<Account>()).first;
  it->second->client = client;
  return *it->second;
}

// Destroys an account that has no contexts, unless its client may come again and must find it.
void Clients::Release(const Account& account) {
  if ((account.client & kAlone) != 0 || account.faults == 0) accounts_.erase(account.client);
}

void Clients::Forget(ClientNumber client) {
  const auto it = accounts_.find(client);
  if (it != accounts_.end() && it->second->contexts == 0) accounts_.erase(it);
}

// Makes the host `name`, whose tally goes on if a host had this name before.
Host& Clients::Attach(const std::string& name) {
  auto owned = std::make_unique<Host>();
  Host& host = *owned;
  host.name = name;
  const uint64_t prefix = htobe64(GidPrefix(name));
  std::memcpy(&host.gid[0], &prefix, sizeof(prefix));
  const uint64_t number = htobe64(next_host_++);  // given once: a stale address finds nobody
  std::memcpy(&host.gid[8], &number, sizeof(number));
  const auto place = hosts_.emplace(name, std::move(owned)).first;
  try {
    if (!tallies_.contains(name)) MakeRoomForTally();
    host.tally = &tallies_[name];
  } catch (const std::bad_alloc&) {
    hosts_.erase(place);
    throw;
  }
  host.tally->left = 0;
  return host;
}

void Clients::Detach(const Host& host) {
  host.tally->left = ++departures_;
  hosts_.erase(hosts_.find(host.name));
}

// Forgets the host that left first, if there are too many. There are fewer hosts than tallies, so
// one that left is among them.
void Clients::MakeRoomForTally() {
  static_assert(kMaxHosts < kMaxTallies);
  if (tallies_.size() < kMaxTallies) return;
  auto first = tallies_.end();
  for (auto it = tallies_.begin(); it != tallies_.end(); ++it) {
    if (it->second.left == 0) continue;
    if (first == tallies_.end() || it->second.left < first->second.left) first = it;
  }
  tallies_.erase(first);
}

Result<Context*> Clients::Open(const std::string& name, UarPage* uar, ClientNumber client) {
  if (!IsName(name)) return InvalidArgument(Text("open: a host name is ", kNameRule));
  if (uar == nullptr) return InvalidArgument("open: no doorbell page");
  if (const auto known = accounts_.find(client);
      known != accounts_.end() && known->second->faults > options_.limits.faults)
    return Aborted(Text("open: this client caused ", known->second->faults,
                        " faults in files that it truncated; at most ", options_.limits.faults,
                        " (--client-faults of the RNIC daemon)"));
  if (contexts_.size() >= kMaxContexts)
    return NoSpace(Text("open: the device has ", kMaxContexts, " clients, the most"));
  Host* const attached = FindHost(name);
  if (attached == nullptr && hosts_.size() >= kMaxHosts)
    return NoSpace(Text("open: the device has ", kMaxHosts, " hosts, the most; close some"));
  Host& host = attached != nullptr ? *attached : Attach(name);
  const ContextId id = next_context_++;
  Account* account = nullptr;
  Context* made = nullptr;
  try {
    account = &AccountOf(client);
    auto owned = std::make_unique<Context>();
    made = owned.get();
    made->id = id;
    made->account = account;
    made->host = &host;
    made->uar = uar;
    open_.reserve(open_.size() + 1);
    contexts_.emplace(id, std::move(owned));
    open_.push_back(made);
  } catch (const std::bad_alloc&) {
    if (host.contexts == 0) Detach(host);
    if (account != nullptr && account->contexts == 0) Release(*account);
    throw;
  }
  ++host.contexts, ++account->contexts;
  return made;
}

Context* Clients::Find(ContextId id) const {
  const auto it = contexts_.find(id);
  return it != contexts_.end() ? it->second.get() : nullptr;
}

Host* Clients::FindHost(const std::string& name) const {
  const auto it = hosts_.find(name);
  return it != hosts_.end() ? it->second.get() : nullptr;
}

const Tally* Clients::FindTally(const std::string& name) const {
  const auto it = tallies_.find(name);
  return it != tallies_.end() ? &it->second : nullptr;
}

std::vector<std::string> Clients::HostNames() const {
  std::vector<std::string> names;
  for (const auto& [name, host] : hosts_) names.push_back(name);
  return names;
}

void Clients::StopServing(Context& c) {
  if (c.closing) return;
  c.closing = true;
  std::erase_if(c.host->services, [&c](const auto& entry) { return entry.second.context == &c; });
  std::erase(open_, &c);
}

void Clients::Close(Context& c) {
  if (--c.host->contexts == 0) Detach(*c.host);
  Account& account = *c.account;
  if (--account.contexts == 0) {
    ready_.Forget(account);
    link_work_.Forget(account);
    if (options_.flusher != nullptr) options_.flusher->Gone(account.client);
    Release(account);
  }
  contexts_.erase(c.id);
}

void Clients::Evict(const Account& account, const char* why) {
  for (Context* c : open_) {
    if (c->account != &account || c->evicted) continue;
    c->evicted = true;
    ForEachQp(*c, [this](Qp& qp) {
      if (qp.state != rnic::QpState::kReset) errors_.Enter(qp);
    });
    if (evict_) evict_(c->id, why);
  }
}

void Clients::EvictAllDoomed() {
  doomed_ = false;
  for (auto& [number, account] : accounts_)
    if (const char* const why = std::exchange(account->doomed, nullptr)) Evict(*account, why);
}

}  // namespace hyperloop::softrnic
