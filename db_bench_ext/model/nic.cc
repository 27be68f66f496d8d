#include "model/nic.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "rnic/wqe.h"
#include "softrnic/engine/bytes.h"
#include "softrnic/links/packet.h"

namespace hyperloop::model {
namespace {

using softrnic::LinkEvent;
using softrnic::LinkId;
using softrnic::PacketType;

// How often the engine looks at its timers.
constexpr Nanoseconds kTimerNs = 1'000'000;

uint8_t OpcodeOf(const std::byte* wqe) { return static_cast<uint8_t>(wqe[3]); }
uint32_t SegmentsOf(const std::byte* wqe) { return static_cast<uint32_t>(wqe[7]) & 63; }
bool IsSend(uint8_t opcode) { return opcode == rnic::kWqeSend || opcode == rnic::kWqeSendImm; }
bool IsWrite(uint8_t opcode) { return opcode == rnic::kWqeWrite || opcode == rnic::kWqeWriteImm; }

constexpr uint32_t kInlineBit = 1u << 31;  // of a data segment's byte count

// The byte count of a SEND's or WRITE's first data segment; 0: it has none.
uint32_t ByteCount(const std::byte* wqe) {
  const uint8_t opcode = OpcodeOf(wqe);
  if (!IsSend(opcode) && !IsWrite(opcode)) return 0;
  const uint32_t segment = IsSend(opcode) ? 1 : 2;
  return SegmentsOf(wqe) > segment ? softrnic::LoadBe32(wqe + size_t{segment} * rnic::kSegmentBytes)
                                   : 0;
}

}  // namespace

Nic::Nic(const Costs& costs, Timeline& timeline)
    : costs_(costs), timeline_(timeline), units_(Rounded(costs.units)) {
  softrnic::EngineOptions options;
  options.now_ns = [this] { return timeline_.now(); };
  options.test.steps = softrnic::PacedBy(this);
  rnic_ = std::make_unique<softrnic::EmbeddedRnic>(options);
  rnic_->engine().AttachPort(this);
}

Status Nic::Route(const std::string& host, Nic& peer) {
  const LinkId here = next_link_++, there = peer.next_link_++;
  HL_RETURN_IF_ERROR(rnic_->engine().AddRoute(host, here));
  peers_[here] = {.nic = &peer, .there = there};
  peer.peers_[there] = {.nic = this, .there = here};
  inbox_.push_back({{LinkEvent::Kind::kUp, here}, {}});
  return Status::Ok();
}

void Nic::RingAt(Nanoseconds at) {
  doorbell_ = at;
  Run();
}

void Nic::RunAt(Nanoseconds at) {
  if (wakes_at_ != 0 && wakes_at_ <= at) return;
  wakes_at_ = at;
  timeline_.At(at, [this, at] {
    if (at == wakes_at_) Run();
  });
}

void Nic::Run() {
  const Nanoseconds now = timeline_.now();
  wakes_at_ = 0;
  bool worked = false;
  do {
    effect_ = now;
    waits_until_ = 0;
    worked |= !inbox_.empty();
  } while (rnic_->engine().Run(1) != 0 && (worked = true));
  if (waits_until_ != 0) RunAt(waits_until_);
  if (rnic_->engine().RetryPending()) RunAt(now + kTimerNs);
  if (!worked || !on_anything) return;
  on_anything(std::max(now, last_effect_) + Rounded(costs_.pcie_write_ns));
}

// The unit that is free first takes something that is there at `from`. Returns when it is done.
Nanoseconds Nic::TakeUnit(Nanoseconds from, double ns) {
  Nanoseconds& unit = *std::ranges::min_element(units_);
  unit = std::max(unit, from) + Rounded(ns);
  return unit;
}

// --- the queues

void Nic::Look(const Queue& queue) {
  SendQueue& state = queues_[queue.qpn];
  if (!std::exchange(state.known, true)) state.producer = queue.consumer;
  if (queue.producer != state.producer) {
    const Nanoseconds told = queue.managed ? effect_ : std::max(effect_, doorbell_);
    Nanoseconds there = told + Rounded(costs_.pcie_read_ns);
    if (!state.fetches.empty()) there = std::max(there, state.fetches.back().at);
    state.fetches.push_back({queue.producer, there});
    state.producer = queue.producer;
  }
  if (queue.ready && !state.ready) state.next = std::max(state.next, effect_);
  state.ready = queue.ready;
}

Nanoseconds Nic::RunsAt(const Queue& queue) {
  SendQueue& state = queues_[queue.qpn];
  std::deque<SendQueue::Fetch>& fetches = state.fetches;
  while (!fetches.empty() &&
         static_cast<uint16_t>(fetches.front().end - queue.consumer - 1) >= 0x8000)
    fetches.pop_front();
  const Nanoseconds there = fetches.empty() ? 0 : fetches.front().at;
  return std::max({state.next, there, *std::ranges::min_element(units_)});
}

bool Nic::Begin(const Queue& queue, Nanoseconds runs_at) {
  if (runs_at > timeline_.now()) {
    waits_until_ = runs_at;
    return false;
  }
  const uint32_t count = ByteCount(queue.wqe);
  running_ = {.qpn = queue.qpn,
              .remote = queue.remote,
              .opcode = OpcodeOf(queue.wqe),
              .inline_payload = (count & kInlineBit) != 0,
              .bytes = count & ~kInlineBit};
  executes_ = true;
  effect_ = timeline_.now() + Rounded(costs_.wqe_ns);
  return true;
}

void Nic::End(bool done) {
  executes_ = false;
  if (!done) {
    effect_ = timeline_.now();
    return;
  }
  ++wqes_;
  const double loopback = LoopbackNs();
  TakeUnit(timeline_.now(), costs_.wqe_ns);
  if (loopback != 0) TakeUnit(timeline_.now(), costs_.request_ns);
  effect_ = timeline_.now() + Rounded(costs_.wqe_ns + loopback);
  last_effect_ = std::max(last_effect_, effect_);
  queues_[running_.qpn].next = effect_;
}

// How long a request to the queue's own node takes after its WQE has run; 0: it is no such request.
double Nic::LoopbackNs() const {
  const uint8_t opcode = running_.opcode;
  if (running_.remote) return 0;
  if (opcode == rnic::kWqeRead || opcode == rnic::kWqeCompareSwap || opcode == rnic::kWqeFetchAdd)
    return costs_.request_ns + costs_.pcie_read_ns + costs_.pcie_write_ns;
  if (!IsSend(opcode) && !IsWrite(opcode)) return 0;
  return costs_.request_ns + (running_.inline_payload ? 0 : costs_.pcie_read_ns) +
         costs_.pcie_write_ns + Costs::Transfer(running_.bytes, costs_.pcie_gbps);
}

// --- the wire

void Nic::Send(LinkId link, std::span<const std::byte> bytes) {
  const auto packet = softrnic::ParsePacket(bytes);
  if (!packet.ok()) return;
  Nanoseconds ready = executes_ ? effect_ : timeline_.now();
  switch (packet->type) {
    case PacketType::kSend:
    case PacketType::kWrite:
      ++requests_;
      if (!packet->payload.empty() && !(executes_ && running_.inline_payload))
        ready += Rounded(costs_.pcie_read_ns);
      break;
    case PacketType::kRead:
    case PacketType::kCompareSwap:
    case PacketType::kFetchAdd:
      ++requests_;
      ++round_trips_;
      break;
    case PacketType::kReadResponse:
    case PacketType::kAtomicResponse:
      ready += Rounded(costs_.pcie_read_ns);
      break;
    default:
      break;
  }
  const auto payload = static_cast<double>(packet->payload.size());
  const double packets = std::max(1.0, std::ceil(payload / costs_.mtu_bytes));
  const double wire_bytes = payload + packets * costs_.header_bytes;
  Peer& peer = peers_.at(link);
  peer.ready = std::max(peer.ready, ready);
  timeline_.At(peer.ready, [this, link, wire_bytes,
                            copy = std::vector<std::byte>(bytes.begin(), bytes.end())]() mutable {
    Transmit(link, std::move(copy), wire_bytes);
  });
}

void Nic::Transmit(LinkId link, std::vector<std::byte> packet, double wire_bytes) {
  const double rate = std::min(costs_.link_gbps, costs_.pcie_gbps);
  wire_free_ = std::max(wire_free_, timeline_.now()) + Rounded(Costs::Transfer(wire_bytes, rate));
  const Peer& peer = peers_.at(link);
  timeline_.At(wire_free_ + Rounded(costs_.hop_ns),
               [to = peer.nic, there = peer.there, copy = std::move(packet)]() mutable {
                 to->Arrive(there, std::move(copy));
               });
}

void Nic::Arrive(LinkId link, std::vector<std::byte> packet) {
  const auto parsed = softrnic::ParsePacket(packet);
  if (!parsed.ok()) return;
  const bool request = softrnic::IsRequest(parsed->type);
  const bool message = parsed->type == PacketType::kSend ||
                       (parsed->flags & softrnic::kPacketImm) != 0 ||
                       (parsed->type == PacketType::kWrite && parsed->addr >= polled.begin &&
                        parsed->addr < polled.end);
  const Nanoseconds at = request ? TakeUnit(timeline_.now(), costs_.request_ns) : timeline_.now();
  timeline_.At(at, [this, link, message, copy = std::move(packet)]() mutable {
    inbox_.push_back({{LinkEvent::Kind::kPacket, link}, std::move(copy)});
    Run();
    if (message && on_message) on_message(timeline_.now() + Rounded(costs_.pcie_write_ns));
  });
}

bool Nic::Receive(LinkEvent* event) {
  if (inbox_.empty()) return false;
  *event = inbox_.front().event;
  received_ = std::move(inbox_.front().packet);
  event->packet = received_;
  inbox_.pop_front();
  return true;
}

}  // namespace hyperloop::model
