// The LinkServer: construction, the functions that the engine calls, and its thread's loop.
#include "softrnic/daemon/link_server.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/signal_event.h"
#include "softrnic/daemon/link_connection.h"

namespace hyperloop::softrnic {
namespace {

// The most bytes that who runs the engine seals and writes itself. More is left to the server's
// thread, so that the engine goes on meanwhile.
constexpr size_t kWriteHereBytes = 16 << 10;

// The server whose thread this is.
thread_local const LinkServer* running_server = nullptr;

}  // namespace

Result<std::unique_ptr<LinkServer>> LinkServer::Create(LinkOptions options, Engine* engine,
                                                       std::shared_ptr<Log> log) {
  std::unique_ptr<LinkServer> server(new LinkServer(std::move(options), std::move(log)));
  server->epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
  server->wake_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!server->epoll_ || !server->wake_) return FromErrno(errno, "creating the links' descriptors");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeEvents;
  epoll_ctl(server->epoll_.get(), EPOLL_CTL_ADD, server->wake_.get(), &event);
  HL_RETURN_IF_ERROR(server->Listen());
  HL_RETURN_IF_ERROR(server->AddNeighbours(engine));
  engine->AttachPort(server.get());
  return server;
}

LinkServer::LinkServer(LinkOptions options, std::shared_ptr<Log> log)
    : options_(std::move(options)),
      log_(std::make_shared<LimitedLog>(log)),
      peers_watch_(options_.peers_file),
      trusted_watch_(options_.keys == nullptr ? "" : options_.keys->dir() + "/trusted"),
      hosts_seen_(options_.keys == nullptr ? 0 : options_.keys->seen_generation()),
      hosts_taken_(options_.keys == nullptr ? 0 : options_.keys->hosts_generation()),
      looked_(hosts_seen_),
      judged_(options_.keys == nullptr ? 0 : options_.keys->generation()),
      link_names_(NamesForLinks()),
      refusals_(std::move(log), "link from") {}

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
      listen(listener_.get(), SOMAXCONN) != 0)
    return FromErrno(errno, "--listen " + text);
  bound_.length = sizeof bound_.storage;
  getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&bound_.storage), &bound_.length);
  listening_ = bound_.ToString();
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kListenerEvents;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener_.get(), &event) != 0)
    return FromErrno(errno, "epoll_ctl");
  return {};
}

void LinkServer::Start(EngineLoop* loop, std::optional<int> nice) {
  loop_ = loop;
  thread_ = std::thread([this, nice] {
    own_nice_ = getpriority(PRIO_PROCESS, 0);
    nice_ = nice.value_or(own_nice_);
    if (nice_ != own_nice_ && setpriority(PRIO_PROCESS, 0, nice_) != 0) nice_ = own_nice_;
    Run();
  });
}

void LinkServer::Stop() {
  if (!thread_.joinable()) return;
  stop_ = true;
  WakeThread();
  thread_.join();
}

void LinkServer::WakeThread() { SignalEvent(wake_.get()); }

LinkServer::Totals LinkServer::totals() const {
  Totals totals;
  for (const LinkState& link : LinkStates()) {
    ++totals.configured;
    if (link.up) ++totals.up;
    if (link.cipher == identity::Cipher::kAes256Gcm) ++totals.aes_256_gcm;
  }
  totals.frames_sent = counters_.frames_sent.load();
  totals.frames_received = counters_.frames_received.load();
  totals.bytes_sent = counters_.bytes_sent.load();
  totals.bytes_received = counters_.bytes_received.load();
  totals.connects = counters_.connects.load();
  totals.reconnects = counters_.reconnects.load();
  totals.refused = counters_.refused.load();
  totals.claims_refused = counters_.claims_refused.load();
  totals.answer_bytes = counters_.answer_bytes.load();
  return totals;
}

std::vector<LinkServer::LinkState> LinkServer::LinkStates() const {
  std::vector<LinkState> links;
  MutexLock lock(names_mutex_);
  for (const auto& neighbour : Neighbours())
    if (!neighbour->gone.load()) {
      const bool up = neighbour->up.load(std::memory_order_acquire);
      links.push_back({neighbour->name, up, up ? neighbour->cipher.load() : std::nullopt});
    }
  return links;
}

