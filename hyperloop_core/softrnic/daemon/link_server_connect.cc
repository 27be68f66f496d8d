// The connections of the LinkServer: it dials, accepts and refuses them, and closes silent ones.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "hyperloop/core/text.h"
#include "softrnic/daemon/link_connection.h"

namespace hyperloop::softrnic {
namespace {

using std::chrono::milliseconds;

constexpr int kLinkVersion = 4;
constexpr milliseconds kSignOfLife{500};
constexpr milliseconds kDeadAfter{3000};
constexpr milliseconds kForgetAfter{15000};  // an accepted connection
constexpr milliseconds kIntroduceWithin{3000};
constexpr milliseconds kAcceptPause{500};
constexpr milliseconds kFirstBackoff{20};
constexpr milliseconds kLastBackoff{500};

}  // namespace

// Dials, sends signs of life, and closes silent connections. Returns the milliseconds until the
// next call is due.
int LinkServer::Timers() {
  const auto now = SteadyClock::now();
  auto next = now + milliseconds(1000);
  next = std::min(next, LookAtFiles(now));
  for (auto& neighbour : Neighbours()) {
    if (neighbour->connection != 0 || neighbour->gone) continue;
    const auto dial = [&] {
      sockets_.known_held();
      Dial(*neighbour);
    };
    if (now >= neighbour->dial_at && RanOutOfMemory(dial) && IsNews(*neighbour, kNoMemory))
      LogLine(log_.get(), LogLevel::kWarn,
              {"link to ", neighbour->name, ": ", kNoMemory, "; trying again"});
    if (neighbour->connection == 0) next = std::min(next, neighbour->dial_at);
  }
  if (accept_again_ != SteadyClock::time_point{}) {
    if (now >= accept_again_) WatchListener(true);
    next = std::min(next, now + kAcceptPause);
  }
  const size_t before = connections_.size();
  for (auto it = connections_.begin(); it != connections_.end();) {
    Connection& c = *(it++)->second;  // it may be closed
    const milliseconds limit = !c.channel.open() ? kIntroduceWithin
                               : c.dialed        ? kDeadAfter
                                                 : kForgetAfter;
    const auto since = c.channel.open() ? c.heard : c.begun;
    if (now - since >= limit) {
      Close(c.serial, c.channel.open() ? "it says nothing any more" : "no answer in time");
      continue;
    }
    if (!c.channel.open()) next = std::min(next, c.begun + limit);
    if (!c.channel.open() || !c.dialed) continue;
    const auto sign = [&] {
      sockets_.known_held();
      SignOfLife(c);
    };
    if (now - c.said >= kSignOfLife && c.unsent() == 0 && !Guard(c, sign)) continue;
    next =
        std::min({next, c.heard + limit, std::max(c.said + kSignOfLife, now + milliseconds(10))});
  }
  if (connections_.size() != before) return 0;
  const auto wait = std::chrono::ceil<milliseconds>(next - SteadyClock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(wait, 0, 1000));
}

void LinkServer::Dial(Neighbour& neighbour) {
  const auto now = SteadyClock::now();
  neighbour.backoff = std::clamp(neighbour.backoff * 2, kFirstBackoff, kLastBackoff);
  neighbour.dial_at = now + neighbour.backoff;
  UniqueFd fd(
      socket(neighbour.address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  if (fd) setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const int result =
      fd ? connect(fd.get(), reinterpret_cast<const sockaddr*>(&neighbour.address.storage),
                   neighbour.address.length)
         : -1;
  if (result != 0 && errno != EINPROGRESS) {
    const char* const why = std::strerror(errno);
    if (IsNews(neighbour, why))
      LogLine(log_.get(), LogLevel::kWarn,
              {"link to ", neighbour.name, ": ", why, "; trying again"});
    return;
  }
  RefreshKeys();
  auto c = std::make_unique<Connection>(next_serial_++, std::move(fd), ChannelOptions(&neighbour));
  c->link = neighbour.id;
  c->name = neighbour.name;
  c->dialed = c->connecting = true;
  c->begun = c->heard = c->said = now;
  Watch(*c);
  const uint64_t serial = c->serial;
  connections_.emplace(serial, std::move(c));
  neighbour.connection = serial;
}

bool LinkServer::Connected(Connection& c) {
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(c.socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) {
    Close(c.serial, std::strerror(error));
    return false;
  }
  c.connecting = false;
  const auto hello = c.channel.TakeOutput();
  c.out.Append(hello);
  NeighbourOf(c)->queued.fetch_add(static_cast<int64_t>(hello.size()));
  return true;
}

void LinkServer::Accept() {
  LinkAddress from;
  from.length = sizeof from.storage;
  UniqueFd fd(accept4(listener_.get(), reinterpret_cast<sockaddr*>(&from.storage), &from.length,
                      SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd) {
    // A connection that cannot be taken would wake the thread again and again.
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      const int error = errno;
      WatchListener(false);
      refusals_.Note("somebody",
                     std::string(std::strerror(error)) + "; for descriptors raise ulimit -n");
    }
    return;
  }
  // This one is closed below, when everything that needs memory has succeeded.
  const uint64_t given_up = OneToGiveUp(from.Source());
  if (given_up == 0 && IsFull()) {
    Count(&counters_.refused, 1);
    refusals_.Note(from.ToString(),
                   "there are " + std::to_string(kMaxConnections) + " connections, the most",
                   from.Source());
    return;
  }
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  auto c = std::make_unique<Connection>(next_serial_++, std::move(fd), ChannelOptions(nullptr));
  c->name = from.ToString();
  c->source = from.Source();
  c->begun = c->heard = c->said = SteadyClock::now();
  Watch(*c);
  connections_.emplace(c->serial, std::move(c));
  if (given_up == 0) return;
  Count(&counters_.refused, 1);
  Close(given_up, "it did not introduce itself while others came");
}

void LinkServer::WatchListener(bool on) {
  epoll_event event{};
  event.events = on ? EPOLLIN : 0u;
  event.data.u64 = kListenerEvents;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), &event);
  accept_again_ = on ? SteadyClock::time_point{} : SteadyClock::now() + kAcceptPause;
}

// The options of a new connection's channel: what its other end must prove, by the present keys.
identity::SecureChannelOptions LinkServer::ChannelOptions(const Neighbour* neighbour) const {
  identity::SecureChannelOptions options;
  options.dialer = neighbour != nullptr;
  options.purpose = "hyperloop link " + std::to_string(kLinkVersion);
  options.ring = options_.keys;
  options.peer_roles = identity::kRoleLink;
  if (neighbour != nullptr) options.peer_names = neighbour->hosts;
  options.max_body = kMaxPacketBytes;
  options.ciphers = options_.ciphers;
  return options;
}

void LinkServer::RefreshKeys() {
  if (options_.keys == nullptr) return;
  const Status status = options_.keys->Refresh();
  if (!status.ok())
    LogLine(log_.get(), LogLevel::kWarn, {"changed keys are not used: ", status.message()});
}

bool LinkServer::IsFull() const {
  const auto made_by_others = [](const auto& each) { return !each.second->dialed; };
  return static_cast<size_t>(std::ranges::count_if(connections_, made_by_others)) >=
         kMaxConnections;
}

// Returns the serial number of the connection to close for a new one from `source`. 0: none.
// Strangers that came first give way first (admission.h).
uint64_t LinkServer::OneToGiveUp(const std::string& source) const {
  std::vector<Stranger> strangers;
  std::vector<uint64_t> serials;
  for (const auto& [serial, c] : connections_) {
    if (!c->stranger()) continue;
    strangers.push_back({c->source, {false, serial}});
    serials.push_back(serial);
  }
  const auto who = WhoGivesWay(strangers, source, known_sources_, kStrangerLimits, IsFull());
  return who ? serials[*who] : 0;
}

// A neighbour needs one connection. It leaves an old one behind when the network was cut.
void LinkServer::BoundConnectionsOf(const Connection& c) {
  if (options_.keys == nullptr) return;
  size_t others = 0;
  uint64_t oldest = 0;
  for (const auto& [serial, each] : connections_) {
    if (each->dialed || !each->channel.open() || each->proven != c.proven || each.get() == &c)
      continue;
    if (others++ == 0) oldest = serial;
  }
  if (others >= kMaxConnectionsOfNeighbour) Close(oldest, "it made many others since");
}

// Whether the link has another error than the last time, which is to be logged.
bool LinkServer::IsNews(Neighbour& neighbour, std::string_view why) {
  if (why == neighbour.last_error) return false;
  if (RanOutOfMemory([&] { neighbour.last_error = why; })) neighbour.last_error.clear();
  return true;
}

// Whether the hash of `name`, which is what claims carry, tells it from all other trusted names.
bool LinkServer::IsTold(const std::string& name) {
  for (const identity::TrustedPeer& each : options_.keys->trusted()) {
    if (each.name == name || GidPrefix(each.name) != GidPrefix(name)) continue;
    LogLine(log_.get(), LogLevel::kError,
            {"the hosts ", name, " and ", each.name,
             " cannot be told apart on links: give one another name"});
    return false;
  }
  return true;
}

// Lets the other end speak for the hosts of `peer`, which it has proved to be.
void LinkServer::TakeNames(Connection& c, const identity::Peer& peer) {
  for (const identity::TrustedPeer& each : peer.lines())
    if ((each.roles & identity::kRoleLink) != 0 && IsTold(each.name)) {
      link_names_.insert(GidPrefix(each.name));
      c.proven.insert(GidPrefix(each.name));
    }
}

std::string LinkServer::NameOf(uint64_t prefix) const {
  if (options_.keys == nullptr) return {};
  for (const identity::TrustedPeer& each : options_.keys->trusted())
    if (GidPrefix(each.name) == prefix) return each.name;
  return {};
}

void LinkServer::Opened(Connection& c) {
  const auto cipher = c.channel.cipher();
  const std::string sealed =
      cipher.has_value() ? Text(", sealed with ", identity::CipherName(*cipher)) : "";
  if (Neighbour* const neighbour = NeighbourOf(c)) {
    Arrivals up;
    up.push_back({.event = {LinkEvent::Kind::kUp, c.link}});
    Count(neighbour->was_up ? &counters_.reconnects : &counters_.connects, 1);
    LogLine(log_.get(), LogLevel::kInfo,
            {"link to ", neighbour->name, neighbour->was_up ? " is up again" : " is up", sealed});
    neighbour->was_up = true;
    neighbour->backoff = milliseconds(0);
    neighbour->last_error.clear();
    neighbour->cipher.store(c.channel.cipher());
    neighbour->up.store(true, std::memory_order_release);
    PushEvents(std::move(up));
    return;
  }
  next_incoming_ = (next_incoming_ + 1) & ~kIncomingLinks;
  c.link = kIncomingLinks | next_incoming_;
  incoming_[c.link] = c.serial;
  if (options_.keys != nullptr) {
    TakeNames(c, c.channel.peer());
    c.name = c.channel.peer().names() + " (" + c.name + ")";
    KnowSource(c.source);
    BoundConnectionsOf(c);
  }
  LogLine(log_.get(), LogLevel::kInfo, {"link from ", c.name, " is up", sealed});
}

// Needs no memory.
void LinkServer::Close(uint64_t serial, std::string_view why) {
  const auto found = connections_.find(serial);
  if (found == connections_.end()) return;
  const Connection& c = *found->second;
  if (Neighbour* const neighbour = NeighbourOf(c)) {
    const bool up = neighbour->up.exchange(false);
    neighbour->queued.fetch_sub(static_cast<int64_t>(c.unsent()));
    neighbour->connection = 0;
    neighbour->dial_at = std::max(neighbour->dial_at, SteadyClock::now());
    if (IsNews(*neighbour, why) || up)
      LogLine(log_.get(), LogLevel::kWarn, {"link to ", c.name, " is down: ", why});
  } else {
    incoming_.erase(c.link);
    if (c.channel.open()) {
      LogLine(log_.get(), LogLevel::kInfo, {"link from ", c.name, " is down: ", why});
    } else {
      refusals_.Note(c.name, why, c.source);
    }
  }
  connections_.erase(found);
}

LinkServer::Neighbour* LinkServer::NeighbourOf(const Connection& c) {
  return c.dialed ? NeighbourAt(c.link) : nullptr;
}

}  // namespace hyperloop::softrnic
