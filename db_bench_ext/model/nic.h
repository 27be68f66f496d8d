// Nic: one node's RNIC under the clock of a model. The engine is the product's: it decodes, checks
// and runs every WQE, and speaks its packets with the engines of the other nodes. The Nic decides
// when: it is the engine's Pacer, its LinkPort and its clock.
//
//   what                      when
//   a doorbell, an enable     the WQEs up to the new index come by one PCIe read
//   a WQE                     when it is there, its queue's one before has run, and a processing
//                             unit is free, which it then takes for wqe_ns
//   a request leaves          after wqe_ns, and a PCIe read of its payload unless that is inline;
//                             then it takes the wire for its bytes, and arrives hop_ns later
//   a request arrives         when a unit has had it for request_ns
//   an answer leaves          at once, or after a PCIe read (READ, atomics)
//   a request to itself       as one that leaves and one that arrives, without the wire; the queue
//                             waits for its end
//
// Fences, WAITs, limits and errors are the engine's own: a queue that waits for an answer goes on
// when the engine has taken the packet with that answer.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/costs.h"
#include "model/timeline.h"
#include "softrnic/embedded/embedded.h"
#include "softrnic/engine/pacer.h"
#include "softrnic/links/link_port.h"

namespace hyperloop::model {

class Nic final : private softrnic::Pacer, private softrnic::LinkPort {
 public:
  // `costs` and `timeline` outlive it.
  Nic(const Costs& costs, Timeline& timeline);

  Result<std::unique_ptr<rnic::Device>> OpenDevice(const std::string& host) {
    return rnic_->OpenDevice(host);
  }
  // Requests for the emulated host `host` go to `peer`. Both before any device is opened.
  Status Route(const std::string& host, Nic& peer);
  // The node's processor has just rung doorbells, which reach the RNIC at `at`.
  void RingAt(Nanoseconds at);
  // Called when a message has arrived, and when anything has; with the moment at which the
  // processor can see it. A message is a SEND, a WRITE with an immediate, or one into `polled`.
  std::function<void(Nanoseconds)> on_message, on_anything;
  struct {
    uint64_t begin = 0, end = 0;
  } polled;  // memory in which the processor looks for messages

  uint64_t wqes() const { return wqes_; }
  // Packets sent: requests, and READs and atomics among them.
  uint64_t requests() const { return requests_; }
  uint64_t round_trips() const { return round_trips_; }

 private:
  struct SendQueue {
    bool known = false;
    bool ready = false;
    uint16_t producer = 0;
    Nanoseconds next = 0;  // when the next WQE may run
    struct Fetch {
      uint16_t end;  // the WQEs before this index are there
      Nanoseconds at;
    };
    std::deque<Fetch> fetches;
  };
  struct Peer {
    Nic* nic;
    softrnic::LinkId there;  // the number of the same link at `nic`
    Nanoseconds ready = 0;   // no packet goes out before the one before it
  };
  struct Arrival {
    softrnic::LinkEvent event;
    std::vector<std::byte> packet;
  };

  void Run();
  void RunAt(Nanoseconds at);
  Nanoseconds TakeUnit(Nanoseconds from, double ns);
  double LoopbackNs() const;
  void Transmit(softrnic::LinkId link, std::vector<std::byte> packet, double wire_bytes);
  void Arrive(softrnic::LinkId link, std::vector<std::byte> packet);

  // --- Pacer
  void Look(const Queue& queue) override;
  Nanoseconds RunsAt(const Queue& queue) override;
  bool Begin(const Queue& queue, Nanoseconds runs_at) override;
  void End(bool done) override;
  // --- LinkPort
  bool Ready(softrnic::LinkId) override { return true; }
  void Send(softrnic::LinkId link, std::span<const std::byte> packet) override;
  void Flush() override {}
  bool Receive(softrnic::LinkEvent* event) override;
  bool Pending() const override { return !inbox_.empty(); }

  const Costs& costs_;
  Timeline& timeline_;
  std::map<uint32_t, SendQueue> queues_;
  std::vector<Nanoseconds> units_;  // when each is free
  std::map<softrnic::LinkId, Peer> peers_;
  std::deque<Arrival> inbox_;
  std::vector<std::byte> received_;  // the packet of the last event
  softrnic::LinkId next_link_ = 1;
  Nanoseconds effect_ = 0;       // when what the engine is doing takes effect
  Nanoseconds last_effect_ = 0;  // the latest so far
  Nanoseconds doorbell_ = 0;     // when the last doorbell arrived
  Nanoseconds waits_until_ = 0;  // when the next WQE can run; 0: there is none
  Nanoseconds wire_free_ = 0;
  Nanoseconds wakes_at_ = 0;  // when Run is called; 0: never
  struct {
    uint32_t qpn;
    bool remote;
    uint8_t opcode;
    bool inline_payload;
    uint32_t bytes;
  } running_{};            // the WQE that runs, or ran last
  bool executes_ = false;  // one runs
  uint64_t wqes_ = 0, requests_ = 0, round_trips_ = 0;
  std::unique_ptr<softrnic::EmbeddedRnic> rnic_;  // destroyed first
};

}  // namespace hyperloop::model
