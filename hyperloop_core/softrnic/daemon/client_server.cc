// The ClientServer: construction, its loop, the shares of the engine's time, and how clients come
// and go.
#include "softrnic/daemon/client_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <functional>

#include "base/signal_event.h"
#include "base/steady_ns.h"
#include "hyperloop/core/out_of_memory.h"
#include "softrnic/daemon/served_client.h"

namespace hyperloop::softrnic {

namespace {

// Of root, if this daemon is another user's. They do not count among this user's connections.
constexpr uint32_t kOtherUsersConnections = 16;
constexpr size_t kObjectsPerPart = 64;
constexpr size_t kProcessesRemembered = 4096;
// In the numbers by which ClientThreads knows those who are no clients.
constexpr uint64_t kStranger = uint64_t{1} << 63;
constexpr uint64_t kAcceptPauseNs = 50'000'000;
constexpr int kAcceptPauseMs = kAcceptPauseNs / 1'000'000;

}  // namespace

Result<std::unique_ptr<ClientServer>> ClientServer::Listen(const std::string& path, Engine* engine,
                                                           EngineLoop* loop,
                                                           std::shared_ptr<Log> log,
                                                           ClientServerLimits limits) {
  std::unique_ptr<ClientServer> server(
      new ClientServer(path, engine, loop, std::move(log), limits));
  server->epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
  server->stop_event_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  server->spare_.Reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
  server->evicted_event_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  server->delivered_event_ = std::make_shared<UniqueFd>(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!server->epoll_ || !server->stop_event_ || !server->spare_ || !server->evicted_event_ ||
      !*server->delivered_event_) {
    return FromErrno(errno, "creating the control thread's descriptors");
  }
  HL_ASSIGN_OR_RETURN(server->listener_, ListenAt(path));
  HL_RETURN_IF_ERROR(server->Watch(server->listener_.socket.get(), 0, kListener));
  HL_RETURN_IF_ERROR(server->Watch(server->stop_event_.get(), 0, kStop));
  HL_RETURN_IF_ERROR(server->Watch(server->evicted_event_.get(), 0, kEvicted));
  HL_RETURN_IF_ERROR(server->Watch(server->delivered_event_->get(), 0, kDelivered));
  server->threads_->Start();
  engine->SetEvict([server = server.get()](ContextId context, const char* why) {
    const MutexLock lock(server->evicted_mutex_);
    server->evicted_.emplace_back(context, why);
    SignalEvent(server->evicted_event_.get());
  });
  return server;
}

ClientServer::ClientServer(std::string path, Engine* engine, EngineLoop* loop,
                           std::shared_ptr<Log> log, ClientServerLimits limits)
    : path_(std::move(path)),
      engine_(engine),
      loop_(loop),
      log_(std::move(log)),
      ends_(log_),
      refusals_(log_, "client"),
      limits_(limits) {
  evicted_.reserve(kMaxContexts);
}

ClientServer::~ClientServer() {
  engine_->SetEvict(nullptr);
  // The loop has ended, so this thread may destroy the clients' objects in the engine.
  for (auto& [id, client] : clients_) {
    if (client->context == kNoContext) continue;
    loop_->RemovePage(client->uar);
    engine_->CloseContext(client->context);
  }
  struct stat info {};
  if (listener_.socket && lstat(path_.c_str(), &info) == 0 && info.st_ino == listener_.inode) {
    unlink(path_.c_str());
  }
  // Connections that were not accepted yet may hold messages, too.
  static_cast<void>(RanOutOfMemory([this] {
    ClientSocket listener(threads_.get());
    listener.Set(listener_.socket.Release());
  }));
}

void ClientServer::Run() {
  std::array<epoll_event, 32> events;
  while (!stop_) {
    const int wait_ms = ResumeAccepting(ResumePaused());
    const int n = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                             unmapping_ ? 0 : wait_ms);
    for (int i = 0; i < n; ++i) HandleEvent(events[i].data.u64, events[i].events);
    if (unmapping_) unmapping_ = unmap_->DrainSome();
  }
}

void ClientServer::Stop() { SignalEvent(stop_event_.get()); }

Status ClientServer::Watch(int fd, uint64_t id, Kind kind) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = id << 3 | kind;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return FromErrno(errno, "epoll_ctl");
  return {};
}

