#include "softrnic/daemon/link_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "softrnic/links/packet.h"

namespace hyperloop::softrnic {
namespace {

using std::chrono::milliseconds;

constexpr int64_t kQueueBytes = 1 << 20;
constexpr size_t kInboxBytes = 4 << 20;
constexpr size_t kMaxAnswerBytes = 4 << 20;  // of one connection, before its requests wait
constexpr size_t kMaxConnections = 256;
constexpr size_t kMaxStrangers = 32;  // of them, that have not introduced themselves yet
constexpr size_t kReadBytes = 256 << 10;
constexpr milliseconds kSignOfLife{500};
constexpr milliseconds kDeadAfter{3000};
constexpr milliseconds kForgetAfter{15000};  // an accepted connection
constexpr milliseconds kIntroduceWithin{3000};
constexpr milliseconds kAcceptPause{500};
constexpr milliseconds kBetweenRefusals{1000};
constexpr milliseconds kFirstBackoff{20};
constexpr milliseconds kLastBackoff{500};

constexpr uint64_t kListener = 1;
constexpr uint64_t kWake = 2;
// Ids of links that peers made; below are configured ones.
constexpr LinkId kIncoming = 0x80000000;

void Add(std::atomic<uint64_t>* counter, uint64_t n) {
  counter->fetch_add(n, std::memory_order_relaxed);
}

}  // namespace

struct LinkServer::Connection {
  Connection(uint64_t s, UniqueFd fd, bool dialer, const LinkKey* key)
      : serial(s), socket(std::move(fd)), channel(dialer, key) {}

  const uint64_t serial;
  UniqueFd socket;
  LinkChannel channel;
  LinkId link = kNoLink;
  std::string name;
  bool dialed = false;
  bool connecting = false;
  std::vector<std::byte> out;
  size_t written = 0;  // of `out`
  uint32_t watched = 0;
  Clock::time_point begun, heard, said;

  size_t unsent() const { return out.size() - written; }
};

Result<std::unique_ptr<LinkServer>> LinkServer::Create(LinkOptions options, Engine* engine,
                                                       std::shared_ptr<Log> log) {
  HL_RETURN_IF_ERROR(InitializeLinkCrypto());
  std::unique_ptr<LinkServer> server(new LinkServer(std::move(options), std::move(log)));
  server->epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
  server->wake_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!server->epoll_ || !server->wake_) return FromErrno(errno, "creating the links' descriptors");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWake;
  epoll_ctl(server->epoll_.get(), EPOLL_CTL_ADD, server->wake_.get(), &event);
  HL_RETURN_IF_ERROR(server->Listen());
  HL_RETURN_IF_ERROR(server->AddPeers(engine));
  engine->AttachPort(server.get());
  return server;
}

LinkServer::LinkServer(LinkOptions options, std::shared_ptr<Log> log)
    : options_(std::move(options)), log_(std::move(log)) {}

LinkServer::~LinkServer() { Stop(); }

Status LinkServer::Listen() {
  if (!options_.listen.has_value()) return {};
  const LinkAddress& address = *options_.listen;
  const std::string text = address.ToString();
  listener_.Reset(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener_) return FromErrno(errno, "creating the link socket");
  const int on = 1;
  setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) !=
          0 ||
      listen(listener_.get(), 64) != 0)
    return FromErrno(errno, "--listen " + text);
  bound_.length = sizeof bound_.storage;
  getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&bound_.storage), &bound_.length);
  listening_ = bound_.ToString();
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kListener;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener_.get(), &event) != 0)
    return FromErrno(errno, "epoll_ctl");
  return {};
}

// Hosts at one address share a link. A list that is the same on all machines names this daemon's
// own hosts too: nothing is dialed for them.
Status LinkServer::AddPeers(Engine* engine) {
  for (const LinkPeer& each : options_.peers) {
    if (!listening_.empty() && Reaches(each.address, bound_)) continue;
    auto found = std::find_if(peers_.begin(), peers_.end(),
                              [&](const auto& peer) { return peer->address == each.address; });
    if (found == peers_.end()) {
      peers_.push_back(std::make_unique<Peer>());
      peers_.back()->address = each.address;
      found = peers_.end() - 1;
    }
    (*found)->name += ((*found)->name.empty() ? "" : ",") + each.host;
    HL_RETURN_IF_ERROR(engine->AddPeer(each.host, static_cast<LinkId>(found - peers_.begin() + 1)));
  }
  for (auto& peer : peers_) peer->name += " (" + peer->address.ToString() + ")";
  return {};
}

