// The LinkServer: construction, the functions that the engine's thread calls, and its thread's
// loop.
#include "softrnic/daemon/link_server.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "common/signal_event.h"
#include "softrnic/daemon/link_connection.h"

namespace hyperloop::softrnic {

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

// Hosts at one address share a link. A list that is the same on all machines also names this
// daemon's own hosts, which are not dialed.
Status LinkServer::AddNeighbours(Engine* engine) {
  for (const LinkPeer& each : options_.peers) {
    known_sources_.insert(each.address.Source());
    if (!listening_.empty() && Reaches(each.address, bound_)) continue;
    auto found = std::find_if(neighbours_.begin(), neighbours_.end(), [&](const auto& neighbour) {
      return neighbour->address == each.address;
    });
    if (found == neighbours_.end()) {
      neighbours_.push_back(std::make_unique<Neighbour>());
      neighbours_.back()->address = each.address;
      found = neighbours_.end() - 1;
    }
    (*found)->name += ((*found)->name.empty() ? "" : ",") + each.host;
    (*found)->hosts.push_back(each.host);
    HL_RETURN_IF_ERROR(
        engine->AddRoute(each.host, static_cast<LinkId>(found - neighbours_.begin() + 1)));
  }
  for (auto& neighbour : neighbours_) neighbour->name += " (" + neighbour->address.ToString() + ")";
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

void LinkServer::WakeThread() { SignalEvent(wake_.get()); }

std::string LinkServer::CounterText() const {
  std::string text;
  const auto line = [&text](const char* name, uint64_t value) {
    text += std::string(name) + " " + std::to_string(value) + "\n";
  };
  uint64_t up = 0;
  for (const auto& neighbour : neighbours_) up += neighbour->up.load() ? 1 : 0;
  line("links_configured", neighbours_.size());
  line("links_up", up);
  line("link_frames_sent", counters_.frames_sent.load());
  line("link_frames_received", counters_.frames_received.load());
  line("link_bytes_sent", counters_.bytes_sent.load());
  line("link_bytes_received", counters_.bytes_received.load());
  line("link_connects", counters_.connects.load());
  line("link_reconnects", counters_.reconnects.load());
  line("link_connections_refused", counters_.refused.load());
  line("link_claims_refused", counters_.claims_refused.load());
  line("link_answer_bytes", counters_.answer_bytes.load());
  return text;
}

// --- the engine's side

bool LinkServer::Ready(LinkId link) {
  if (link == kNoLink || link > neighbours_.size()) return false;
  Neighbour& neighbour = *neighbours_[link - 1];
  if (!neighbour.up.load(std::memory_order_acquire)) return false;
  if (neighbour.queued.load(std::memory_order_relaxed) < kLinkQueueBytes) return true;
  // Sets the flag before it looks again, because the thread looks at the flag after it made room.
  neighbour.wants_room.store(true);
  if (neighbour.queued.load() >= kLinkQueueBytes / 2) return false;
  return neighbour.wants_room.exchange(false);
}

void LinkServer::Send(LinkId link, PacketBytes packet) {
  const auto bytes = static_cast<int64_t>(
      packet->size() + identity::SecureChannel::FrameOverhead(options_.keys != nullptr));
  staged_.emplace_back(link, std::move(packet));
  if (link != kNoLink && link <= neighbours_.size())
    neighbours_[link - 1]->queued.fetch_add(bytes, std::memory_order_relaxed);
}

void LinkServer::Flush() {
  PushOutbox();
  if (received_ == done_.load(std::memory_order_relaxed)) return;
  done_.store(received_);  // after the answers: a thread that reads this value finds them
  // Pairs with MayHandOver: either this thread sees starved_, or the other one sees done_.
  if (starved_.load() && handed_.load() - received_ <= kLinkInFlightBytes / 2 &&
      starved_.exchange(false))
    WakeThread();
}

void LinkServer::PushOutbox() {
  if (staged_.empty()) return;
  bool wake;
  {
    std::lock_guard lock(mutex_);
    wake = outbox_.empty();
    outbox_.splice(outbox_.end(), staged_);
  }
  if (wake) WakeThread();
}

bool LinkServer::Receive(LinkEvent* event) {
  if (taken_.empty()) {
    if (!has_inbox_.load(std::memory_order_acquire)) return false;
    {
      std::lock_guard lock(mutex_);
      taken_.swap(inbox_);
      has_inbox_.store(false);
    }
    if (taken_.empty()) return false;
  }
  *event = std::move(taken_.front().event);
  received_ += taken_.front().bytes;
  taken_.pop_front();
  return true;
}

bool LinkServer::Pending() const { return !taken_.empty() || has_inbox_.load(); }

// --- the thread

void LinkServer::Run() {
  std::array<epoll_event, 64> events;
  while (!stop_) {
    const int timeout = Timers();
    introductions_ = kIntroductionsInTurn;
    const int n = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout);
    for (int i = 0; i < n; ++i) {
      const uint64_t what = events[static_cast<size_t>(i)].data.u64;
      if (what == kListenerEvents) {
        if (RanOutOfMemory([this] { Accept(); })) refusals_.Note("somebody", kNoMemory);
      } else if (what == kWakeEvents) {
        uint64_t count;
        [[maybe_unused]] ssize_t got = read(wake_.get(), &count, sizeof count);
      } else if (const auto found = connections_.find(what); found != connections_.end()) {
        Connection& c = *found->second;
        Guard(c, [&] { HandleConnection(c, events[static_cast<size_t>(i)].events); });
      }
    }
    TakeOutbox();
    ResumeReading();
  }
  while (!connections_.empty()) Close(connections_.begin()->first, "the daemon stops");
}

void LinkServer::PushEvents(Arrivals events) {
  if (events.empty()) return;
  {
    std::lock_guard lock(mutex_);
    inbox_.splice(inbox_.end(), events);
    has_inbox_.store(true);
  }
  // Pairs with EngineLoop::Sleep: either this call sees the flag of the sleeping loop, or the
  // loop's call of Pending sees the pushed events.
  loop_->WakeIfSleeping();
}

}  // namespace hyperloop::softrnic