void ClientServer::HandleEvent(uint64_t data, uint32_t events) {
  const uint64_t id = data >> 3;
  switch (static_cast<Kind>(data & 7)) {
    case kListener:
      if (!RanOutOfMemory([this] { Accept(); })) return;
      refusals_.Note("somebody", "out of memory");
      PauseAccepting();
      return;
    case kEvicted:
      CloseEvicted();
      return;
    case kStop:
      stop_ = true;
      return;
    case kDelivered:
      TakeDelivered();
      return;
    case kProcess:
      EndProcess(id);
      return;
    case kSocket:
      break;
  }
  auto found = clients_.find(id);
  if (found == clients_.end()) return;  // closed by an earlier event of this batch
  if ((events & EPOLLIN) == 0) return Close(id, "its connection broke");
  Client& client = *found->second;
  Guard(client, [&] {
    if (!Receive(client)) Close(id, "it closed the connection, or was refused");
  });
}

// --- shares of the engine's time

void ClientServer::Charge(Process& process, uint64_t engine_ns) {
  const uint64_t now = SteadyNs();
  const auto earned = static_cast<int64_t>(std::min<uint64_t>(
      (now - process.since_ns) / 100 * limits_.client_command_percent, kBurstNs));
  process.left_ns = std::min(process.left_ns + earned, kBurstNs) - static_cast<int64_t>(engine_ns);
  process.since_ns = now;
  if (process.left_ns >= 0 || process.paused) return;
  process.paused = true;
  Listen(process, false);
}

void ClientServer::Listen(const Process& process, bool on) {
  for (const auto& [id, client] : clients_)
    if (client->of == &process && !client->busy()) Listen(*client, on);
}

void ClientServer::Listen(const Client& client, bool on) {
  epoll_event event{};
  event.events = on ? uint32_t{EPOLLIN} : 0;
  event.data.u64 = client.id << 3 | kSocket;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, client.socket.get(), &event);
}