void LinkServer::Start(EngineLoop* loop) {
  loop_ = loop;
  thread_ = std::thread([this] { Run(); });
}

void LinkServer::Stop() {
  if (!thread_.joinable()) return;
  stop_ = true;
  WakeThread();
  thread_.join();
}

void LinkServer::WakeThread() {
  const uint64_t one = 1;
  [[maybe_unused]] ssize_t n = write(wake_.get(), &one, sizeof one);
}

std::string LinkServer::CounterText() const {
  std::string text;
  const auto line = [&text](const char* name, uint64_t value) {
    text += std::string(name) + " " + std::to_string(value) + "\n";
  };
  uint64_t up = 0;
  for (const auto& peer : peers_) up += peer->up.load() ? 1 : 0;
  line("links_configured", peers_.size());
  line("links_up", up);
  line("link_frames_sent", counters_.frames_sent.load());
  line("link_frames_received", counters_.frames_received.load());
  line("link_bytes_sent", counters_.bytes_sent.load());
  line("link_bytes_received", counters_.bytes_received.load());
  line("link_connects", counters_.connects.load());
  line("link_reconnects", counters_.reconnects.load());
  line("link_connections_refused", counters_.refused.load());
  return text;
}

// --- the engine's side
// ----------------------------------------------------------------------------

bool LinkServer::Ready(LinkId link) {
  if (link == kNoLink || link > peers_.size()) return false;
  Peer& peer = *peers_[link - 1];
  if (!peer.up.load(std::memory_order_acquire)) return false;
  if (peer.queued.load(std::memory_order_relaxed) < kQueueBytes) return true;
  // Say so first, then look again: the thread looks at the flag after it made room.
  peer.wants_room.store(true);
  if (peer.queued.load() >= kQueueBytes / 2) return false;
  return peer.wants_room.exchange(false);
}

void LinkServer::Send(LinkId link, PacketBytes packet) {
  if (link != kNoLink && link <= peers_.size())
    peers_[link - 1]->queued.fetch_add(
        static_cast<int64_t>(packet->size() + LinkChannel::FrameOverhead(options_.key.has_value())),
        std::memory_order_relaxed);
  staged_.emplace_back(link, std::move(packet));
}

void LinkServer::Flush() {
  if (staged_.empty()) return;
  bool wake;
  {
    std::lock_guard lock(mutex_);
    wake = outbox_.empty();
    if (wake) {
      outbox_.swap(staged_);
    } else {
      std::move(staged_.begin(), staged_.end(), std::back_inserter(outbox_));
    }
  }
  staged_.clear();
  if (wake) WakeThread();
}

bool LinkServer::Receive(LinkEvent* event) {
  if (taken_.empty()) {
    if (!has_inbox_.load(std::memory_order_acquire)) return false;
    {
      std::lock_guard lock(mutex_);
      taken_.swap(inbox_);
      has_inbox_.store(false);
      inbox_bytes_.store(0);
    }
    if (paused_.exchange(false)) WakeThread();
    if (taken_.empty()) return false;
  }
  *event = std::move(taken_.front());
  taken_.pop_front();
  return true;
}

bool LinkServer::Pending() const { return !taken_.empty() || has_inbox_.load(); }

// --- the thread
// -------------------------------------------------------------------------------

void LinkServer::PushEvents(std::vector<LinkEvent> events, size_t bytes) {
  if (events.empty()) return;
  {
    std::lock_guard lock(mutex_);
    std::move(events.begin(), events.end(), std::back_inserter(inbox_));
    inbox_bytes_.fetch_add(bytes);
    has_inbox_.store(true);
  }
  // Pairs with EngineLoop::Sleep: either this look at its flag sees it sleeping, or its look at
  // Pending sees what was pushed.
  loop_->WakeIfSleeping();
}

void LinkServer::Run() {
  std::array<epoll_event, 64> events;
  while (!stop_) {
    const int timeout = Timers();
    const int n = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout);
    for (int i = 0; i < n; ++i) {
      const uint64_t what = events[static_cast<size_t>(i)].data.u64;
      if (what == kListener) {
        Accept();
      } else if (what == kWake) {
        uint64_t count;
        [[maybe_unused]] ssize_t got = read(wake_.get(), &count, sizeof count);
      } else {
        HandleConnection(what, events[static_cast<size_t>(i)].events);
      }
    }
    TakeOutbox();
    ResumeReading();
  }
  while (!connections_.empty()) Close(connections_.begin()->first, "the daemon stops");
}

