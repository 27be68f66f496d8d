// The conversation of the ClientServer with its clients: it takes their messages, carries out the
// commands, and answers.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <new>
#include <optional>

#include "base/signal_event.h"
#include "hyperloop/core/out_of_memory.h"
#include "softrnic/daemon/served_client.h"
#include "softrnic/loop/event_pipe.h"

namespace hyperloop::softrnic {

namespace {

// If more than this waits to be unmapped, some of it is unmapped before more is mapped. No memory
// holds so much, so it is mostly ranges of sparse files, which take no time.
constexpr size_t kMostToUnmap = size_t{1} << 40;

// Runs on the thread of client number `client`.
Result<UmemMapping> MapWhereThereIsRoom(const RegisterUmemArgs& args, int fd, ClientNumber client,
                                        const std::shared_ptr<UnmapQueue>& unmap) {
  while (unmap->bytes() > kMostToUnmap) unmap->DrainSome();
  Result<UmemMapping> mapped = MapClientMemory(args, fd, client, unmap);
  const bool refused = mapped.status().code() == Code::kInvalidArgument ||
                       mapped.status().code() == Code::kPermissionDenied;
  if (mapped.ok() || refused) return mapped;
  // Address space or descriptors may be short because of what waits.
  unmap->Drain();
  return MapClientMemory(args, fd, client, unmap);
}

}  // namespace

struct ClientServer::Message {
  Command command;
  size_t bytes = 0;
  bool truncated = false;
  size_t descriptors = 0;
  std::optional<Result<UmemMapping>> memory;  // of a kRegisterUmem with one descriptor

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
struct ClientServer::Delivery {
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

bool ClientServer::Receive(Client& client) {
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

void ClientServer::ReceiveElsewhere(Client& client) {
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

void ClientServer::TakeDelivered() {
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

bool ClientServer::Handle(Client& client, Message& message) {
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
  return Answer(client, status, reply, std::move(text), fds);
}

Status ClientServer::Dispatch(Client& client, Message& message, Reply* reply, std::string* text,
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
    HL_ASSIGN_OR_RETURN(UmemMapping memory, *std::move(message.memory));
    return GiveToEngine(client, command.args.umem, std::move(memory), reply);
  }
  if (command.op == Op::kCreateCq && command.args.cq.events != 0) {
    return CreateEventCq(client, command.args.cq, reply, fds);
  }
  if (command.op == Op::kQueryCounters) {
    Result<std::function<std::string()>> lines = Internal("the engine was not asked");
    OnEngine(*client.of, [&] { lines = engine_->Counters(client.context, command.args.counters); });
    HL_RETURN_IF_ERROR(lines.status());
    *text = (*lines)() + OwnCounters();
    if (links_ != nullptr) *text += links_->CounterText();
    return {};
  }
  Status status;
  OnEngine(*client.of, [&] { status = engine_->Execute(client.context, command, reply, text); });
  return status;
}

Status ClientServer::Open(Client& client, const OpenArgs& args, Reply* reply,
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

Status ClientServer::GiveToEngine(Client& client, const RegisterUmemArgs& args, UmemMapping mapping,
                                  Reply* reply) {
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

Status ClientServer::CreateEventCq(Client& client, const CreateCqArgs& args, Reply* reply,
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

bool ClientServer::Answer(Client& client, const Status& status, Reply& reply, std::string text,
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

std::string ClientServer::OwnCounters() const {
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
         line("engine_guests", c.guests.load(std::memory_order_relaxed)) +
         line("host_stalls", c.host_stalls.load(std::memory_order_relaxed));
}

}  // namespace hyperloop::softrnic