// Returns the milliseconds until the next process may be resumed; −1: none is paused.
int ClientServer::ResumePaused() {
  int soonest = -1;
  for (auto& [pid, process] : processes_) {
    if (!process.paused) continue;
    Charge(process, 0);
    if (process.left_ns >= 0) {
      process.paused = false;
      Listen(process, true);
      continue;
    }
    const int64_t wait_ms =
        -process.left_ns / (10'000 * int64_t{limits_.client_command_percent}) + 1;
    const int wait = static_cast<int>(std::min<int64_t>(wait_ms, 1000));
    soonest = soonest < 0 ? wait : std::min(soonest, wait);
  }
  return soonest;
}

// --- arrival and departure

void ClientServer::Accept() {
  auto made = std::make_unique<Client>(threads_.get());
  made->socket.Set(accept4(listener_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (made->socket.get() < 0) {
    if (errno == EMFILE || errno == ENFILE) RefuseForLackOfDescriptors();
    return;
  }
  const uint64_t id = made->id = next_id_++;
  Client& client = *clients_.emplace(id, std::move(made)).first->second;
  Guard(client, [&] {
    const Status status = Admit(client);
    if (status.ok()) return;
    refusals_.Note(client.name, status.message());
    Reply reply{};
    Answer(client, status, reply, "", {});
    Close(id, "it was refused");
  });
}

Status ClientServer::Admit(Client& client) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(client.socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) peer = {};
  client.socket.SetOwner(kStranger | static_cast<uint32_t>(peer.pid));
  client.name = "pid " + std::to_string(peer.pid);
  HL_RETURN_IF_ERROR(CheckClient(peer));
  client.pid = peer.pid;
  client.user = peer.uid;
  HL_ASSIGN_OR_RETURN(Process* const process, ProcessOf(peer.pid));
  client.socket.SetOwner(process->number);
  HL_RETURN_IF_ERROR(Join(client, *process));
  HL_RETURN_IF_ERROR(Watch(client.socket.get(), client.id, kSocket));
  if (client.of->paused) Listen(*client.of, false);
  return {};
}

Result<ClientServer::Process*> ClientServer::ProcessOf(pid_t pid) {
  if (const auto found = processes_.find(pid); found != processes_.end()) {
    pollfd ended{.fd = found->second.lives.get(), .events = POLLIN, .revents = 0};
    if (poll(&ended, 1, 0) == 0) return &found->second;
    EndProcess(found->second.number);  // this is another one
  }
  if (processes_.size() >= kProcessesRemembered)
    ForgetProcesses([](const Process& process) { return process.connections == 0; });
  UniqueFd lives(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!lives) return FromErrno(errno, "pidfd_open of the client");
  const ClientNumber number = next_process_++;
  HL_RETURN_IF_ERROR(Watch(lives.get(), number, kProcess));
  Process& made = processes_[pid];
  made.number = number;
  made.lives = std::move(lives);
  made.since_ns = SteadyNs();
  return &made;
}

Status ClientServer::Join(Client& client, Process& process) {
  const uid_t user = client.user;
  const uint32_t most = user == geteuid() ? limits_.connections : kOtherUsersConnections;
  uint32_t& of_user = connections_[user];
  if (of_user >= most)
    return NoSpace("user " + std::to_string(user) + " has " + std::to_string(of_user) +
                   " connections to the RNIC daemon, the most (--connections)");
  if (process.connections >= limits_.client_connections)
    return NoSpace("process " + std::to_string(client.pid) + " has " +
                   std::to_string(process.connections) +
                   " connections to the RNIC daemon, the most (--client-connections)");
  ++process.connections, ++of_user;
  client.of = &process;
  return {};
}

void ClientServer::EndProcess(ClientNumber number) {
  const auto ended = std::find_if(processes_.begin(), processes_.end(),
                                  [&](const auto& entry) { return entry.second.number == number; });
  if (ended == processes_.end()) return;  // forgotten by an earlier event of this batch
  for (auto it = clients_.begin(); it != clients_.end();) {
    const Client& client = *(it++)->second;
    if (client.of == &ended->second) Close(client.id, "its process ended");
  }
  ForgetProcesses([number](const Process& process) { return process.number == number; });
}

// Those processes have no connection. Needs no memory.
template <class Which>
void ClientServer::ForgetProcesses(Which&& which) {
  const auto forget = [&] {
    for (const auto& [pid, process] : processes_)
      if (which(process)) engine_->ForgetClient(process.number);
  };
  loop_->Submit(std::ref(forget));
  std::erase_if(processes_, [&](const auto& entry) { return which(entry.second); });
}

void ClientServer::CloseEvicted() {
  uint64_t count;
  [[maybe_unused]] ssize_t n = read(evicted_event_.get(), &count, sizeof count);
  for (;;) {
    MutexLock lock(evicted_mutex_);
    if (evicted_.empty()) return;
    const ContextId context = evicted_.back().first;
    const char* const why = evicted_.back().second;
    evicted_.pop_back();
    lock.unlock();
    const auto found = std::find_if(clients_.begin(), clients_.end(), [&](const auto& entry) {
      return entry.second->context == context;
    });
    if (found == clients_.end()) continue;
    LogLine(&ends_, LogLevel::kError, {found->second->name, " is ended: ", why});
    Close(found->first, why);
  }
}

void ClientServer::RefuseForLackOfDescriptors() {
  {
    Client client(threads_.get());
    Reply reply{};
    const Status status = NoSpace("the RNIC daemon is out of descriptors: raise its ulimit -n");
    spare_.Reset(-1);
    client.socket.Set(accept4(listener_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (client.socket.get() >= 0) {
      client.socket.SetOwner(kStranger);
      // Without memory it is told nothing.
      static_cast<void>(RanOutOfMemory([&] { Answer(client, status, reply, "", {}); }));
    }
  }
  refusals_.Note("somebody", "out of descriptors; raise ulimit -n");
  PauseAccepting();
}

// A connection that cannot be taken would wake the thread again and again.
void ClientServer::PauseAccepting() {
  WatchListener(false);
  accept_at_ns_ = SteadyNs() + kAcceptPauseNs;
}

// Returns the milliseconds after which to call it again, at most `wait_ms`; −1 stands for ever.
int ClientServer::ResumeAccepting(int wait_ms) {
  if (accept_at_ns_ == 0) return wait_ms;
  if (!spare_) spare_.Reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!spare_ || SteadyNs() < accept_at_ns_)
    return wait_ms < 0 ? kAcceptPauseMs : std::min(wait_ms, kAcceptPauseMs);
  accept_at_ns_ = 0;
  WatchListener(true);
  return wait_ms;
}

void ClientServer::WatchListener(bool on) {
  epoll_event event{};
  event.events = on ? uint32_t{EPOLLIN} : 0;
  event.data.u64 = kListener;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener_.socket.get(), &event);
}

void ClientServer::Close(uint64_t id, std::string_view why) {
  auto found = clients_.find(id);
  if (found == clients_.end()) return;
  Client& client = *found->second;
  if (client.context != kNoContext) {
    {
      const MutexLock lock(evicted_mutex_);
      std::erase_if(evicted_, [&](const auto& each) { return each.first == client.context; });
    }
    LogLine(log_.get(), LogLevel::kDebug, {client.name, " is gone: ", why});
    bool done = false;
    OnEngine(*client.of, [&] {
      loop_->RemoveWakeSource(client.wake.get());
      loop_->RemovePage(client.uar);
      done = engine_->CloseContextPart(client.context, kObjectsPerPart);
    });
    while (!done)
      OnEngine(*client.of,
               [&] { done = engine_->CloseContextPart(client.context, kObjectsPerPart); });
  }
  if (client.of != nullptr) --client.of->connections, --connections_[client.user];
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, client.socket.get(), nullptr);
  clients_.erase(found);
}

}  // namespace hyperloop::softrnic