// Dials, says that it lives, gives up who does not. Returns milliseconds until it must look again.
int LinkServer::Timers() {
  const auto now = Clock::now();
  auto next = now + milliseconds(1000);
  for (auto& peer : peers_) {
    if (peer->connection != 0) continue;
    if (now >= peer->dial_at) Dial(*peer);
    if (peer->connection == 0) next = std::min(next, peer->dial_at);
  }
  if (accept_again_ != Clock::time_point{}) {
    if (now >= accept_again_) WatchListener(true);
    next = std::min(next, now + kAcceptPause);
  }
  std::vector<std::pair<uint64_t, std::string>> dead;
  for (auto& [serial, c] : connections_) {
    if (!c->channel.open()) {
      if (now - c->begun >= kIntroduceWithin) dead.emplace_back(serial, "no answer in time");
      next = std::min(next, c->begun + kIntroduceWithin);
      continue;
    }
    const milliseconds limit = c->dialed ? kDeadAfter : kForgetAfter;
    if (now - c->heard >= limit) dead.emplace_back(serial, "it says nothing any more");
    if (!c->dialed) continue;
    if (now - c->said >= kSignOfLife && c->unsent() == 0) SignOfLife(*c);
    next =
        std::min({next, c->heard + limit, std::max(c->said + kSignOfLife, now + milliseconds(10))});
  }
  for (const auto& [serial, why] : dead) Close(serial, why);
  if (!dead.empty()) return 0;
  const auto wait = std::chrono::ceil<milliseconds>(next - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(wait, 0, 1000));
}

void LinkServer::Dial(Peer& peer) {
  const auto now = Clock::now();
  peer.backoff = std::clamp(peer.backoff * 2, kFirstBackoff, kLastBackoff);
  peer.dial_at = now + peer.backoff;
  UniqueFd fd(
      socket(peer.address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  if (fd) setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const int result =
      fd ? connect(fd.get(), reinterpret_cast<const sockaddr*>(&peer.address.storage),
                   peer.address.length)
         : -1;
  if (result != 0 && errno != EINPROGRESS) {
    const std::string why = std::strerror(errno);
    if (why != peer.last_error)
      log_->Write(LogLevel::kWarn, "link to " + peer.name + ": " + why + "; trying again");
    peer.last_error = why;
    return;
  }
  auto c = std::make_unique<Connection>(next_serial_++, std::move(fd), true,
                                        options_.key.has_value() ? &*options_.key : nullptr);
  for (size_t i = 0; i < peers_.size(); ++i)
    if (peers_[i].get() == &peer) c->link = static_cast<LinkId>(i + 1);
  c->name = peer.name;
  c->dialed = c->connecting = true;
  c->begun = c->heard = c->said = now;
  peer.connection = c->serial;
  Watch(*c);
  connections_.emplace(c->serial, std::move(c));
}

void LinkServer::Accept() {
  LinkAddress from;
  from.length = sizeof from.storage;
  UniqueFd fd(accept4(listener_.get(), reinterpret_cast<sockaddr*>(&from.storage), &from.length,
                      SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd) {
    // A connection that cannot be taken would wake the thread again and again.
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      LogRefusal("a peer", std::string(std::strerror(errno)) + "; for descriptors raise ulimit -n");
      WatchListener(false);
    }
    return;
  }
  MakeRoomForStranger();
  if (connections_.size() >= kMaxConnections) {
    Add(&counters_.refused, 1);
    LogRefusal(from.ToString(),
               "there are " + std::to_string(kMaxConnections) + " connections, the most");
    return;
  }
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  auto c = std::make_unique<Connection>(next_serial_++, std::move(fd), false,
                                        options_.key.has_value() ? &*options_.key : nullptr);
  c->name = from.ToString();
  c->begun = c->heard = c->said = Clock::now();
  Watch(*c);
  connections_.emplace(c->serial, std::move(c));
}

void LinkServer::WatchListener(bool on) {
  epoll_event event{};
  event.events = on ? EPOLLIN : 0u;
  event.data.u64 = kListener;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), &event);
  accept_again_ = on ? Clock::time_point{} : Clock::now() + kAcceptPause;
}

