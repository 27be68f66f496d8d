#include "softrnic/daemon/control_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <functional>
#include <new>
#include <optional>

#include "common/signal_event.h"
#include "common/steady_ns.h"
#include "hyperloop/core/out_of_memory.h"
#include "softrnic/event_pipe.h"

namespace hyperloop::softrnic {

namespace {

// Of root, if this daemon is another user's. They do not count among this user's connections.
constexpr uint32_t kOtherUsersConnections = 16;
// Engine time that a process's commands may take at once: that of some thousand commands.
constexpr int64_t kBurstNs = 50'000'000;
constexpr size_t kObjectsPerPart = 64;
// Populating so much from a slow disk takes some 60 ms, for which others' commands wait.
constexpr uint64_t kPopulatePiece = 8 << 20;
constexpr size_t kProcessesRemembered = 4096;
// If more than this waits to be unmapped, some of it is unmapped before more is mapped. No memory
// holds so much, so it is mostly ranges of sparse files, which take no time.
constexpr size_t kMostToUnmap = size_t{1} << 40;

// In the numbers by which ClientThreads knows those who are no clients.
constexpr uint64_t kStranger = uint64_t{1} << 63;
constexpr int kAcceptPauseMs = 50;

uint64_t ThreadCpuNs() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

// A connection's socket. The other end may have left messages with descriptors in it, whose closing
// may take for ever. So it is closed on the thread of whoever made the connection.
class Connection {
 public:
  explicit Connection(ClientThreads* threads) : threads_(threads), close_(1) {}
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() {
    if (fd_ < 0) return;
    shutdown(fd_, SHUT_RDWR);  // the other end sees it at once
    close_.front().run = [fd = fd_] { close(fd); };
    threads_->Add(std::move(close_));
  }
  // Call it once. `fd` may be −1.
  void Set(int fd) { fd_ = fd; }
  void SetOwner(uint64_t client) { close_.front().client = client; }
  int get() const { return fd_; }

 private:
  ClientThreads* const threads_;
  ClientThreads::Tasks close_;  // made before, because closing must not need memory
  int fd_ = -1;
};

// Runs on the thread of client number `client`.
Result<ClientMemory> MapWhereThereIsRoom(const RegisterUmemArgs& args, int fd, ClientNumber client,
                                         const std::shared_ptr<UnmapQueue>& unmap) {
  while (unmap->bytes() > kMostToUnmap) unmap->DrainSome();
  Result<ClientMemory> mapped = MapClientMemory(args, fd, client, unmap);
  const bool refused = mapped.status().code() == Code::kInvalidArgument ||
                       mapped.status().code() == Code::kPermissionDenied;
  if (mapped.ok() || refused) return mapped;
  // Address space or descriptors may be short because of what waits.
  unmap->Drain();
  return MapClientMemory(args, fd, client, unmap);
}

}  // namespace

// A process that has had connections. It is remembered until it ends, so that it gets no new time
// by connecting again.
struct ControlServer::Process {
  ClientNumber number = 0;
  UniqueFd lives;  // pidfd
  uint32_t connections = 0;
  int64_t left_ns = kBurstNs;  // engine time; below 0: its commands wait
  uint64_t since_ns = 0;       // the time at which left_ns was computed
  bool paused = false;
};

struct ControlServer::Message {
  Command command;
  size_t bytes = 0;
  bool truncated = false;
  size_t descriptors = 0;
  std::optional<Result<ClientMemory>> memory;  // of a kRegisterUmem with one descriptor

  // Takes the next message from `socket`, but not its memory.
  Status Take(int socket, MessageFds* fds) {
    HL_ASSIGN_OR_RETURN(
        ReceivedMessage taken,
        ReceiveMessage(socket, std::as_writable_bytes(std::span(&command, 1)), MSG_DONTWAIT));
    bytes = taken.bytes;
    truncated = taken.truncated;
    descriptors = taken.fds.size();
    *fds = std::move(taken.fds);
    return {};
  }
  bool IsCommand() const { return bytes == sizeof command && command.magic == kCommandMagic; }
};

// A message that the client's thread takes, with the descriptors that it brings.
struct ControlServer::Delivery {
  Message message;
  bool taken = false;  // else the connection broke
  bool out_of_memory = false;
  std::atomic<bool> done{false};