std::string LinkServer::CounterText() const {
  const Totals now = totals();
  std::string text;
  const auto line = [&text](const char* name, uint64_t value) {
    text += std::string(name) + " " + std::to_string(value) + "\n";
  };
  line("links_configured", now.configured);
  line("links_up", now.up);
  line("links_aes_256_gcm", now.aes_256_gcm);
  line("link_frames_sent", now.frames_sent);
  line("link_frames_received", now.frames_received);
  line("link_bytes_sent", now.bytes_sent);
  line("link_bytes_received", now.bytes_received);
  line("link_connects", now.connects);
  line("link_reconnects", now.reconnects);
  line("link_connections_refused", now.refused);
  line("link_claims_refused", now.claims_refused);
  line("link_answer_bytes", now.answer_bytes);
  return text;
}

LinkServer::Neighbour* LinkServer::NeighbourAt(LinkId link) const {
  if (link == kNoLink || link >= kIncomingLinks) return nullptr;
  const size_t place = (link - 1) % kMaxNeighbours;
  return place < Neighbours().size() ? neighbours_[place].get() : nullptr;
}

// --- the engine's side

bool LinkServer::Ready(LinkId link) {
  Neighbour* const neighbour = NeighbourAt(link);
  if (neighbour == nullptr || !neighbour->up.load(std::memory_order_acquire) ||
      neighbour->id.load() != link)
    return false;
  if (neighbour->queued.load(std::memory_order_relaxed) < kLinkQueueBytes) return true;
  // Sets the flag before it looks again, because the thread looks at the flag after it made room.
  neighbour->wants_room.store(true);
  if (neighbour->queued.load() >= kLinkQueueBytes / 2) return false;
  return neighbour->wants_room.exchange(false);
}

void LinkServer::Send(LinkId link, std::span<const std::byte> packet) {
  const size_t bytes = packet.size();
  if (staged_.empty() || staged_.back().link != link ||
      staged_.back().packets.size() + bytes > kFullFrameBytes) {
    std::vector<std::byte> packets;
    packets.reserve(std::max(bytes, flushed_bytes_));
    packets.assign(packet.begin(), packet.end());
    staged_.push_back({link, std::move(packets)});
  } else {
    staged_.back().packets.insert(staged_.back().packets.end(), packet.begin(), packet.end());
  }
  staged_.back().awaited |= AnswerIsAwaited(packet);
  staged_bytes_ += bytes;
  if (Neighbour* const neighbour = NeighbourAt(link))
    neighbour->queued.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
}

void LinkServer::Flush() {
  const size_t bytes = std::exchange(staged_bytes_, 0);
  if (bytes != 0) flushed_bytes_ = std::min(bytes, kFullFrameBytes);
  bool alone = false;  // nobody else's packets wait in the outbox
  if (bytes != 0) {
    MutexLock lock(mutex_);
    alone = outbox_.empty();
    outbox_.splice(outbox_.end(), staged_);
    has_outbox_.store(true);
  }
  bool fed = false;
  if (received_ != done_.load(std::memory_order_relaxed)) {
    done_.store(received_);  // after the answers: a thread that reads this value finds them
    // Pairs with MayHandOver: either this thread sees starved_, or the other one sees done_.
    fed = starved_.load() && handed_.load() - received_ <= kLinkInFlightBytes / 2 &&
          starved_.exchange(false);
  }
  // The server's thread empties the outbox behind its turns as a guest.
  const bool left = running_server != this && alone && (bytes > kWriteHereBytes || !WriteHere());
  // Pairs with Run: either this thread sees that the other one waits, or that one sees has_outbox_.
  if (fed || (left && waits_.load())) WakeThread();
}