// Whoever reaches the port can connect and be silent: the oldest of those goes, so that they keep
// no peer out.
void LinkServer::MakeRoomForStranger() {
  size_t strangers = 0;
  uint64_t oldest = 0;
  for (const auto& [serial, c] : connections_) {
    if (c->dialed || c->channel.open()) continue;
    if (strangers++ == 0) oldest = serial;
  }
  if (strangers < kMaxStrangers) return;
  Add(&counters_.refused, 1);
  Close(oldest,
        "it did not introduce itself while " + std::to_string(kMaxStrangers) + " others came");
}

// One that tries again and again is told of once; many different ones now and then.
void LinkServer::LogRefusal(const std::string& name, const std::string& why) {
  const auto now = Clock::now();
  if (why == last_refusal_ || now - refusal_logged_ < kBetweenRefusals) return;
  log_->Write(LogLevel::kWarn, "link from " + name + " was refused: " + why);
  last_refusal_ = why;
  refusal_logged_ = now;
}

void LinkServer::Watch(Connection& c) {
  // A connection whose answers are not taken gets no more requests run.
  const bool reads = !paused_.load() && c.unsent() < kMaxAnswerBytes;
  const uint32_t wanted =
      (reads && !c.connecting ? EPOLLIN : 0u) | (c.unsent() != 0 || c.connecting ? EPOLLOUT : 0u);
  if (wanted == c.watched && wanted != 0) return;
  epoll_event event{};
  event.events = wanted;
  event.data.u64 = c.serial;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, c.socket.get(), &event) != 0)
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, c.socket.get(), &event);
  c.watched = wanted;
}

void LinkServer::ResumeReading() {
  for (auto& [serial, c] : connections_) Watch(*c);
}

LinkServer::Peer* LinkServer::PeerOf(const Connection& c) {
  return c.dialed ? peers_[c.link - 1].get() : nullptr;
}

void LinkServer::HandleConnection(uint64_t serial, uint32_t events) {
  const auto found = connections_.find(serial);
  if (found == connections_.end()) return;
  Connection& c = *found->second;
  if (c.connecting) {
    if (!Connected(c)) return;
  } else if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
    if (!ReadFrom(c)) return;
  }
  if (c.unsent() != 0 && !WriteTo(c)) return;
  Watch(c);
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
  PeerOf(c)->queued.fetch_add(static_cast<int64_t>(hello.size()));
  c.out.insert(c.out.end(), hello.begin(), hello.end());
  return true;
}

