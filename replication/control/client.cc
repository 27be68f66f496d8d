#include "control/client.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

namespace hyperloop::control {
namespace {

Status SendAll(int fd, std::span<const uint8_t> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      HL_RETURN_IF_ERROR(WaitReady(fd, POLLOUT, deadline));
    } else if (errno != EINTR) {
      return FromErrno(errno, "send");
    }
  }
  return {};
}

Status ReceiveAll(int fd, std::span<uint8_t> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t got = recv(fd, bytes.data(), bytes.size(), 0);
    if (got > 0) {
      bytes = bytes.subspan(static_cast<size_t>(got));
    } else if (got == 0) {
      return Unavailable("the replica closed the connection");
    } else if (errno == EAGAIN) {
      HL_RETURN_IF_ERROR(WaitReady(fd, POLLIN, deadline));
    } else if (errno != EINTR) {
      return FromErrno(errno, "receive");
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<ControlClient>> ControlClient::Connect(const Endpoint& endpoint,
                                                              std::chrono::nanoseconds timeout) {
  const std::string name = "replica " + endpoint.ToString();
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout);
  Result<Fd> fd = ConnectTo(endpoint, deadline);
  if (!fd.ok()) {
    const Status& why = fd.status();
    if (why.code() == Code::kInvalidArgument) return why.WithContext(name);
    return Status(why.code() == Code::kTimedOut ? Code::kUnavailable : why.code(),
                  Text(name, " is out of reach: ", why.message(),
                       "; check the address, or start it: hyperloop-replica --listen ",
                       endpoint.ToString(), " …"));
  }
  return std::unique_ptr<ControlClient>(new ControlClient(std::move(fd).value(), name));
}

Result<BodyUnion> ControlClient::Exchange(const BodyUnion& request, Deadline deadline) {
  if (!fd_.valid()) return Unavailable(Text(name_, ": the control connection is closed"));
  Result<BodyUnion> answer = ExchangeOnce(request, deadline);
  if (!answer.ok()) {
    fd_ = Fd();  // the stream may be in the middle of a frame
    return answer.status().WithContext(Text(name_, " did not answer ", BodyName(request.type)));
  }
  if (const auto* error = As<ErrorT>(*answer)) return ErrorStatus(*error).WithContext(name_);
  return answer;
}

Result<BodyUnion> ControlClient::ExchangeOnce(const BodyUnion& request, Deadline deadline) {
  HL_RETURN_IF_ERROR(SendAll(fd_.get(), EncodeFrame(request), deadline));
  std::array<uint8_t, kFrameHeader> header{};
  HL_RETURN_IF_ERROR(ReceiveAll(fd_.get(), header, deadline));
  HL_ASSIGN_OR_RETURN(const uint32_t length, ParseFrameHeader(header, kMaxReply));
  std::vector<uint8_t> message(length);
  HL_RETURN_IF_ERROR(ReceiveAll(fd_.get(), message, deadline));
  return ParseMessage(message);
}

Status ControlClient::Unexpected(const BodyUnion& body) const {
  return Corruption(
      Text(name_, " answered with ", BodyName(body.type), ", which does not fit the request"));
}

}  // namespace hyperloop::control
