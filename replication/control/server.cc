#include "control/server.h"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <map>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "hyperloop/core/out_of_memory.h"
#include "hyperloop/core/text.h"

namespace hyperloop::control {
namespace {

constexpr std::chrono::milliseconds kAcceptPause{100};
// After so many accepted connections the open ones get their turn.
constexpr int kAcceptsPerTurn = 64;
constexpr size_t kRequestPiece = 16u << 10;
// Of ready_: the listener and what wakes.
constexpr size_t kOwnEntries = 2;
constexpr std::string_view kNoMemory = "out of memory";

// Whether the peer no longer waits for the answer. While this process was stopped a peer may have
// given up long ago, and its request must not be carried out now.
bool HungUp(const UniqueFd& fd) {
  std::byte next;
  const ssize_t got = recv(fd.get(), &next, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

// Whoever has one IPv6 address has all those of its network.
void KeepNetworkOnly(sockaddr_storage* address) {
  if (address->ss_family != AF_INET6) return;
  auto& v6 = reinterpret_cast<sockaddr_in6*>(address)->sin6_addr;
  if (!IN6_IS_ADDR_V4MAPPED(&v6) && !IN6_IS_ADDR_LOOPBACK(&v6)) std::memset(v6.s6_addr + 8, 0, 8);
}

std::string SourceOf(sockaddr_storage address, socklen_t length) {
  KeepNetworkOnly(&address);
  std::array<char, NI_MAXHOST> host{};
  const int error = getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host.data(),
                                host.size(), nullptr, 0, NI_NUMERICHOST);
  return error == 0 ? host.data() : "?";
}

}  // namespace

ControlServer::ControlServer(UniqueFd listener, Endpoint endpoint, Trust trust, Handler handler,
                             std::shared_ptr<Log> log, uint32_t max_request)
    : listener_(std::move(listener)),
      endpoint_(std::move(endpoint)),
      trust_(std::move(trust)),
      handler_(std::move(handler)),
      log_(std::move(log)),
      max_request_(max_request) {
  ready_.reserve(kOwnEntries);
}

Result<std::unique_ptr<ControlServer>> ControlServer::Listen(const Endpoint& endpoint, Trust trust,
                                                             Handler handler,
                                                             std::shared_ptr<Log> log,
                                                             uint32_t max_request) {
  Endpoint bound;
  HL_ASSIGN_OR_RETURN(UniqueFd listener, ListenOn(endpoint, &bound, !trust.keyed()));
  return std::unique_ptr<ControlServer>(new ControlServer(std::move(listener), std::move(bound),
                                                          std::move(trust), std::move(handler),
                                                          std::move(log), max_request));
}

Deadline ControlServer::NextDeadline(Deadline until) const {
  for (const Connection& each : connections_)
    until = std::min(until, each.more && each.out.empty() ? Deadline::min() : each.deadline);
  return until;
}

Status ControlServer::Serve(Deadline until, int wake_fd) {
  const bool paused = Clock::now() < accept_after_;
  ready_.clear();
  ready_.push_back({paused ? -1 : listener_.get(), POLLIN, 0});
  ready_.push_back({wake_fd, POLLIN, 0});
  for (const Connection& each : connections_) {
    ready_.push_back({each.fd.get(), static_cast<short>(each.out.empty() ? POLLIN : POLLOUT), 0});
  }
  const Deadline now_or_later = std::max(NextDeadline(until), Clock::now());
  const Deadline wake = std::min(now_or_later, paused ? accept_after_ : Deadline::max());
  int timeout = -1;
  if (wake != Deadline::max()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(wake - Clock::now()).count();
    timeout = static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30));
  }
  if (poll(ready_.data(), ready_.size(), timeout) < 0) {
    if (errno != EINTR && errno != ENOMEM) return FromErrno(errno, "poll");
    if (errno == ENOMEM) std::this_thread::sleep_for(kAcceptPause);  // the kernel's is out
    return {};
  }
  const Deadline now = Clock::now();
  size_t index = kOwnEntries;
  for (auto it = connections_.begin(); it != connections_.end(); ++index) {
    bool keep = false;
    if (RanOutOfMemory([&] { keep = Progress(*it, ready_[index].revents) && now < it->deadline; }))
      Report(*it, kNoMemory);
    it = keep ? std::next(it) : connections_.erase(it);
  }
  if (ready_[0].revents != 0) Accept();
  return {};
}

