// SocketPort: commands to hyperloop-rnicd over its Unix socket; the UAR page is the daemon's
// memory, mapped here.
//
// A client learns in these ways that the daemon is gone:
// - A daemon that ended orderly has cleared engine_alive in the page.
// - If the daemon was killed, the kernel closed its end of the socket. EngineGone sees that with a
//   non-blocking peek, which DeviceContext::Alive makes every few milliseconds of waiting.
// - A daemon that is stopped or starved does not count as gone until a command has waited
//   TimeoutSeconds in vain. Code that waits for completions has its own bound.
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/signal_event.h"
#include "hyperloop/core/mutex.h"
#include "hyperloop/core/name.h"
#include "hyperloop/core/softrnic.h"
#include "hyperloop/core/text.h"
#include "softrnic/commands/unix_socket.h"
#include "softrnic/driver/device_context.h"

namespace hyperloop::softrnic {
namespace {

constexpr time_t kCommandTimeoutSeconds = 20;
// The daemon maps memory before it answers its registration, and on a full machine some of it has
// to come from its disk again.
constexpr uint64_t kPopulatedPerSecond = 128u << 20;  // bytes

time_t TimeoutSeconds(const Command& command) {
  if (static_cast<Op>(command.op) != Op::kRegisterUmem) return kCommandTimeoutSeconds;
  return kCommandTimeoutSeconds +
         static_cast<time_t>(command.args.umem.length / kPopulatedPerSecond);
}

Status DidNotAnswer(time_t seconds) {
  return TimedOut("the RNIC daemon did not answer within " + std::to_string(seconds) + " s");
}

// Brings what a file holds of this memory from its disk, or makes its pages, however long that
// takes. The daemon, for which a command waits, then finds it all there. A sparse file stays so.
void Populate(const RegisterUmemArgs& args, int fd) {
  struct stat info {};
  if (fstat(fd, &info) != 0 || info.st_blocks * 512 < info.st_size) return;
  constexpr uint64_t kPiece = 8u << 20;  // as in MapClientMemory
  auto* const memory = reinterpret_cast<std::byte*>(args.client_addr);
  for (uint64_t at = 0; at < args.length; at += kPiece)
    madvise(memory + at, std::min(kPiece, args.length - at), MADV_POPULATE_READ);
}

// Sets a flag when it goes, unless it was dismissed before.
class FlagAtExit {
 public:
  explicit FlagAtExit(std::atomic<bool>& flag) : flag_(flag) {}
  ~FlagAtExit() {
    if (!dismissed_) flag_.store(true, std::memory_order_relaxed);
  }
  FlagAtExit(const FlagAtExit&) = delete;
  FlagAtExit& operator=(const FlagAtExit&) = delete;
  void Dismiss() { dismissed_ = true; }

 private:
  std::atomic<bool>& flag_;
  bool dismissed_ = false;
};

class SocketPort final : public CommandPort {
 public:
  static Result<std::unique_ptr<CommandPort>> Attach(const DaemonAddress& address) {
    std::unique_ptr<SocketPort> port(new SocketPort);
    HL_RETURN_IF_ERROR(port->Connect(address.socket_path));
    HL_RETURN_IF_ERROR(port->Open(address.host));
    return std::unique_ptr<CommandPort>(std::move(port));
  }

  ~SocketPort() override {
    if (guard_ != nullptr && !guard_->IsOwner()) {  // a child must not touch the parent's objects
      socket_.Release();
      wake_.Release();
      return;
    }
    if (uar_ != nullptr) munmap(uar_, kUarBytes);
  }

  Status Execute(const Command& command, Reply* reply, std::string* text) override {
    MessageFds fds;
    return Exchange(command, {}, reply, text, &fds);
  }

  Result<uint32_t> RegisterUmem(const RegisterUmemArgs& args, int fd) override {
    Populate(args, fd);
    Command command = MakeCommand(Op::kRegisterUmem);
    command.args.umem = args;
    Reply reply;
    MessageFds fds;
    HL_RETURN_IF_ERROR(Exchange(command, {&fd, 1}, &reply, nullptr, &fds));
    return reply.result.id.id;
  }

  Result<UniqueFd> CreateEventCq(const Command& command, Reply* reply) override {
    MessageFds fds;
    HL_RETURN_IF_ERROR(Exchange(command, {}, reply, nullptr, &fds));
    if (fds.size() != 1) return Internal("the RNIC daemon's answer lacks the completion channel");
    return std::move(fds[0]);
  }

  bool needs_fd() const override { return true; }
  const OpenReply& attachment() const override { return attachment_; }
  UarPage* uar() const override { return uar_; }

  void WakeEngine() override { SignalEvent(wake_.get()); }