  void Take(int socket, ClientNumber client, const std::shared_ptr<UnmapQueue>& unmap,
            MessageFds* fds) {
    taken = message.Take(socket, fds).ok();
    if (taken && message.IsCommand() && message.command.op == Op::kRegisterUmem &&
        message.descriptors == 1 && !message.truncated)
      message.memory =
          MapWhereThereIsRoom(message.command.args.umem, (*fds)[0].get(), client, unmap);
  }
};

struct ControlServer::Client {
  explicit Client(ClientThreads* threads) : socket(threads) {}
  ~Client() {
    if (uar != nullptr) munmap(uar, kUarBytes);
  }
  // Whether its next message has to wait for the one before.
  bool busy() const { return delivery != nullptr || registration.has_value(); }

  uint64_t id = 0;
  uid_t user = 0;
  Process* of = nullptr;
  pid_t pid = 0;
  Connection socket;
  UniqueFd wake;  // eventfd, shared with the client
  UniqueFd uar_fd;
  UarPage* uar = nullptr;
  ContextId context = kNoContext;
  std::string name;                    // "host (pid N)", for the log
  std::shared_ptr<Delivery> delivery;  // under way
  // A registration whose memory is being populated.
  struct Registration {
    RegisterUmemArgs args{};
    UmemMapping mapping;
    uint64_t populated = 0;
  };
  std::optional<Registration> registration;
};

Result<std::unique_ptr<ControlServer>> ControlServer::Listen(const std::string& path,
                                                             Engine* engine, EngineLoop* loop,
                                                             std::shared_ptr<Log> log,
                                                             ControlLimits limits) {
  std::unique_ptr<ControlServer> server(
      new ControlServer(path, engine, loop, std::move(log), limits));
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
  server->evicted_.reserve(kMaxContexts);
  engine->SetEvict([server = server.get()](ContextId context, const char* why) {
    const std::lock_guard lock(server->evicted_mutex_);
    server->evicted_.emplace_back(context, why);
    SignalEvent(server->evicted_event_.get());
  });
  return server;
}

ControlServer::ControlServer(std::string path, Engine* engine, EngineLoop* loop,
                             std::shared_ptr<Log> log, ControlLimits limits)
    : path_(std::move(path)),
      engine_(engine),
      loop_(loop),
      log_(std::move(log)),
      ends_(log_),
      refusals_(log_, "client"),
      limits_(limits) {}

ControlServer::~ControlServer() {
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
    Connection listener(threads_.get());
    listener.Set(listener_.socket.Release());
  }));
}

void ControlServer::Run() {
  std::array<epoll_event, 32> events;
  while (!stop_) {
    const int wait_ms = ResumeAccepting(ResumePaused());
    const int n = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                             registering_ != 0 || unmapping_ ? 0 : wait_ms);
    for (int i = 0; i < n; ++i) HandleEvent(events[i].data.u64, events[i].events);
    if (registering_ != 0) Populate();
    if (unmapping_) unmapping_ = unmap_->DrainSome();
  }
}

void ControlServer::Stop() { SignalEvent(stop_event_.get()); }

Status ControlServer::Watch(int fd, uint64_t id, Kind kind) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = id << 3 | kind;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return FromErrno(errno, "epoll_ctl");
  return {};
}

