#include "softrnic/daemon/control_server.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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

uint64_t ThreadCpuNs() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

}  // namespace

struct ControlServer::Process {
  ClientNumber number = 0;
  uint32_t connections = 0;
  int64_t left_ns = kBurstNs;  // engine time; below 0: its commands wait
  uint64_t since_ns = 0;       // the time at which left_ns was computed
  bool paused = false;
};

struct ControlServer::Client {
  uint64_t id = 0;
  uid_t user = 0;
  Process* of = nullptr;
  pid_t pid = 0;
  UniqueFd socket;
  UniqueFd process;  // pidfd
  UniqueFd wake;     // eventfd, shared with the client
  UniqueFd uar_fd;
  UarPage* uar = nullptr;
  ContextId context = kNoContext;
  std::string name;  // "host (pid N)", for the log
  // A registration whose memory is being populated.
  struct Registration {
    RegisterUmemArgs args{};
    UmemMapping mapping;
    uint64_t populated = 0;
  };
  std::optional<Registration> registration;

  ~Client() {
    if (uar != nullptr) munmap(uar, kUarBytes);
  }
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
  if (!server->epoll_ || !server->stop_event_ || !server->spare_ || !server->evicted_event_) {
    return FromErrno(errno, "creating the control thread's descriptors");
  }
  HL_ASSIGN_OR_RETURN(server->listener_, ListenAt(path));
  HL_RETURN_IF_ERROR(server->Watch(server->listener_.socket.get(), 0, kListener));
  HL_RETURN_IF_ERROR(server->Watch(server->stop_event_.get(), 0, kStop));
  HL_RETURN_IF_ERROR(server->Watch(server->evicted_event_.get(), 0, kEvicted));
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
}