  bool EngineGone() override {
    if (broken_.load(std::memory_order_relaxed)) return true;
    char byte;
    const ssize_t n = recv(socket_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
  }

 private:
  SocketPort() = default;

  Status Connect(const std::string& path) {
    HL_ASSIGN_OR_RETURN(guard_, ForkDetector::Create());
    HL_ASSIGN_OR_RETURN(auto address, UnixAddress(path));
    socket_.Reset(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!socket_) return FromErrno(errno, "creating a Unix socket");
    SetTimeout(kCommandTimeoutSeconds);
    if (connect(socket_.get(), reinterpret_cast<sockaddr*>(&address.first), address.second) == 0) {
      return CheckListener(socket_.get(), path);  // before it is handed any memory
    }
    switch (errno) {
      case ENOENT:
      case ECONNREFUSED:
        return Unavailable("no RNIC daemon listens at " + path +
                           ": start one with `hyperloop-rnicd --socket " + path + "`");
      case EACCES:
      case EPERM:
        return PermissionDenied("the RNIC daemon's socket " + path +
                                " belongs to another user: run as that user, or start a daemon "
                                "of your own");
      case EAGAIN:  // more clients wait than its socket holds
        return DidNotAnswer(kCommandTimeoutSeconds);
      default:
        return FromErrno(errno, "connecting to the RNIC daemon at " + path);
    }
  }

  Status Open(const std::string& host) {
    Command command = MakeCommand(Op::kOpen);
    if (!IsName(host)) return InvalidArgument(Text("host name \"", host, "\": ", kNameRule));
    std::copy(host.begin(), host.end(), command.args.open.host);
    Reply reply;
    MessageFds fds;
    HL_RETURN_IF_ERROR(Exchange(command, {}, &reply, nullptr, &fds));
    struct stat info {};
    if (fds.size() != 2 || fstat(fds[0].get(), &info) != 0 || info.st_size < off_t{kUarBytes}) {
      return Internal("the RNIC daemon's answer lacks its UAR page");
    }
    void* page = mmap(nullptr, kUarBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                      fds[0].get(), 0);
    if (page == MAP_FAILED) return FromErrno(errno, "mapping the UAR page");
    uar_ = static_cast<UarPage*>(page);
    if (madvise(page, kUarBytes, MADV_DONTFORK) != 0) {
      return FromErrno(errno, "MADV_DONTFORK of the UAR page");
    }
    wake_ = std::move(fds[1]);
    attachment_ = reply.result.open;
    return {};
  }

  void SetTimeout(time_t seconds) {
    const timeval timeout{.tv_sec = seconds, .tv_usec = 0};
    setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
  }

  // One command and its answer. Needs memory for errors and texts only, so that what is destroyed
  // is destroyed without memory, too.
  Status Exchange(const Command& command, std::span<const int> send_fds, Reply* reply,
                  std::string* text, MessageFds* fds) {
    MutexLock lock(mutex_);
    if (broken_.load(std::memory_order_relaxed)) {
      return Unavailable("the RNIC daemon does not answer: open the device again");
    }
    // A late answer would be taken for the next command's. So without an answer, and if memory runs
    // out before it, the device counts as gone: its owner closes it, and then the daemon destroys
    // all objects of this client.
    FlagAtExit breaks(broken_);
    const time_t seconds = TimeoutSeconds(command);
    SetTimeout(seconds);
    const iovec part{const_cast<Command*>(&command), sizeof command};
    // The daemon may have refused and closed the connection while its reason is still to be read.
    // So a failure to send matters only if there is no answer either.
    Status sent = SendMessage(socket_.get(), {&part, 1}, send_fds, 0);
    auto message = ReceiveMessage(socket_.get(), buffer_, sent.ok() ? 0 : MSG_DONTWAIT);
    if (message.status().code() == Code::kUnavailable) {
      // The connection was reset because the daemon closed it with our command unread. The daemon's
      // reason may still be readable.
      message = ReceiveMessage(socket_.get(), buffer_, MSG_DONTWAIT);
      if (!message.ok()) message = ReceivedMessage{};
    }
    if (message.status().code() == Code::kBusy) return DidNotAnswer(seconds);
    HL_RETURN_IF_ERROR(message.status());
    HL_RETURN_IF_ERROR(Parse(*message, reply));
    breaks.Dismiss();
    *fds = std::move(message->fds);
    const std::string_view said(reinterpret_cast<const char*>(buffer_.data()) + sizeof(Reply),
                                reply->text_length);
    if (text != nullptr) *text = said;
    const auto code = static_cast<Code>(reply->code);
    return code == Code::kOk ? Status() : Status(code, std::string(said));
  }

  Status Parse(const ReceivedMessage& message, Reply* reply) const HL_REQUIRES(mutex_) {
    if (message.bytes == 0) {
      return Unavailable(
          "the RNIC daemon has closed the connection: see its log, and whether it runs");
    }
    if (message.truncated || message.bytes < sizeof(Reply)) {
      return Internal("answer of " + std::to_string(message.bytes) + " bytes from the RNIC daemon");
    }
    std::memcpy(reply, buffer_.data(), sizeof(Reply));
    if (reply->magic != kCommandMagic || reply->version != kCommandVersion ||
        reply->text_length != message.bytes - sizeof(Reply) ||
        reply->code > static_cast<uint16_t>(Code::kInternal)) {
      return NotSupported("the socket is not that of a hyperloop-rnicd of this version (protocol " +
                          std::to_string(kCommandVersion) + ")");
    }
    return {};
  }

  std::unique_ptr<ForkDetector> guard_;
  UniqueFd socket_;
  UniqueFd wake_;
  UarPage* uar_ = nullptr;
  OpenReply attachment_{};
  Mutex mutex_;  // guards the conversation: one command at a time
  std::vector<std::byte> buffer_ HL_GUARDED_BY(mutex_) = std::vector<std::byte>(sizeof(Reply) +
                                                                                kMaxReplyText);
  // A command got no answer, or a wrong one. Written under mutex_.
  std::atomic<bool> broken_{false};
};

}  // namespace

Result<std::unique_ptr<rnic::Device>> OpenDaemonDevice(const DaemonAddress& address) {
  HL_ASSIGN_OR_RETURN(auto port, SocketPort::Attach(address));
  return MakeDevice(std::move(port));
}

}  // namespace hyperloop::softrnic