void ControlServer::HandleEvent(uint64_t data, uint32_t events) {
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

template <class Event>
void ControlServer::Guard(Client& client, Event&& event) {
  const uint64_t id = client.id;
  if (!RanOutOfMemory(event)) return;
  LogLine(&ends_, LogLevel::kError, {client.name, " is ended: out of memory in its command"});
  Close(id, "out of memory");
}

// --- shares of the engine's time

void ControlServer::Charge(Process& process, uint64_t engine_ns) {
  const uint64_t now = SteadyNs();
  const auto earned = static_cast<int64_t>(std::min<uint64_t>(
      (now - process.since_ns) / 100 * limits_.client_command_percent, kBurstNs));
  process.left_ns = std::min(process.left_ns + earned, kBurstNs) - static_cast<int64_t>(engine_ns);
  process.since_ns = now;
  if (process.left_ns >= 0 || process.paused) return;
  process.paused = true;
  Listen(process, false);
}

void ControlServer::Listen(const Process& process, bool on) {
  for (const auto& [id, client] : clients_)
    if (client->of == &process && !client->busy()) Listen(*client, on);
}

void ControlServer::Listen(const Client& client, bool on) {
  epoll_event event{};
  event.events = on ? uint32_t{EPOLLIN} : 0;
  event.data.u64 = client.id << 3 | kSocket;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, client.socket.get(), &event);
}

