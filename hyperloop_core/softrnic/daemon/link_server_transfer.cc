// The traffic of the LinkServer's connections: frames in, frames out, and signs of life.
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "softrnic/daemon/link_connection.h"
#include "softrnic/links/packet.h"

namespace hyperloop::softrnic {
namespace {

constexpr size_t kReadBytes = 256 << 10;
constexpr size_t kPiecesAtOnce = 16;

// The length of the packet's frame or of its answer's, whichever is longer.
uint64_t BytesInFlight(const Packet& p) {
  uint64_t body = p.payload.size();
  if (p.type == PacketType::kRead) body = p.length;
  if (p.type == PacketType::kServiceRequest) body = kMaxServiceReply;
  return kPacketHeaderBytes + body + identity::SecureChannel::FrameOverhead(true);
}

}  // namespace

void LinkServer::HandleConnection(Connection& c, uint32_t events) {
  // epoll is level-triggered, so the rest is reported again, after the others.
  if (c.stranger() && (events & EPOLLIN) != 0 && introductions_-- <= 0) return;
  if (c.connecting) {
    if (!Connected(c)) return;
  } else if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
    if (!ReadFrom(c)) return;
  }
  if (c.unsent() != 0 && !WriteTo(c)) return;
  Watch(c);
}

// False: the connection is gone.
bool LinkServer::ReadFrom(Connection& c) {
  static thread_local std::vector<std::byte> buffer(kReadBytes);
  const ssize_t n = recv(c.socket.get(), buffer.data(), buffer.size(), 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (n <= 0) {
    Close(c.serial, n == 0 ? "it closed the connection" : std::strerror(errno));
    return false;
  }
  c.heard = SteadyClock::now();
  Count(&counters_.bytes_received, static_cast<uint64_t>(n));
  c.channel.Append(std::span(buffer).first(static_cast<size_t>(n)));
  return TakeFrames(c);
}

// Hands the engine the packets that have arrived whole, as far as it may be handed more. False: the
// connection is gone.
bool LinkServer::TakeFrames(Connection& c) {
  const bool was_open = c.channel.open();
  if (c.stranger() && !std::exchange(c.spoke, true)) RefreshKeys();
  Arrival packets;
  uint64_t taken = 0;  // bytes of them
  Status status;
  bool life = false;
  const std::vector<std::byte> kept = std::exchange(c.kept, {});
  std::span<const std::byte> frame = kept;  // what is left of it
  for (;;) {
    c.more = c.channel.open() && !MayHandOver(c, taken);
    if (c.more) break;
    if (frame.empty()) {
      const auto next = c.channel.Next();
      if (!next.ok()) {
        status = next.status();
        break;
      }
      if (!was_open && c.channel.open() && c.link == kNoLink) Opened(c);
      if (!next->has_value()) break;
      Count(&counters_.frames_received, 1);
      frame = **next;
      life |= frame.empty();
      if (const size_t bytes = packets.packets.size() + frame.size();
          bytes > packets.packets.capacity())
        packets.packets.reserve(std::max(bytes, 2 * packets.packets.capacity()));
      continue;
    }
    const std::span<const std::byte> before = frame;
    const auto packet = TakePacket(&frame);
    if (!packet.ok()) {
      status = packet.status();
      break;
    }
    bool refused = false;
    status = JudgePacket(c, *packet, &refused);
    if (!status.ok()) break;
    if (refused) continue;
    const size_t length = before.size() - frame.size();
    const uint64_t bytes = BytesInFlight(*packet);
    packets.packets.insert(packets.packets.end(), before.begin(),
                           before.begin() + static_cast<ptrdiff_t>(length));
    packets.pieces.push_back({length, bytes});
    taken += bytes;
  }
  if (c.more) c.kept.assign(frame.begin(), frame.end());
  const auto introduction = c.channel.TakeOutput();
  c.out.Append(introduction);
  if (Neighbour* const neighbour = NeighbourOf(c))
    neighbour->queued.fetch_add(static_cast<int64_t>(introduction.size()));
  HandOver(c, std::move(packets), taken);
  if (!status.ok()) {
    // Tries to tell the other end the reason.
    [[maybe_unused]] const ssize_t told = SendSome(c);
    if (!c.channel.open()) Count(&counters_.refused, 1);
    Close(c.serial, status.message());
    return false;
  }
  if (!was_open && c.channel.open() && c.dialed) Opened(c);
  if (life && !c.dialed) SignOfLife(c);
  return true;
}

// Neighbours send requests on the connections that they made, and answers on the others. With keys
// they may make requests only in the name of hosts that they have proved to be. Sets `refused` for
// a packet that must not go to the engine. An error ends the connection.
Status LinkServer::JudgePacket(Connection& c, const Packet& packet, bool* refused) {
  if (IsRequest(packet.type) == c.dialed)
    return Corruption(c.dialed ? "a request where only answers belong"
                               : "an answer where only requests belong");
  const auto claimed = ClaimedPrefix(packet);
  *refused = options_.keys != nullptr && claimed.has_value() && !Proves(c, *claimed);
  if (*refused) RefuseClaim(c, packet);
  return {};
}

// Whether the other end may speak for the host with this GID prefix. What `trusted` has added since
// the connection began counts. What it loses ends the connection (LookAtTrusted).
bool LinkServer::Proves(Connection& c, uint64_t prefix) {
  if (c.proven.contains(prefix)) return true;
  const auto now = SteadyClock::now();
  if (now < read_keys_at_) return false;
  read_keys_at_ = now + std::chrono::milliseconds(100);
  RefreshKeys();
  const auto peer = options_.keys->Find(c.channel.peer().lines().front().key);
  if (peer.has_value()) TakeNames(c, *peer);
  return c.proven.contains(prefix);
}

// The connection goes on, because the neighbour may serve other hosts for which it may speak.
void LinkServer::RefuseClaim(Connection& c, const Packet& packet) {
  const std::string known = NameOf(*ClaimedPrefix(packet));
  const std::string host = known.empty() ? "HOST" : known;
  const std::string why =
      c.channel.peer().names() + " speaks for host " + (known.empty() ? "" : known + ", ") +
      (known.empty() ? "that its key is not trusted as" : "which its key is not trusted as") +
      ". On the machine of " + options_.keys->name() + ": " +
      options_.keys->TrustCommand(host, c.channel.peer().lines().front().key, identity::kRoleLink);
  Count(&counters_.claims_refused, 1);
  refusals_.Note(c.name, why, c.source);
  Packet reply{.type = PacketType::kRefuse,
               .dest_qpn = packet.source_qpn,
               .source_qpn = packet.dest_qpn,
               .session = packet.session};
  if (packet.type == PacketType::kServiceRelease || packet.source_qpn == 0) return;
  if (packet.type == PacketType::kServiceRequest) {
    reply.type = PacketType::kServiceReply;
    reply.source_qpn = 0;
    reply.syndrome = static_cast<uint8_t>(Code::kPermissionDenied);
    const size_t most = std::min<size_t>(why.size(), kMaxServiceReply);
    reply.payload = std::as_bytes(std::span(why).first(most));
  } else if (packet.dest_qpn == 0) {
    return;
  }
  c.out.Append([&](auto* piece) { c.channel.Seal(EncodePacket(reply), piece); });
  Count(&counters_.frames_sent, 1);
}

// Hands over all packets, or none if memory runs out.
void LinkServer::HandOver(Connection& c, Arrival packets, uint64_t bytes) {
  if (packets.pieces.empty()) return;
  packets.event = {LinkEvent::Kind::kPacket, c.link};
  Arrivals arrivals;
  arrivals.push_back(std::move(packets));
  in_flight_.emplace_back(c.serial, bytes);
  c.in_flight += bytes;
  handed_.fetch_add(bytes);
  PushEvents(std::move(arrivals));
}

// An answer for which there is no room would have to be dropped. So its request waits instead,
// here, in the socket or at the neighbour. `taken`: bytes that are about to be handed over.
bool LinkServer::MayHandOver(const Connection& c, uint64_t taken) {
  const bool much = c.dialed || answer_bytes_ < kAllAnswerBytes;
  const size_t most = much ? kConnectionAnswerBytes : kLeastAnswerBytes;
  const size_t longest = kMaxPacketBytes + identity::SecureChannel::FrameOverhead(true);
  if (handed_.load() + taken - answered_ < kLinkInFlightBytes &&
      c.unsent() + c.in_flight + taken + longest <= most)
    return true;
  if (taken == 0 && in_flight_.empty()) return false;  // until a socket takes some
  // Pairs with Flush: either the engine's thread sees starved_, or this one sees done_.
  starved_.store(true);
  if (done_.load() != answered_) WakeThread();
  return false;
}

ssize_t LinkServer::SendSome(Connection& c) {
  std::array<iovec, kPiecesAtOnce> pieces;
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = c.out.Front(pieces);
  return sendmsg(c.socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool LinkServer::WriteTo(Connection& c) {
  while (c.unsent() != 0) {
    const ssize_t n = SendSome(c);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n < 0) {
      Close(c.serial, std::strerror(errno));
      return false;
    }
    c.out.Drop(static_cast<size_t>(n));
    c.said = SteadyClock::now();
    // The other end's TCP takes bytes, so that end is there. What it says may have to wait here.
    if (!c.dialed) c.heard = c.said;
    Count(&counters_.bytes_sent, static_cast<uint64_t>(n));
    Neighbour* const neighbour = NeighbourOf(c);
    if (neighbour == nullptr) continue;
    const int64_t left = neighbour->queued.fetch_sub(n) - n;
    if (left >= kLinkQueueBytes / 2 || !neighbour->wants_room.exchange(false)) continue;
    Arrivals room;
    room.push_back({.event = {LinkEvent::Kind::kRoom, c.link}});
    PushEvents(std::move(room));
  }
  return true;
}

void LinkServer::SignOfLife(Connection& c) {
  const size_t before = c.unsent();
  c.out.Append([&c](auto* piece) { c.channel.Seal({}, piece); });
  if (Neighbour* const neighbour = NeighbourOf(c))
    neighbour->queued.fetch_add(static_cast<int64_t>(c.unsent() - before));
  Count(&counters_.frames_sent, 1);
  c.said = SteadyClock::now();
  Watch(c);
}

// Moves the engine's packets to their connections. A packet whose connection is gone is dropped:
// the engine sends requests again, and neighbours ask for answers again.
void LinkServer::TakeOutbox() {
  Packets packets;
  CountAnswered();
  {
    MutexLock lock(mutex_);
    packets.swap(outbox_);
    has_outbox_.store(false);
  }
  for (Batch& batch : packets) {
    const size_t bytes = batch.packets.size();
    bool taken = false;
    if (Connection* const c = OpenConnectionOf(batch.link))
      taken = Guard(*c, [&] {
        sockets_.known_held();
        AddToFrame(*c, batch);
      });
    Neighbour* const neighbour = taken ? nullptr : NeighbourAt(batch.link);
    if (neighbour != nullptr) neighbour->queued.fetch_sub(static_cast<int64_t>(bytes));
  }
  using enum Connection::Urgency;
  for (const auto urgency : {kRequestsAwaited, kAnswers, kRequests}) {
    for (auto it = connections_.begin(); it != connections_.end();) {
      Connection& c = *(it++)->second;  // it may be closed
      if (c.frame.empty() || c.urgency() != urgency) continue;
      Guard(c, [&] {
        sockets_.known_held();
        SealFrame(c);
        c.awaited = false;
        if (WriteTo(c)) Watch(c);
      });
    }
  }
}

void LinkServer::AddToFrame(Connection& c, Batch& batch) {
  if (!c.frame.empty() && c.frame.size() + batch.packets.size() > kFullFrameBytes) SealFrame(c);
  c.awaited |= batch.awaited;
  if (c.frame.empty()) return c.frame.swap(batch.packets);
  c.frame.insert(c.frame.end(), batch.packets.begin(), batch.packets.end());
}

// Makes a frame of the packets that were collected for it.
void LinkServer::SealFrame(Connection& c) {
  c.out.Append([&c](auto* piece) { c.channel.Seal(c.frame, piece); });
  c.frame.clear();
  Count(&counters_.frames_sent, 1);
  if (Neighbour* const neighbour = NeighbourOf(c))
    neighbour->queued.fetch_add(
        static_cast<int64_t>(identity::SecureChannel::FrameOverhead(options_.keys != nullptr)));
}

// Null: no open connection belongs to the link.
LinkServer::Connection* LinkServer::OpenConnectionOf(LinkId link) {
  uint64_t serial = 0;
  if (const Neighbour* const neighbour = NeighbourAt(link)) {
    if (neighbour->id == link) serial = neighbour->connection;
  } else if (const auto it = incoming_.find(link); it != incoming_.end()) {
    serial = it->second;
  }
  const auto found = connections_.find(serial);
  return found != connections_.end() && found->second->channel.open() ? found->second.get()
                                                                      : nullptr;
}

// Call before the outbox is emptied: the answers that it counts are in the outbox.
void LinkServer::CountAnswered() {
  for (uint64_t bytes = done_.load() - answered_; bytes != 0;) {
    auto& [serial, left] = in_flight_.front();
    const uint64_t n = std::min(left, bytes);
    if (const auto it = connections_.find(serial); it != connections_.end())
      it->second->in_flight -= n;
    answered_ += n;
    bytes -= n;
    left -= n;
    if (left == 0) in_flight_.pop_front();
  }
}

void LinkServer::Watch(Connection& c) {
  const uint32_t wanted =
      (c.more || c.connecting ? 0u : EPOLLIN) | (c.unsent() != 0 || c.connecting ? EPOLLOUT : 0u);
  if (wanted == c.watched) return;
  epoll_event event{};
  event.events = wanted;
  event.data.u64 = c.serial;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, c.socket.get(), &event) != 0)
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, c.socket.get(), &event);
  c.watched = wanted;
}

// Resumes connections whose packets had to wait, beginning behind the one that was resumed last.
void LinkServer::ResumeReading() {
  size_t unsent = 0;
  answer_bytes_ = 0;
  for (auto& [serial, c] : connections_) {
    if (c->dialed) continue;
    unsent += c->unsent();
    answer_bytes_ += c->unsent() + c->in_flight;
  }
  counters_.answer_bytes.store(unsent, std::memory_order_relaxed);
  auto next = connections_.upper_bound(resumed_);
  for (size_t left = connections_.size(); left != 0; --left) {
    if (next == connections_.end()) next = connections_.begin();
    Connection& c = *(next++)->second;  // it may be closed
    if (!c.more) continue;
    const uint64_t serial = c.serial;
    const uint64_t before = handed_.load(std::memory_order_relaxed);
    Guard(c, [&] {
      sockets_.known_held();
      TakeFrames(c);
    });
    if (handed_.load(std::memory_order_relaxed) != before) resumed_ = serial;
  }
  for (auto& [serial, c] : connections_) Watch(*c);
}

}  // namespace hyperloop::softrnic
