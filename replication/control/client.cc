#include "control/client.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>

namespace hyperloop::control {
namespace {

// The first and the longest pause between two attempts to be let in.
constexpr std::chrono::milliseconds kFirstPause{1}, kLongestPause{64};
constexpr size_t kReplyPiece = 64u << 10;

bool Gone(int error) { return error == ECONNRESET || error == EPIPE; }

// Bytes that were changed on the way say nothing about the replica.
Status AsTransportError(const Status& status) {
  if (status.code() != Code::kCorruption) return status;
  return Unavailable(Text("the connection is disturbed: ", status.message()));
}

}  // namespace

Result<std::unique_ptr<ControlClient>> ControlClient::Connect(const Endpoint& endpoint,
                                                              const Trust& trust,
                                                              std::chrono::nanoseconds timeout,
                                                              uint16_t port, int stop) {
  const std::string name = "replica " + endpoint.ToString();
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout);
  const Endpoint place{endpoint.host, port == 0 ? endpoint.port : port};
  Result<UniqueFd> fd = ConnectTo(place, deadline, stop);
  if (!fd.ok()) {
    const Status& why = fd.status();
    if (why.code() == Code::kInvalidArgument) return why.WithContext(name);
    return Status(why.code() == Code::kTimedOut ? Code::kUnavailable : why.code(),
                  Text(name, " is out of reach: ", why.message(),
                       "; check the address, or start it: hyperloop-replica --listen ",
                       endpoint.ToString(), " …"));
  }
  return std::unique_ptr<ControlClient>(
      new ControlClient(std::move(fd).value(), endpoint, place, trust, name));
}

Result<BodyUnion> ControlClient::Exchange(const BodyUnion& request, Deadline deadline) {
  if (!fd_) return Unavailable(Text(name_, ": the control connection is closed"));
  Result<BodyUnion> answer = ExchangeOnce(request, deadline);
  if (!answer.ok()) {
    fd_ = UniqueFd();  // the stream may be in the middle of a frame
    const Status& why = answer.status();
    if (why.code() == Code::kPermissionDenied || why.code() == Code::kNotSupported)
      return why.WithContext(name_);
    return Status(why.code() == Code::kAborted ? Code::kUnavailable : why.code(), why.message())
        .WithContext(Text(name_, " did not answer ", BodyName(request.type)));
  }
  if (const auto* error = As<ErrorT>(*answer)) return ErrorStatus(*error).WithContext(name_);
  return answer;
}

Result<BodyUnion> ControlClient::ExchangeOnce(const BodyUnion& request, Deadline deadline) {
  HL_RETURN_IF_ERROR(Introduce(deadline));
  channel_->Send(EncodeFrame(request));
  HL_RETURN_IF_ERROR(SendOutput(deadline));
  while (true) {
    const auto message = channel_->Next();
    if (!message.ok()) return AsTransportError(message.status());
    if (!message->has_value()) {
      HL_RETURN_IF_ERROR(ReceiveSome(deadline));
      continue;
    }
    HL_ASSIGN_OR_RETURN(BodyUnion answer, ParseMessage(**message));
    if (const auto* hello = As<HelloReplyT>(answer))
      HL_RETURN_IF_ERROR(trust_.CheckHost(channel_->peer(), hello->host));
    return answer;
  }
}

Status ControlClient::Introduce(Deadline deadline) {
  if (channel_ != nullptr) return {};
  for (auto pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    const Status introduced = IntroduceOnce(deadline);
    if (introduced.code() != Code::kAborted || Clock::now() + pause >= deadline) return introduced;
    std::this_thread::sleep_for(pause);
    HL_ASSIGN_OR_RETURN(fd_, ConnectTo(place_, deadline, stop_));
  }
}

Status ControlClient::IntroduceOnce(Deadline deadline) {
  channel_ = std::make_unique<MessageChannel>(trust_.Dial(endpoint_), kMaxReply);
  while (true) {
    HL_RETURN_IF_ERROR(SendOutput(deadline));
    const auto message = channel_->Next();
    if (!message.ok()) return AsTransportError(message.status());
    if (channel_->open()) return trust_.CheckPlace(channel_->peer(), endpoint_);
    // The message that Next has just taken may have an answer to send.
    HL_RETURN_IF_ERROR(SendOutput(deadline));
    HL_RETURN_IF_ERROR(ReceiveSome(deadline));
  }
}

Status ControlClient::SendOutput(Deadline deadline) {
  const std::vector<std::byte> output = channel_->TakeOutput();
  for (std::span<const std::byte> left = output; !left.empty();) {
    const ssize_t sent = send(fd_.get(), left.data(), left.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      left = left.subspan(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      HL_RETURN_IF_ERROR(WaitReady(fd_.get(), POLLOUT, deadline, stop_));
    } else if (Gone(errno)) {
      return {};  // what is received next, a message or the end of the stream, says why
    } else if (errno != EINTR) {
      return FromErrno(errno, "send");
    }
  }
  return {};
}

Status ControlClient::ReceiveSome(Deadline deadline) {
  std::array<std::byte, kReplyPiece> piece;
  while (true) {
    const ssize_t got = recv(fd_.get(), piece.data(), piece.size(), 0);
    if (got > 0) {
      channel_->Append(std::span(piece).first(static_cast<size_t>(got)));
      return {};
    }
    if (got == 0 || Gone(errno)) return Aborted("the replica closed the connection");
    if (errno == EAGAIN) {
      HL_RETURN_IF_ERROR(WaitReady(fd_.get(), POLLIN, deadline, stop_));
    } else if (errno != EINTR) {
      return FromErrno(errno, "receive");
    }
  }
}

Status ControlClient::Unexpected(const BodyUnion& body) const {
  return Corruption(
      Text(name_, " answered with ", BodyName(body.type), ", which does not fit the request"));
}

}  // namespace hyperloop::control