// --- accepting connections

void ControlServer::Accept() {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    sockaddr_storage address{};
    socklen_t length = sizeof(address);
    UniqueFd fd(accept4(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length,
                        SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd) {
      if (RanOutOfMemory([&] {
            if (PrepareSocket(fd.get()).ok()) Admit(std::move(fd), SourceOf(address, length));
          }))
        Report("a stranger", "its address", kNoMemory);
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) {
      // There are no descriptors or no memory left, so a stranger has to make room. The listener
      // stays readable while a peer waits, so the next accept is delayed.
      const auto least = std::min_element(connections_.begin(), connections_.end(), GivesWayBefore);
      if (least != connections_.end() && !least->known) connections_.erase(least);
      accept_after_ = Clock::now() + kAcceptPause;
    }
    return;
  }
}

void ControlServer::Admit(UniqueFd fd, std::string source) {
  Connections admitted(1);
  Connection& connection = admitted.front();
  connection.fd = std::move(fd);
  connection.since = Clock::now();
  connection.deadline = connection.since + kFrameTimeout;
  ready_.reserve(kOwnEntries + connections_.size() + 1);
  const auto least = StrangerToGiveUp(source);
  connection.source = std::move(source);
  // What needs memory has succeeded.
  if (least != connections_.end()) connections_.erase(least);
  connections_.splice(connections_.end(), admitted);
}

ControlServer::Connections::iterator ControlServer::StrangerToGiveUp(std::string_view source) {
  std::vector<Stranger> strangers;
  std::vector<Connections::iterator> places;
  for (auto it = connections_.begin(); it != connections_.end(); ++it) {
    if (it->known) continue;
    const auto since = static_cast<uint64_t>(it->since.time_since_epoch().count());
    strangers.push_back({it->source, {it->channel != nullptr, since}});
    places.push_back(it);
  }
  const auto who = WhoGivesWay(strangers, source, known_sources_, kStrangerLimits);
  return who ? places[*who] : connections_.end();
}

bool ControlServer::GivesWayBefore(const Connection& one, const Connection& other) {
  const auto rank = [](const Connection& each) {
    return std::tuple(each.known, each.channel != nullptr, each.since);
  };
  return rank(one) < rank(other);
}

