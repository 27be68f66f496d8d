// What passes the LinkServer's connections: frames in, frames out, and the signs of life between.
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "softrnic/daemon/link_connection.h"
#include "softrnic/links/packet.h"

namespace hyperloop::softrnic {
namespace {

constexpr size_t kMaxAnswerBytes = 4 << 20;  // of one connection, before its requests wait
constexpr size_t kReadBytes = 256 << 10;

}  // namespace

void LinkServer::HandleConnection(uint64_t serial, uint32_t events) {
  const auto found = connections_.find(serial);
  if (found == connections_.end()) return;
  Connection& c = *found->second;
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
  c.heard = Clock::now();
  Count(&counters_.bytes_received, static_cast<uint64_t>(n));
  c.channel.Append(std::span(buffer).first(static_cast<size_t>(n)));
  const bool was_open = c.channel.open();
  std::vector<LinkEvent> packets;
  size_t bytes = 0;
  Status status;
  bool life = false;
  for (;;) {
    const auto frame = c.channel.Next();
    if (!frame.ok()) {
      status = frame.status();
      break;
    }
    if (!was_open && c.channel.open() && c.link == kNoLink) Opened(c);
    if (!frame->has_value()) break;
    Count(&counters_.frames_received, 1);
    if ((*frame)->empty()) {
      life = true;
      continue;
    }
    const auto packet = ParsePacket(**frame);
    if (!packet.ok()) {
      status = packet.status();
      break;
    }
    packets.push_back({LinkEvent::Kind::kPacket, c.link, {(*frame)->begin(), (*frame)->end()}});
    bytes += (*frame)->size();
  }
  const auto introduction = c.channel.TakeOutput();
  if (Peer* const peer = PeerOf(c))
    peer->queued.fetch_add(static_cast<int64_t>(introduction.size()));
  c.out.insert(c.out.end(), introduction.begin(), introduction.end());
  PushEvents(std::move(packets), bytes);
  if (!status.ok()) {
    // So that the other end learns why, as far as it can.
    [[maybe_unused]] ssize_t told =
        send(c.socket.get(), c.out.data() + c.written, c.unsent(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (!c.channel.open()) Count(&counters_.refused, 1);
    Close(c.serial, status.message());
    return false;
  }
  if (!was_open && c.channel.open() && c.dialed) Opened(c);
  if (life && !c.dialed) SignOfLife(c);
  if (inbox_bytes_.load() > kLinkInboxBytes) {
    paused_.store(true);
    if (!has_inbox_.load()) paused_.store(false);  // emptied in between: nobody would wake us
  }
  return true;
}

bool LinkServer::WriteTo(Connection& c) {
  while (c.unsent() != 0) {
    const ssize_t n =
        send(c.socket.get(), c.out.data() + c.written, c.unsent(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n < 0) {
      Close(c.serial, std::strerror(errno));
      return false;
    }
    c.written += static_cast<size_t>(n);
    c.said = Clock::now();
    Count(&counters_.bytes_sent, static_cast<uint64_t>(n));
    Peer* const peer = PeerOf(c);
    if (peer == nullptr) continue;
    const int64_t left = peer->queued.fetch_sub(n) - n;
    if (left < kLinkQueueBytes / 2 && peer->wants_room.exchange(false))
      PushEvents({{LinkEvent::Kind::kRoom, c.link, {}}}, 0);
  }
  if (c.written > (1 << 20) || c.unsent() == 0) {
    c.out.erase(c.out.begin(), c.out.begin() + static_cast<ptrdiff_t>(c.written));
    c.written = 0;
  }
  return true;
}

void LinkServer::SignOfLife(Connection& c) {
  const size_t before = c.out.size();
  c.channel.Seal({}, &c.out);
  if (Peer* const peer = PeerOf(c))
    peer->queued.fetch_add(static_cast<int64_t>(c.out.size() - before));
  Count(&counters_.frames_sent, 1);
  c.said = Clock::now();
  Watch(c);
}

// What the engine sent goes to its connections. What has none any more is dropped, and answers that
// a peer does not take: requests are sent again, answers asked for again.
void LinkServer::TakeOutbox() {
  std::vector<std::pair<LinkId, PacketBytes>> packets;
  {
    std::lock_guard lock(mutex_);
    packets.swap(outbox_);
  }
  std::vector<uint64_t> touched;
  for (auto& [link, packet] : packets) {
    uint64_t serial = 0;
    const bool ours = link < kIncomingLinks;
    if (ours) {
      serial = peers_[link - 1]->connection;
    } else if (const auto it = incoming_.find(link); it != incoming_.end()) {
      serial = it->second;
    }
    const auto found = connections_.find(serial);
    if (found == connections_.end() || !found->second->channel.open()) {
      if (ours)
        peers_[link - 1]->queued.fetch_sub(static_cast<int64_t>(
            packet->size() + LinkChannel::FrameOverhead(options_.key.has_value())));
      continue;
    }
    Connection& c = *found->second;
    if (!ours && c.unsent() > kLinkAnswerBytes) {
      Count(&counters_.answers_dropped, 1);
      continue;
    }
    c.channel.Seal(*packet, &c.out);
    Count(&counters_.frames_sent, 1);
    if (touched.empty() || touched.back() != serial) touched.push_back(serial);
  }
  for (const uint64_t serial : touched) {
    const auto found = connections_.find(serial);
    if (found != connections_.end() && WriteTo(*found->second)) Watch(*found->second);
  }
}

void LinkServer::Watch(Connection& c) {
  // A connection whose answers are not taken gets no more requests run.
  const bool reads = !paused_.load() && c.unsent() < kMaxAnswerBytes;
  const uint32_t wanted =
      (reads && !c.connecting ? EPOLLIN : 0u) | (c.unsent() != 0 || c.connecting ? EPOLLOUT : 0u);
  if (wanted == c.watched && wanted != 0) return;
  epoll_event event{};
  event.events = wanted;
  event.data.u64 = c.serial;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, c.socket.get(), &event) != 0)
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, c.socket.get(), &event);
  c.watched = wanted;
}

void LinkServer::ResumeReading() {
  for (auto& [serial, c] : connections_) Watch(*c);
}

}  // namespace hyperloop::softrnic