void ControlServer::Run() {
  std::array<epoll_event, 32> events;
  while (!stop_) {
    const int wait_ms = ResumePaused();
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
      if (RanOutOfMemory([this] { Accept(); })) refusals_.Note("somebody", "out of memory");
      return;
    case kEvicted:
      CloseEvicted();
      return;
    case kStop:
      stop_ = true;
      return;
    case kProcess:
      Close(id, "its process ended");
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
  LogLine(log_.get(), LogLevel::kError, {client.name, " is ended: out of memory in its command"});
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
    if (client->of == &process && !client->registration) Listen(*client, on);
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
  UniqueFd socket(accept4(listener_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) {
    if (errno == EMFILE || errno == ENFILE) RefuseForLackOfDescriptors();
    return;
  }
  const uint64_t id = next_id_++;
  auto made = std::make_unique<Client>();
  made->id = id;
  made->socket = std::move(socket);
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
  client.name = "pid " + std::to_string(peer.pid);
  if (!known || (peer.uid != geteuid() && peer.uid != 0))
    return PermissionDenied("this RNIC daemon serves user " + std::to_string(geteuid()) +
                            " only, not user " + std::to_string(peer.uid));
  client.pid = peer.pid;
  client.user = peer.uid;
  HL_RETURN_IF_ERROR(Join(client));
  client.process.Reset(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
  if (!client.process) return FromErrno(errno, "pidfd_open of the client");
  HL_RETURN_IF_ERROR(Watch(client.process.get(), client.id, kProcess));
  HL_RETURN_IF_ERROR(Watch(client.socket.get(), client.id, kSocket));
  if (client.of->paused) Listen(*client.of, false);
  return {};
}

Status ControlServer::Join(Client& client) {
  const uid_t user = client.user;
  const pid_t pid = client.pid;
  const uint32_t most = user == geteuid() ? limits_.connections : kOtherUsersConnections;
  uint32_t& of_user = connections_[user];
  if (of_user >= most)
    return NoSpace("user " + std::to_string(user) + " has " + std::to_string(of_user) +
                   " connections to the RNIC daemon, the most (--connections)");
  if (processes_.size() >= kProcessesRemembered)
    std::erase_if(processes_, [](const auto& entry) { return entry.second.connections == 0; });
  Process& found = processes_[pid];
  if (found.connections >= limits_.client_connections)
    return NoSpace("process " + std::to_string(pid) + " has " + std::to_string(found.connections) +
                   " connections to the RNIC daemon, the most (--client-connections)");
  if (found.number == 0) found.number = next_process_++, found.since_ns = SteadyNs();
  ++found.connections, ++of_user;
  client.of = &found;
  return {};
}

void ControlServer::Leave(Client& client) {
  if (client.of == nullptr) return;
  --client.of->connections, --connections_[client.user];
  // A process must not get new time by connecting again.
  Charge(*client.of, 0);
  if (client.of->connections == 0 && client.of->left_ns == kBurstNs) processes_.erase(client.pid);
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
    LogLine(log_.get(), LogLevel::kError, {found->second->name, " is ended: ", why});
    Close(found->first, why);
  }
}

void ControlServer::RefuseForLackOfDescriptors() {
  spare_.Reset(-1);
  Client client;
  client.socket.Reset(accept4(listener_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
  Reply reply{};
  if (client.socket) {
    // Without memory it is told nothing.
    static_cast<void>(RanOutOfMemory([&] {
      Answer(client, NoSpace("the RNIC daemon is out of descriptors: raise its ulimit -n"), reply,
             "", {});
    }));
  }
  client.socket.Reset(-1);
  spare_.Reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
  refusals_.Note("somebody", "out of descriptors; raise ulimit -n");
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
  Leave(client);
  if (client.registration) --registering_;
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
  Command command;
  auto message = ReceiveMessage(client.socket.get(), std::as_writable_bytes(std::span(&command, 1)),
                                MSG_DONTWAIT);
  if (!message.ok()) return message.status().code() == Code::kBusy;
  if (message->bytes == 0) return false;
  Reply reply{};
  Status bad;
  if (message->bytes != sizeof command || command.magic != kCommandMagic) {
    bad = InvalidArgument("message of " + std::to_string(message->bytes) +
                          " bytes is not a command: expected " + std::to_string(sizeof command) +
                          " bytes that begin with the magic number");
  } else if (command.version != kCommandVersion) {
    bad = NotSupported("protocol version " + std::to_string(command.version) +
                       ": this daemon speaks " + std::to_string(kCommandVersion) +
                       "; use a client and a daemon of one release");
  } else if (message->truncated) {
    bad = InvalidArgument("too long a message, or too many descriptors");
  }
  if (!bad.ok()) {
    LogLine(log_.get(), LogLevel::kWarn, {client.name, ": ", bad.message()});
    Answer(client, bad, reply, "", {});
    return false;
  }
  std::string text;
  std::vector<int> fds;
  const Status status = Dispatch(client, command, *message, &reply, &text, &fds);
  if (client.registration) return true;
  return Answer(client, status, reply, std::move(text), fds);
}

Status ControlServer::Dispatch(Client& client, const Command& command, ReceivedMessage& message,
                               Reply* reply, std::string* text, std::vector<int>* fds) {
  const size_t expected_fds = command.op == Op::kRegisterUmem ? 1 : 0;
  if (message.fds.size() != expected_fds) {
    return InvalidArgument("command " + std::to_string(static_cast<unsigned>(command.op)) +
                           " came with " + std::to_string(message.fds.size()) +
                           " descriptors instead of " + std::to_string(expected_fds));
  }
  if (command.op == Op::kOpen) return Open(client, command.args.open, reply, fds);
  if (client.context == kNoContext) {
    return InvalidArgument("the first command must attach to a host");
  }
  if (command.op == Op::kRegisterUmem) {
    return Register(client, command.args.umem, message.fds[0].get(), reply);
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

Status ControlServer::Register(Client& client, const RegisterUmemArgs& args, int fd, Reply* reply) {
  while (unmap_->bytes() > kMostToUnmap) unmap_->DrainSome();
  Result<ClientMemory> mapped = MapClientMemory(args, fd, unmap_);
  const bool refused = mapped.status().code() == Code::kInvalidArgument ||
                       mapped.status().code() == Code::kPermissionDenied;
  if (!mapped.ok() && !refused) {
    // Address space or descriptors may be short because of what waits.
    unmap_->Drain();
    mapped = MapClientMemory(args, fd, unmap_);
  }
  unmapping_ = true;  // a failed attempt may have left a mapping
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