// False: the connection is gone.
bool LinkServer::ReadFrom(Connection& c) {
  static thread_local std::vector<std::byte> buffer(kReadBytes);
  const ssize_t n = recv(c.socket.get(), buffer.data(), buffer.size(), 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (n <= 0) {
    Close(c.serial, n == 0 ? "it closed the connection" : std::strerror(errno));
    return false;
  }
  c.heard = Clock::now();
  Add(&counters_.bytes_received, static_cast<uint64_t>(n));
  c.channel.Append(std::span(buffer).first(static_cast<size_t>(n)));
  const bool was_open = c.channel.open();
  std::vector<LinkEvent> packets;
  size_t bytes = 0;
  Status status;
  bool life = false;
  for (;;) {
    const auto frame = c.channel.Next();
    if (!frame.ok()) {
      status = frame.status();
      break;
    }
    if (!was_open && c.channel.open() && c.link == kNoLink) Opened(c);
    if (!frame->has_value()) break;
    Add(&counters_.frames_received, 1);
    if ((*frame)->empty()) {
      life = true;
      continue;
    }
    const auto packet = ParsePacket(**frame);
    if (!packet.ok()) {
      status = packet.status();
      break;
    }
    packets.push_back({LinkEvent::Kind::kPacket, c.link, {(*frame)->begin(), (*frame)->end()}});
    bytes += (*frame)->size();
  }
  const auto introduction = c.channel.TakeOutput();
  if (Peer* const peer = PeerOf(c))
    peer->queued.fetch_add(static_cast<int64_t>(introduction.size()));
  c.out.insert(c.out.end(), introduction.begin(), introduction.end());
  PushEvents(std::move(packets), bytes);
  if (!status.ok()) {
    // So that the other end learns why, as far as it can.
    [[maybe_unused]] ssize_t told =
        send(c.socket.get(), c.out.data() + c.written, c.unsent(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (!c.channel.open()) Add(&counters_.refused, 1);
    Close(c.serial, status.message());
    return false;
  }
  if (!was_open && c.channel.open() && c.dialed) Opened(c);
  if (life && !c.dialed) SignOfLife(c);
  if (inbox_bytes_.load() > kInboxBytes) {
    paused_.store(true);
    if (!has_inbox_.load()) paused_.store(false);  // emptied in between: nobody would wake us
  }
  return true;
}

bool LinkServer::WriteTo(Connection& c) {
  while (c.unsent() != 0) {
    const ssize_t n =
        send(c.socket.get(), c.out.data() + c.written, c.unsent(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n < 0) {
      Close(c.serial, std::strerror(errno));
      return false;
    }
    c.written += static_cast<size_t>(n);
    c.said = Clock::now();
    Add(&counters_.bytes_sent, static_cast<uint64_t>(n));
    Peer* const peer = PeerOf(c);
    if (peer == nullptr) continue;
    const int64_t left = peer->queued.fetch_sub(n) - n;
    if (left < kQueueBytes / 2 && peer->wants_room.exchange(false))
      PushEvents({{LinkEvent::Kind::kRoom, c.link, {}}}, 0);
  }
  if (c.written > (1 << 20) || c.unsent() == 0) {
    c.out.erase(c.out.begin(), c.out.begin() + static_cast<ptrdiff_t>(c.written));
    c.written = 0;
  }
  return true;
}

void LinkServer::SignOfLife(Connection& c) {
  const size_t before = c.out.size();
  c.channel.Seal({}, &c.out);
  if (Peer* const peer = PeerOf(c))
    peer->queued.fetch_add(static_cast<int64_t>(c.out.size() - before));
  Add(&counters_.frames_sent, 1);
  c.said = Clock::now();
  Watch(c);
}

void LinkServer::Opened(Connection& c) {
  if (Peer* const peer = PeerOf(c)) {
    Add(peer->was_up ? &counters_.reconnects : &counters_.connects, 1);
    log_->Write(LogLevel::kInfo,
                "link to " + peer->name + (peer->was_up ? " is up again" : " is up"));
    peer->was_up = true;
    peer->backoff = milliseconds(0);
    peer->last_error.clear();
    peer->up.store(true, std::memory_order_release);
    PushEvents({{LinkEvent::Kind::kUp, c.link, {}}}, 0);
    return;
  }
  next_incoming_ = (next_incoming_ + 1) & ~kIncoming;
  c.link = kIncoming | next_incoming_;
  incoming_[c.link] = c.serial;
  log_->Write(LogLevel::kInfo, "link from " + c.name + " is up");
}

void LinkServer::Close(uint64_t serial, const std::string& why) {
  const auto found = connections_.find(serial);
  if (found == connections_.end()) return;
  Connection& c = *found->second;
  if (Peer* const peer = PeerOf(c)) {
    const bool up = peer->up.exchange(false);
    peer->queued.fetch_sub(static_cast<int64_t>(c.unsent()));
    peer->connection = 0;
    peer->dial_at = std::max(peer->dial_at, Clock::now());
    if (up || why != peer->last_error)
      log_->Write(LogLevel::kWarn, "link to " + c.name + " is down: " + why);
    peer->last_error = why;
  } else {
    incoming_.erase(c.link);
    if (c.channel.open()) {
      log_->Write(LogLevel::kInfo, "link from " + c.name + " is down: " + why);
    } else {
      LogRefusal(c.name, why);
    }
  }
  connections_.erase(found);
}

// What the engine sent goes to its connections; what has none any more is dropped: requests are
// sent again, answers asked for again.
void LinkServer::TakeOutbox() {
  std::vector<std::pair<LinkId, PacketBytes>> packets;
  {
    std::lock_guard lock(mutex_);
    packets.swap(outbox_);
  }
  std::vector<uint64_t> touched;
  for (auto& [link, packet] : packets) {
    uint64_t serial = 0;
    const bool ours = link < kIncoming;
    if (ours) {
      serial = peers_[link - 1]->connection;
    } else if (const auto it = incoming_.find(link); it != incoming_.end()) {
      serial = it->second;
    }
    const auto found = connections_.find(serial);
    if (found == connections_.end() || !found->second->channel.open()) {
      if (ours)
        peers_[link - 1]->queued.fetch_sub(static_cast<int64_t>(
            packet->size() + LinkChannel::FrameOverhead(options_.key.has_value())));
      continue;
    }
    found->second->channel.Seal(*packet, &found->second->out);
    Add(&counters_.frames_sent, 1);
    if (touched.empty() || touched.back() != serial) touched.push_back(serial);
  }
  for (const uint64_t serial : touched) {
    const auto found = connections_.find(serial);
    if (found != connections_.end() && WriteTo(*found->second)) Watch(*found->second);
  }
}

}  // namespace hyperloop::softrnic
