#include "control/resolve.h"

#include <netdb.h>
#include <signal.h>

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <system_error>
#include <thread>

#include "hyperloop/core/mutex.h"
#include "hyperloop/core/text.h"

namespace hyperloop::control {
namespace {

using Addresses = std::vector<SocketAddress>;

// What the resolver said last of each host.
class Known {
 public:
  void Note(const std::string& host, const Addresses& addresses) {
    const MutexLock lock(mutex_);
    hosts_[host] = addresses;
  }
  // Empty if nothing is known. The look-up may have been for another port.
  Addresses Find(const Endpoint& endpoint) {
    const MutexLock lock(mutex_);
    const auto found = hosts_.find(endpoint.host);
    if (found == hosts_.end()) return {};
    Addresses addresses = found->second;
    for (SocketAddress& each : addresses) {
      auto* const v4 = reinterpret_cast<sockaddr_in*>(&each.storage);
      auto* const v6 = reinterpret_cast<sockaddr_in6*>(&each.storage);
      (each.storage.ss_family == AF_INET6 ? v6->sin6_port : v4->sin_port) = htons(endpoint.port);
    }
    return addresses;
  }

 private:
  Mutex mutex_;
  std::map<std::string, Addresses> hosts_ HL_GUARDED_BY(mutex_);
};

// Never destroyed, because look-ups may outlive main.
Known& TheKnown() {
  static auto* const known = new Known;
  return *known;
}

struct Lookup {
  Mutex mutex;
  ConditionVariable ended;
  bool done HL_GUARDED_BY(mutex) = false;
  Result<Addresses> found HL_GUARDED_BY(mutex) = Addresses();
};

std::atomic<int> g_lookups{0};

void RunLookup(const Endpoint& endpoint, Lookup& lookup) {
  Result<Addresses> found = Resolve(endpoint, 0);
  if (found.ok()) TheKnown().Note(endpoint.host, *found);
  g_lookups.fetch_sub(1);
  const MutexLock lock(lookup.mutex);
  lookup.found = std::move(found);
  lookup.done = true;
  lookup.ended.notify_all();
}

// The resolver has no deadline, so a thread asks it that nobody has to wait for. The program's
// signals go to its own threads. Null: there are too many look-ups, or no thread can be made.
std::shared_ptr<Lookup> StartLookup(const Endpoint& endpoint) {
  if (g_lookups.fetch_add(1) >= kMostLookups) {
    g_lookups.fetch_sub(1);
    return nullptr;
  }
  auto lookup = std::make_shared<Lookup>();
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread([endpoint, lookup] { RunLookup(endpoint, *lookup); }).detach();
  } catch (const std::system_error&) {
    g_lookups.fetch_sub(1);
    lookup = nullptr;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return lookup;
}

Result<Addresses> Await(Lookup& lookup, const Endpoint& endpoint, Deadline until) {
  MutexLock lock(lookup.mutex);
  const auto done = [&]() HL_REQUIRES(lookup.mutex) { return lookup.done; };
  if (lookup.ended.wait_until(lookup.mutex, until, done)) return lookup.found;
  return TimedOut(Text("the resolver did not say in time which address host \"", endpoint.host,
                       "\" of ", endpoint.ToString(), " has"));
}

}  // namespace

Result<Addresses> Resolve(const Endpoint& endpoint, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error =
      getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &list);
  if (error != 0) {
    return Status(error == EAI_AGAIN ? Code::kUnavailable : Code::kInvalidArgument,
                  Text("cannot resolve host \"", endpoint.host, "\" of ", endpoint.ToString(), ": ",
                       gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, freeaddrinfo);
  Addresses addresses;
  for (const addrinfo* each = list; each != nullptr; each = each->ai_next) {
    SocketAddress& address = addresses.emplace_back();
    std::memcpy(&address.storage, each->ai_addr, each->ai_addrlen);
    address.length = each->ai_addrlen;
  }
  return addresses;
}

Result<Addresses> ResolveUntil(const Endpoint& endpoint, Deadline deadline) {
  if (auto numeric = Resolve(endpoint, AI_NUMERICHOST); numeric.ok()) return numeric;
  Addresses known = TheKnown().Find(endpoint);
  const std::shared_ptr<Lookup> lookup = StartLookup(endpoint);
  const auto half = (deadline - Clock::now()) / 2;
  Result<Addresses> found =
      lookup != nullptr ? Await(*lookup, endpoint, known.empty() ? deadline : deadline - half)
                        : Unavailable(Text("cannot resolve host \"", endpoint.host, "\" of ",
                                           endpoint.ToString(), ": ", kMostLookups,
                                           " look-ups wait for the resolver, or there is no room "
                                           "for another thread"));
  const bool silent =
      found.status().code() == Code::kTimedOut || found.status().code() == Code::kUnavailable;
  if (silent && !known.empty()) return known;
  return found;
}

}  // namespace hyperloop::control