void ControlServer::MakeRoomForKnown(const Connection& newcomer) {
  // One that was given up for an earlier newcomer is there until its turn comes.
  const auto has_place = [](const Connection& each) {
    return each.known && each.deadline != Deadline::min();
  };
  std::map<std::string_view, size_t> places;
  size_t all = 0;
  for (const Connection& each : connections_) {
    if (!has_place(each)) continue;
    ++places[each.name];
    ++all;
  }
  if (all <= kMaxConnections) return;
  const auto most =
      std::max_element(places.begin(), places.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  Connection* idle = nullptr;
  for (Connection& each : connections_) {
    if (!has_place(each) || &each == &newcomer || each.name != most->first) continue;
    if (idle == nullptr || each.since < idle->since) idle = &each;
  }
  if (idle == nullptr) return;
  // The connection is closed in its own turn, because Serve may be about to come to it.
  idle->closing = true;
  idle->deadline = Deadline::min();
}

// --- one connection

bool ControlServer::Progress(Connection& connection, short ready) {
  if (connection.closing && connection.out.empty()) return false;
  const bool waiting = connection.more && connection.out.empty();
  if (ready == 0 && !waiting) return true;
  if (!connection.out.empty()) return Flush(connection);
  return waiting ? Advance(connection) : Receive(connection);
}

bool ControlServer::Receive(Connection& connection) {
  // One piece is read at a time; the bytes behind it wait in the socket's own bounded buffer.
  std::array<std::byte, kRequestPiece> piece;
  const ssize_t got = recv(connection.fd.get(), piece.data(), piece.size(), 0);
  if (got == 0) return false;
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (connection.channel == nullptr)
    connection.channel = std::make_unique<MessageChannel>(trust_.Answer(), max_request_);
  connection.channel->Append(std::span(piece).first(static_cast<size_t>(got)));
  if (connection.deadline == Deadline::max()) connection.deadline = Clock::now() + kFrameTimeout;
  return Advance(connection);
}

bool ControlServer::Advance(Connection& connection) {
  MessageChannel& channel = *connection.channel;
  const auto message = channel.Next();
  connection.more = message.ok() && message->has_value();
  if (channel.open() && !connection.known) Welcome(connection);
  if (!message.ok()) {
    Report(connection, message.status().message());
    // The peer may have sent these bytes, or somebody on the way may have changed them.
    if (channel.open()) {
      channel.Send(EncodeFrame(MakeError(
          Unavailable(Text("the connection is disturbed: ", message.status().message())))));
    }
    connection.closing = true;
  } else if (message->has_value()) {
    if (HungUp(connection.fd)) return false;
    Handle(connection, **message);
  }
  connection.out = channel.TakeOutput();
  return Flush(connection);
}

void ControlServer::Welcome(Connection& connection) {
  connection.known = true;
  connection.name = trust_.keyed() ? connection.channel->peer().name() : connection.source;
  if (known_sources_.size() < kMaxKnownSources) known_sources_.insert(connection.source);
  connection.answering = true;
  MakeRoomForKnown(connection);
}

void ControlServer::Handle(Connection& connection, std::span<const uint8_t> message) {
  MessageChannel& channel = *connection.channel;
  const Result<BodyUnion> request = ParseMessage(message);
  std::vector<uint8_t> answer;
  if (!request.ok()) {
    Report(connection, request.status().message());
    answer = EncodeFrame(MakeError(request.status()));
    connection.closing = true;
  } else if (const Status may = trust_.CheckRequest(channel.peer(), *request); !may.ok()) {
    Report(connection, may.message());
    answer = EncodeFrame(MakeError(may));
  } else {
    answer = EncodeFrame(handler_(*request));
    if (answer.size() > kFrameHeader + kMaxReply) {
      answer =
          EncodeFrame(MakeError(InvalidArgument("the answer would be too long; ask for less")));
    }
  }
  channel.Send(answer);
  connection.answering = true;
  connection.deadline = Clock::now() + kFrameTimeout;
}

bool ControlServer::Flush(Connection& connection) {
  std::span<const std::byte> left = connection.out;
  while (!left.empty()) {
    const ssize_t sent = send(connection.fd.get(), left.data(), left.size(), MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno != EAGAIN && errno != EINTR) return false;
      const auto done = static_cast<ptrdiff_t>(connection.out.size() - left.size());
      connection.out.erase(connection.out.begin(), connection.out.begin() + done);
      return true;
    }
    left = left.subspan(static_cast<size_t>(sent));
  }
  connection.out.clear();
  if (std::exchange(connection.answering, false)) {
    connection.deadline = Deadline::max();
    connection.since = Clock::now();
  }
  return !connection.closing;
}

void ControlServer::Report(const Connection& connection, std::string_view why) {
  Report(connection.known ? std::string_view(connection.name) : "a stranger", connection.source,
         why);
}

void ControlServer::Report(std::string_view who, std::string_view source, std::string_view why) {
  if (log_ == nullptr) return;
  if (Clock::now() < report_after_) {
    ++unreported_;
    return;
  }
  report_after_ = Clock::now() + kReportInterval;
  if (unreported_ == 0)
    return LogLine(log_.get(), LogLevel::kWarn, {"refused ", who, " at ", source, ": ", why});
  std::array<char, 24> others{};
  std::to_chars(others.data(), others.data() + others.size() - 1, std::exchange(unreported_, 0));
  LogLine(log_.get(), LogLevel::kWarn,
          {"refused ", who, " at ", source, " (and ", others.data(), " others before): ", why});
}

}  // namespace hyperloop::control
