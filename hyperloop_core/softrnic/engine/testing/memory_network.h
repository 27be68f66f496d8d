// A network in memory, for tests. The test decides when the bytes of a link between two engines
// move, and can delay, cut, heal and reset the link at any byte.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/frame_reader.h"
#include "softrnic/engine/engine.h"
#include "softrnic/links/packet.h"

namespace hyperloop::softrnic {

class MemoryNetwork {
 public:
  class Port;

  // One configured link: requests from `from` to `to`, and their answers. As over TCP, bytes arrive
  // in order; a reset of the link loses what is under way in both directions.
  struct Link {
    Port* from = nullptr;
    Port* to = nullptr;
    LinkId id = kNoLink;        // at `from`
    LinkId incoming = kNoLink;  // at `to`; another one after each reset
    bool up = true;
    bool cut = false;
    std::deque<std::byte> requests, answers;
    std::unique_ptr<FrameReader> request_reader, answer_reader;
    uint64_t bytes_delivered = 0;
    uint64_t resets = 0;

    size_t under_way() const { return requests.size() + answers.size(); }
  };

  class Port final : public LinkPort {
   public:
    explicit Port(MemoryNetwork* network) : network_(network) {}
    bool Ready(LinkId id) override {
      Link* const link = network_->Find(this, id);
      if (link == nullptr || !link->up) return false;
      if (link->requests.size() < network_->room) return true;
      wants_room_ = true;
      return false;
    }
    void Send(LinkId id, std::span<const std::byte> packet) override {
      network_->Send(this, id, packet);
    }
    void Flush() override {}
    bool Receive(LinkEvent* event) override {
      if (events_.empty()) return false;
      *event = events_.front().event;
      received_ = std::move(events_.front().packet);
      event->packet = received_;
      route_ = std::move(events_.front().route);
      event->route = &route_;
      events_.pop_front();
      return true;
    }
    bool Pending() const override { return !events_.empty(); }
    // From now on `link` leads to `host`, or none does.
    void SetRoute(const std::string& host, LinkId link) {
      LinkEvent event{LinkEvent::Kind::kRoute, link};
      event.prefix = GidPrefix(host);
      events_.push_back({event, {}, MakeRoute(event.prefix, link)});
    }

   private:
    friend class MemoryNetwork;
    MemoryNetwork* const network_;
    struct Arrival {
      LinkEvent event;
      std::vector<std::byte> packet;
      Route route{};
    };
    std::deque<Arrival> events_;
    std::vector<std::byte> received_;  // the packet of the last event
    Route route_;                      // of the last event
    bool wants_room_ = false;
  };

  // A link takes no more requests while it holds so many bytes of them.
  size_t room = 256 << 10;

  Port* AddPort() { return ports_.emplace_back(std::make_unique<Port>(this)).get(); }
  Link& Connect(Port* from, Port* to) {
    Link& link = *links_.emplace_back(std::make_unique<Link>());
    link.from = from, link.to = to;
    link.id = next_id_++;
    Open(link);
    return link;
  }
  std::vector<std::unique_ptr<Link>>& links() { return links_; }
  const std::vector<std::unique_ptr<Link>>& links() const { return links_; }
  // Bytes on all links.
  size_t under_way() const { return under_way_; }

  // Moves up to `bytes` bytes in one direction. Returns how many it moved.
  size_t Deliver(Link& link, bool requests, size_t bytes) {
    if (!link.up || link.cut) return 0;
    std::deque<std::byte>& stream = requests ? link.requests : link.answers;
    FrameReader& reader = requests ? *link.request_reader : *link.answer_reader;
    bytes = std::min(bytes, stream.size());
    const std::vector<std::byte> moved(stream.begin(), stream.begin() + static_cast<long>(bytes));
    stream.erase(stream.begin(), stream.begin() + static_cast<long>(bytes));
    link.bytes_delivered += bytes;
    under_way_ -= bytes;
    reader.Append(moved);
    Port& to = requests ? *link.to : *link.from;
    for (auto frame = reader.Next(); frame.ok() && frame->has_value(); frame = reader.Next())
      to.events_.push_back({{LinkEvent::Kind::kPacket, requests ? link.incoming : link.id},
                            {(*frame)->begin(), (*frame)->end()}});
    if (requests && link.requests.size() < room && std::exchange(link.from->wants_room_, false))
      link.from->events_.push_back({{LinkEvent::Kind::kRoom, link.id}, {}});
    return bytes;
  }
  // Lets all bytes under way arrive. Returns their number.
  size_t DeliverAll() {
    size_t moved = 0;
    for (auto& link : links_)
      moved += Deliver(*link, true, SIZE_MAX) + Deliver(*link, false, SIZE_MAX);
    return moved;
  }
  // Breaks the connection; `Open` makes another.
  void Reset(Link& link) {
    link.up = false;
    ++link.resets;
    Lose(link, /*requests=*/true);
    Lose(link, /*requests=*/false);
  }
  // Loses the bytes of one direction that are under way.
  void Lose(Link& link, bool requests) {
    std::deque<std::byte>& stream = requests ? link.requests : link.answers;
    under_way_ -= stream.size();
    stream.clear();
  }
  void Open(Link& link) {
    link.up = true;
    link.incoming = next_id_++;
    link.request_reader = std::make_unique<FrameReader>(kMaxPacketBytes);
    link.answer_reader = std::make_unique<FrameReader>(kMaxPacketBytes);
    link.from->events_.push_back({{LinkEvent::Kind::kUp, link.id}, {}});
  }

 private:
  Link* Find(const Port* from, LinkId id) {
    for (auto& link : links_)
      if (link->from == from && link->id == id) return link.get();
    return nullptr;
  }
  void Send(Port* port, LinkId id, std::span<const std::byte> packet) {
    for (auto& link : links_) {
      if (!link->up) continue;
      std::deque<std::byte>* stream = nullptr;
      if (link->from == port && link->id == id) stream = &link->requests;
      if (link->to == port && link->incoming == id) stream = &link->answers;
      if (stream == nullptr) continue;
      std::vector<std::byte> frame;
      AppendFrame(packet, &frame);
      stream->insert(stream->end(), frame.begin(), frame.end());
      under_way_ += frame.size();
    }
  }

  std::vector<std::unique_ptr<Port>> ports_;
  std::vector<std::unique_ptr<Link>> links_;
  LinkId next_id_ = 1;
  size_t under_way_ = 0;
};

}  // namespace hyperloop::softrnic