// Writes the outbox to the sockets. False: the server's thread is just using them.
bool LinkServer::WriteHere() {
  if (!sockets_.try_lock()) return false;
  const MutexLock sockets(sockets_, std::adopt_lock);
  const size_t connections = connections_.size();
  TakeOutbox();
  // The server's thread dials again, and reads on where there was no room for answers before.
  const bool held_up = std::any_of(connections_.begin(), connections_.end(),
                                   [](const auto& each) { return each.second->more; });
  if (held_up || connections_.size() != connections) WakeThread();
  return true;
}

bool LinkServer::Receive(LinkEvent* event) {
  if (!PacketsLeft()) {
    if (taken_.empty()) {
      if (!has_inbox_.load(std::memory_order_acquire)) return false;
      MutexLock lock(mutex_);
      taken_.swap(inbox_);
      has_inbox_.store(false);
    }
    if (taken_.empty()) return false;
    current_.clear();
    current_.splice(current_.end(), taken_, taken_.begin());
    next_ = at_ = 0;
  }
  Arrival& current = current_.front();
  *event = current.event;
  event->route = &current.route;
  if (current.pieces.empty()) return true;
  const Arrival::Piece& piece = current.pieces[next_++];
  event->packet = std::span(current.packets).subspan(at_, piece.length);
  at_ += piece.length;
  received_ += piece.bytes;
  return true;
}

// Whether Receive has not returned all packets that arrived together.
bool LinkServer::PacketsLeft() const {
  return !current_.empty() && next_ < current_.front().pieces.size();
}

bool LinkServer::Pending() const { return PacketsLeft() || !taken_.empty() || has_inbox_.load(); }

// --- the thread

void LinkServer::Run() {
  running_server = this;
  std::array<epoll_event, 64> events;
  MutexLock sockets(sockets_);
  while (!stop_) {
    const int timeout = Timers();
    TellEngine();
    introductions_ = kIntroductionsInTurn;
    sockets.unlock();
    waits_.store(true);
    const int n = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                             has_outbox_.load() ? 0 : timeout);
    waits_.store(false);
    sockets.lock();
    HandleEvents(std::span(events).first(static_cast<size_t>(std::max(n, 0))));
    TellEngine();
    TakeOutbox();
    ResumeReading();
    TellEngine();
  }
  while (!connections_.empty()) Close(connections_.begin()->first, "the daemon stops");
}

void LinkServer::HandleEvents(std::span<const epoll_event> events) {
  for (const epoll_event& event : events) {
    const uint64_t what = event.data.u64;
    if (what == kListenerEvents) {
      const auto accept = [this] {
        sockets_.known_held();
        Accept();
      };
      ForStranger([&] {
        if (RanOutOfMemory(accept)) refusals_.Note("somebody", kNoMemory);
      });
    } else if (what == kWakeEvents) {
      uint64_t count;
      [[maybe_unused]] ssize_t got = read(wake_.get(), &count, sizeof count);
    } else if (const auto found = connections_.find(what); found != connections_.end()) {
      Connection& c = *found->second;
      const auto handle = [&] {
        sockets_.known_held();
        Guard(c, [&] {
          sockets_.known_held();
          HandleConnection(c, event.events);
        });
      };
      c.stranger() ? ForStranger(handle) : handle();
    }
  }
}

// Does what anybody may ask for, at the priority of other programs. Neighbours are served at that
// of the engine's thread, which may have to wait for a guest.
template <class F>
void LinkServer::ForStranger(F&& f) {
  if (nice_ != own_nice_) setpriority(PRIO_PROCESS, 0, own_nice_);
  f();
  if (nice_ != own_nice_) setpriority(PRIO_PROCESS, 0, nice_);
}

// Pairs with EngineLoop's protocol of sleeping: either one of these calls sees that the loop
// sleeps, or the loop's call of Pending sees the pushed events.
void LinkServer::TellEngine() {
  if (has_inbox_.load() && !loop_->RunWhileAsleep()) loop_->WakeIfSleeping();
}

void LinkServer::PushEvents(Arrivals events) {
  if (events.empty()) return;
  MutexLock lock(mutex_);
  inbox_.splice(inbox_.end(), events);
  has_inbox_.store(true);
}

}  // namespace hyperloop::softrnic
