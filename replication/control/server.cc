#include "control/server.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace hyperloop::control {
namespace {

constexpr std::chrono::milliseconds kAcceptPause{100};

// Whoever asked no longer waits for the answer. While this process was stopped an asker may have
// given up long ago: what it wanted then must not happen now.
bool HungUp(const Fd& fd) {
  std::byte next;
  const ssize_t got = recv(fd.get(), &next, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

}  // namespace

ControlServer::ControlServer(Fd listener, Endpoint endpoint, Handler handler)
    : listener_(std::move(listener)),
      endpoint_(std::move(endpoint)),
      handler_(std::move(handler)) {}

Result<std::unique_ptr<ControlServer>> ControlServer::Listen(const Endpoint& endpoint,
                                                             Handler handler) {
  Endpoint bound;
  HL_ASSIGN_OR_RETURN(Fd listener, ListenOn(endpoint, &bound));
  return std::unique_ptr<ControlServer>(
      new ControlServer(std::move(listener), std::move(bound), std::move(handler)));
}

Deadline ControlServer::NextDeadline(Deadline until) const {
  for (const Connection& each : connections_) until = std::min(until, each.deadline);
  return until;
}

Status ControlServer::Serve(Deadline until, int wake_fd) {
  std::vector<pollfd> ready;
  const bool paused = Clock::now() < accept_after_;
  ready.push_back({paused ? -1 : listener_.get(), POLLIN, 0});
  ready.push_back({wake_fd, POLLIN, 0});
  for (const Connection& each : connections_) {
    ready.push_back({each.fd.get(), static_cast<short>(each.out.empty() ? POLLIN : POLLOUT), 0});
  }
  const Deadline wake = std::min(NextDeadline(until), paused ? accept_after_ : Deadline::max());
  int timeout = -1;
  if (wake != Deadline::max()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(wake - Clock::now()).count();
    timeout = static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30));
  }
  if (poll(ready.data(), ready.size(), timeout) < 0 && errno != EINTR)
    return FromErrno(errno, "poll");
  const Deadline now = Clock::now();
  size_t index = 2;
  for (auto it = connections_.begin(); it != connections_.end(); ++index) {
    const bool keep = Progress(*it, ready[index].revents) && now < it->deadline;
    it = keep ? std::next(it) : connections_.erase(it);
  }
  if (ready[0].revents != 0) Accept();
  return {};
}

void ControlServer::Accept() {
  while (true) {
    Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) {
        // Out of descriptors or memory: the longest connected makes room; whoever waits stays
        // readable meanwhile, so do not look again at once.
        if (!connections_.empty()) connections_.pop_front();
        accept_after_ = Clock::now() + kAcceptPause;
      }
      return;
    }
    if (!PrepareSocket(fd.get()).ok()) continue;
    if (connections_.size() >= kMaxConnections) {
      connections_.erase(std::min_element(
          connections_.begin(), connections_.end(),
          [](const Connection& a, const Connection& b) { return a.idle_since < b.idle_since; }));
    }
    connections_.emplace_back();
    connections_.back().fd = std::move(fd);
    connections_.back().idle_since = Clock::now();
  }
}

bool ControlServer::Progress(Connection& connection, short ready) {
  if (ready == 0) return true;
  if (!connection.out.empty()) return Flush(connection);
  return Receive(connection);
}

bool ControlServer::Receive(Connection& connection) {
  // One frame at a time: what follows waits in the socket's own bounded buffer.
  while (true) {
    size_t wanted = kFrameHeader;
    if (connection.in.size() >= kFrameHeader) {
      std::array<uint8_t, kFrameHeader> header{};
      std::copy_n(connection.in.begin(), kFrameHeader, header.begin());
      const Result<uint32_t> length = ParseFrameHeader(header, kMaxRequest);
      if (!length.ok()) {
        connection.out = EncodeFrame(MakeError(length.status()));
        connection.closing = true;
        return Flush(connection);
      }
      wanted += *length;
    }
    const size_t have = connection.in.size();
    if (have == wanted) {
      if (HungUp(connection.fd)) return false;
      HandleFrame(connection);
      return Flush(connection);
    }
    connection.in.resize(wanted);
    const ssize_t got = recv(connection.fd.get(), connection.in.data() + have, wanted - have, 0);
    connection.in.resize(have + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) return false;
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (have == 0) connection.deadline = Clock::now() + kFrameTimeout;
  }
}

void ControlServer::HandleFrame(Connection& connection) {
  const Result<BodyUnion> request = ParseMessage(std::span(connection.in).subspan(kFrameHeader));
  connection.in.clear();
  if (request.ok()) {
    connection.out = EncodeFrame(handler_(*request));
    if (connection.out.size() > kFrameHeader + kMaxReply) {
      connection.out =
          EncodeFrame(MakeError(InvalidArgument("the answer would be too long; ask for less")));
    }
  } else {
    connection.out = EncodeFrame(MakeError(request.status()));
    connection.closing = true;
  }
  connection.deadline = Clock::now() + kFrameTimeout;
}

bool ControlServer::Flush(Connection& connection) {
  while (!connection.out.empty()) {
    const ssize_t sent =
        send(connection.fd.get(), connection.out.data(), connection.out.size(), MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    connection.out.erase(connection.out.begin(), connection.out.begin() + sent);
  }
  connection.deadline = Deadline::max();
  connection.idle_since = Clock::now();
  return !connection.closing;
}

}  // namespace hyperloop::control