// Returns the milliseconds until the next process may be resumed; −1: none is paused.
int ControlServer::ResumePaused() {
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

void ControlServer::Accept() {
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

Status ControlServer::Admit(Client& client) {
  ucred peer{};
  socklen_t size = sizeof peer;
  const bool known =
      getsockopt(client.socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid > 0;
  client.socket.SetOwner(kStranger | static_cast<uint32_t>(peer.pid));
  client.name = "pid " + std::to_string(peer.pid);
  if (!known || (peer.uid != geteuid() && peer.uid != 0))
    return PermissionDenied("this RNIC daemon serves user " + std::to_string(geteuid()) +
                            " only, not user " + std::to_string(peer.uid));
  client.pid = peer.pid;
  client.user = peer.uid;
  HL_ASSIGN_OR_RETURN(Process* const process, ProcessOf(peer.pid));
  client.socket.SetOwner(process->number);
  HL_RETURN_IF_ERROR(Join(client, *process));
  HL_RETURN_IF_ERROR(Watch(client.socket.get(), client.id, kSocket));
  if (client.of->paused) Listen(*client.of, false);
  return {};
}

Result<ControlServer::Process*> ControlServer::ProcessOf(pid_t pid) {
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

Status ControlServer::Join(Client& client, Process& process) {
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

void ControlServer::EndProcess(ClientNumber number) {
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
void ControlServer::ForgetProcesses(Which&& which) {
  const auto forget = [&] {
    for (const auto& [pid, process] : processes_)
      if (which(process)) engine_->ForgetClient(process.number);
  };
  loop_->Submit(std::ref(forget));
  std::erase_if(processes_, [&](const auto& entry) { return which(entry.second); });
}

void ControlServer::CloseEvicted() {
  uint64_t count;
  [[maybe_unused]] ssize_t n = read(evicted_event_.get(), &count, sizeof count);
  for (;;) {
    std::unique_lock lock(evicted_mutex_);
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

void ControlServer::RefuseForLackOfDescriptors() {
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
void ControlServer::PauseAccepting() {
  WatchListener(false);
  accept_at_ns_ = SteadyNs() + kAcceptPauseMs * 1'000'000;
}

// Returns the milliseconds after which to call it again, at most `wait_ms`; −1 stands for ever.
int ControlServer::ResumeAccepting(int wait_ms) {
  if (accept_at_ns_ == 0) return wait_ms;
  if (!spare_) spare_.Reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!spare_ || SteadyNs() < accept_at_ns_)
    return wait_ms < 0 ? kAcceptPauseMs : std::min(wait_ms, kAcceptPauseMs);
  accept_at_ns_ = 0;
  WatchListener(true);
  return wait_ms;
}

void ControlServer::WatchListener(bool on) {
  epoll_event event{};
  event.events = on ? uint32_t{EPOLLIN} : 0;
  event.data.u64 = kListener;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener_.socket.get(), &event);
}

void ControlServer::Close(uint64_t id, std::string_view why) {
  auto found = clients_.find(id);
  if (found == clients_.end()) return;
  Client& client = *found->second;
  if (client.context != kNoContext) {
    {
      const std::lock_guard lock(evicted_mutex_);
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
  if (client.registration) --registering_;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, client.socket.get(), nullptr);
  clients_.erase(found);
}

template <class Task>
void ControlServer::OnEngine(Process& process, Task&& task) {
  uint64_t took_ns = 0;
  bool exhausted = false;
  const auto measured = [&] {
    const uint64_t begin = ThreadCpuNs();
    exhausted = RanOutOfMemory(task);
    took_ns = ThreadCpuNs() - begin;
  };
  loop_->Submit(std::ref(measured));  // the lambda itself would not fit into a std::function
  unmapping_ = true;
  Charge(process, took_ns);
  if (exhausted) throw std::bad_alloc();
}

// --- conversation

bool ControlServer::Receive(Client& client) {
  const Result<bool> brings = NextBringsDescriptors(client.socket.get());
  if (!brings.ok()) return brings.status().code() == Code::kBusy;
  if (*brings) {
    ReceiveElsewhere(client);
    return true;
  }
  Message message;
  MessageFds none;
  const Status taken = message.Take(client.socket.get(), &none);
  if (!taken.ok()) return taken.code() == Code::kBusy;
  return Handle(client, message);
}

void ControlServer::ReceiveElsewhere(Client& client) {
  client.delivery = std::make_shared<Delivery>();
  ClientThreads::Tasks task(1);
  task.front().client = client.of->number;
  // The socket is closed by a later task of this thread.
  task.front().run = [delivery = client.delivery, unmap = unmap_, event = delivered_event_,
                      socket = client.socket.get(), number = client.of->number]() mutable {
    MessageFds fds;
    delivery->out_of_memory = RanOutOfMemory([&] { delivery->Take(socket, number, unmap, &fds); });
    delivery->done.store(true, std::memory_order_release);
    delivery.reset();  // unmaps the memory if the client is gone
    SignalEvent(event->get());
    // The answer does not wait for the descriptors to be closed, which happens here.
  };
  if (!threads_->TryAdd(task)) throw std::bad_alloc();
  Listen(client, false);
}

void ControlServer::TakeDelivered() {
  uint64_t count;
  [[maybe_unused]] ssize_t n = read(delivered_event_->get(), &count, sizeof count);
  unmapping_ = true;  // the mapping of a client that is gone, or of an attempt that failed
  for (auto it = clients_.begin(); it != clients_.end();) {
    Client& client = *(it++)->second;
    if (client.delivery == nullptr || !client.delivery->done.load(std::memory_order_acquire))
      continue;
    const std::shared_ptr<Delivery> delivery = std::move(client.delivery);
    if (!client.of->paused) Listen(client, true);
    Guard(client, [&] {
      if (delivery->out_of_memory) throw std::bad_alloc();
      if (!delivery->taken || !Handle(client, delivery->message))
        Close(client.id, "it closed the connection, or was refused");
    });
  }
}

bool ControlServer::Handle(Client& client, Message& message) {
  if (message.bytes == 0) return false;
  Reply reply{};
  Status bad;
  if (!message.IsCommand()) {
    bad = InvalidArgument("message of " + std::to_string(message.bytes) +
                          " bytes is not a command: expected " + std::to_string(sizeof(Command)) +
                          " bytes that begin with the magic number");
  } else if (message.command.version != kCommandVersion) {
    bad = NotSupported("protocol version " + std::to_string(message.command.version) +
                       ": this daemon speaks " + std::to_string(kCommandVersion) +
                       "; use a client and a daemon of one release");
  } else if (message.truncated) {
    bad = InvalidArgument("too long a message, or too many descriptors");
  }
  if (!bad.ok()) {
    refusals_.Note(client.name, bad.message());
    Answer(client, bad, reply, "", {});
    return false;
  }
  std::string text;
  std::vector<int> fds;
  const Status status = Dispatch(client, message, &reply, &text, &fds);
  if (client.registration) return true;
  return Answer(client, status, reply, std::move(text), fds);
}

Status ControlServer::Dispatch(Client& client, Message& message, Reply* reply, std::string* text,
                               std::vector<int>* fds) {
  const Command& command = message.command;
  const size_t expected_fds = command.op == Op::kRegisterUmem ? 1 : 0;
  if (message.descriptors != expected_fds) {
    return InvalidArgument("command " + std::to_string(static_cast<unsigned>(command.op)) +
                           " came with " + std::to_string(message.descriptors) +
                           " descriptors instead of " + std::to_string(expected_fds));
  }
  if (command.op == Op::kOpen) return Open(client, command.args.open, reply, fds);
  if (client.context == kNoContext) {
    return InvalidArgument("the first command must attach to a host");
  }
  if (command.op == Op::kRegisterUmem) {
    // The kernel had no memory to say that a descriptor comes.
    if (!message.memory.has_value()) throw std::bad_alloc();
    return Register(client, command.args.umem, *std::move(message.memory), reply);
  }
  if (command.op == Op::kCreateCq && command.args.cq.events != 0) {
    return CreateEventCq(client, command.args.cq, reply, fds);
  }
  if (command.op == Op::kQueryCounters) {
    std::function<std::string()> lines;
    OnEngine(*client.of, [&] { lines = engine_->Counters(client.context); });
    *text = lines() + OwnCounters();
    if (links_ != nullptr) *text += links_->CounterText();
    return {};
  }
  Status status;
  OnEngine(*client.of, [&] { status = engine_->Execute(client.context, command, reply, text); });
  return status;
}

Status ControlServer::Open(Client& client, const OpenArgs& args, Reply* reply,
                           std::vector<int>* fds) {
  if (client.context != kNoContext) {
    return AlreadyExists("this connection is attached already: " + client.name);
  }
  const std::string host(args.host, strnlen(args.host, sizeof args.host));
  if (client.uar == nullptr) {  // kept after a refused Open, so that the next Open gets the same
    client.uar_fd.Reset(memfd_create("hyperloop-uar", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    client.wake.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!client.uar_fd || !client.wake || ftruncate(client.uar_fd.get(), kUarBytes) != 0 ||
        fcntl(client.uar_fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
      return FromErrno(errno, "creating a client's UAR page");
    }
    void* page = mmap(nullptr, kUarBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                      client.uar_fd.get(), 0);
    if (page == MAP_FAILED) return FromErrno(errno, "mapping a client's UAR page");
    client.uar = static_cast<UarPage*>(page);
  }
  Status status;
  OnEngine(*client.of, [&] {
    auto context = engine_->OpenContext(host, client.uar, &reply->result.open, client.of->number);
    status = context.status();
    if (!status.ok()) return;
    client.context = *context;  // if memory runs out from here on, Close closes it
    status = loop_->AddWakeSource(client.wake.get());
    if (status.ok()) return loop_->AddPage(client.uar);
    engine_->CloseContext(*context);
    client.context = kNoContext;
  });
  HL_RETURN_IF_ERROR(status);
  client.name = host + " (pid " + std::to_string(client.pid) + ")";
  LogLine(log_.get(), LogLevel::kDebug, {client.name, " attached"});
  *fds = {client.uar_fd.get(), client.wake.get()};
  return {};
}

Status ControlServer::Register(Client& client, const RegisterUmemArgs& args,
                               Result<ClientMemory> mapped, Reply* reply) {
  HL_ASSIGN_OR_RETURN(ClientMemory memory, std::move(mapped));
  if (!memory.populate) return GiveToEngine(client, args, std::move(memory.mapping), reply);
  client.registration = Client::Registration{args, std::move(memory.mapping), 0};
  ++registering_;
  Listen(client, false);
  return {};
}

void ControlServer::Populate() {
  auto next = clients_.upper_bound(populated_);
  for (size_t i = 0; i < clients_.size(); ++i, ++next) {
    if (next == clients_.end()) next = clients_.begin();
    if (next->second->registration) break;
  }
  Client& client = *next->second;
  populated_ = client.id;
  Client::Registration& registration = *client.registration;
  const uint64_t piece =
      std::min(kPopulatePiece, registration.args.length - registration.populated);
  PopulatePiece(registration.mapping, registration.populated, piece);
  registration.populated += piece;
  if (registration.populated == registration.args.length)
    Guard(client, [&] { FinishRegistration(client); });
}

void ControlServer::FinishRegistration(Client& client) {
  Reply reply{};
  const Status status = GiveToEngine(client, client.registration->args,
                                     std::move(client.registration->mapping), &reply);
  client.registration.reset();
  --registering_;
  if (!client.of->paused) Listen(client, true);
  if (!Answer(client, status, reply, "", {})) Close(client.id, "it takes no answer");
}

Status ControlServer::GiveToEngine(Client& client, const RegisterUmemArgs& args,
                                   UmemMapping mapping, Reply* reply) {
  Status status;
  OnEngine(*client.of, [&] {
    auto id = engine_->RegisterUmem(client.context, args, std::move(mapping));
    if (id.ok()) {
      reply->result.id = *id;
    } else {
      status = id.status();
    }
  });
  return status;
}

Status ControlServer::CreateEventCq(Client& client, const CreateCqArgs& args, Reply* reply,
                                    std::vector<int>* fds) {
  HL_ASSIGN_OR_RETURN(auto channel, EventPipe::Create());
  Status status;
  OnEngine(*client.of, [&] {
    auto created = engine_->CreateEventCq(client.context, args, [channel] { channel->Signal(); });
    status = created.status();
    if (created.ok()) reply->result.cq = *created;
  });
  HL_RETURN_IF_ERROR(status);
  *fds = {channel->reader()};  // stays open with the CQ, at the engine
  return {};
}

bool ControlServer::Answer(Client& client, const Status& status, Reply& reply, std::string text,
                           const std::vector<int>& fds) {
  reply.magic = kCommandMagic;
  reply.version = kCommandVersion;
  reply.code = static_cast<uint16_t>(status.code());
  if (!status.ok()) text = status.message();
  if (text.size() > kMaxReplyText) text.resize(text.rfind('\n', kMaxReplyText - 1) + 1);
  reply.text_length = static_cast<uint32_t>(text.size());
  const std::array<iovec, 2> parts{iovec{&reply, sizeof reply}, iovec{text.data(), text.size()}};
  // The server does not wait for a client that does not take its answers.
  Status sent = SendMessage(client.socket.get(), parts, fds, MSG_DONTWAIT);
  return sent.ok();
}

std::string ControlServer::OwnCounters() const {
  const EngineLoop::Counters& c = loop_->counters();
  const auto line = [](const char* name, uint64_t value) {
    return std::string(name) + " " + std::to_string(value) + "\n";
  };
  const std::string cpu =
      loop_->cpu() < 0 ? "" : line("daemon_cpu", static_cast<uint64_t>(loop_->cpu()));
  return line("daemon_pid", static_cast<uint64_t>(getpid())) + cpu +
         line("engine_turns", c.turns.load(std::memory_order_relaxed)) +
         line("engine_idle_turns", c.idle_turns.load(std::memory_order_relaxed)) +
         line("engine_sleeps", c.sleeps.load(std::memory_order_relaxed)) +
         line("host_stalls", c.host_stalls.load(std::memory_order_relaxed));
}

}  // namespace hyperloop::softrnic
