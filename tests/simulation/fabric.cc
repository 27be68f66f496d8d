#include "simulation/fabric.h"

#include <algorithm>
#include <chrono>

#include "simulation/impossible.h"
#include "simulation/scheduler.h"

namespace hyperloop::simulation {
namespace {

// Bytes wait for so long, at most, until some of them move.
constexpr uint64_t kMostMicroseconds = 20;

}  // namespace

Fabric::Fabric(const std::vector<std::string>& hosts, bool apart, softrnic::EngineOptions engine,
               uint64_t seed)
    : random_(seed) {
  for (const std::string& host : hosts) {
    if (apart || machines_.empty()) {
      engine.test.seed = random_();
      machines_.push_back(std::make_unique<Machine>(engine));
    }
    machine_of_[host] = machines_.back().get();
  }
  if (apart) {
    for (const auto& machine : machines_) {
      machine->port = network_.AddPort();
      machine->rnic.engine().AttachPort(machine->port);
    }
    for (const auto& machine : machines_)
      for (const std::string& host : hosts) Join(*machine, host);
  }
  for (const auto& machine : machines_) MustBeOk(machine->rnic.StartThread({.spin_us = 0}));
  carrier_ = std::thread([this] { CarryBytes(); });
}

Fabric::~Fabric() {
  stop_ = true;
  carrier_.join();
  for (const auto& machine : machines_) machine->rnic.StopThread();
}

void Fabric::Join(Machine& from, const std::string& host) {
  Machine& to = MachineOf(host);
  if (&from == &to) return;
  const Link& link = network_.Connect(from.port, to.port);
  MustBeOk(from.rnic.engine().AddRoute(host, link.id));
}

std::vector<Fabric::Link*> Fabric::Between(const std::string& one, const std::string& other) {
  const auto* const a = MachineOf(one).port;
  const auto* const b = MachineOf(other).port;
  std::vector<Link*> found;
  for (const auto& link : network_.links())
    if ((link->from == a && link->to == b) || (link->from == b && link->to == a))
      found.push_back(link.get());
  return found;
}

void Fabric::SetCut(const std::string& one, const std::string& other, bool cut) {
  for (Link* const link : Between(one, other)) link->cut = cut;
}

void Fabric::Reset(const std::string& one, const std::string& other) {
  for (Link* const link : Between(one, other)) {
    network_.Reset(*link);
    network_.Open(*link);
    Wake(link->from);
  }
}

void Fabric::Restart(const std::string& host) {
  Machine& machine = MachineOf(host);
  for (const auto& [name, its] : machine_of_)
    if (its == &machine) machine.rnic.CloseHost(name);
  for (const auto& [name, its] : machine_of_)
    if (its != &machine) Reset(host, name);
}

bool Fabric::HasBytes() const {
  if (network_.under_way() == 0) return false;
  return std::ranges::any_of(network_.links(), [](const auto& link) {
    return link->up && !link->cut && link->under_way() != 0;
  });
}

std::vector<Fabric::Stream> Fabric::StreamsWithBytes() const {
  std::vector<Stream> found;
  for (const auto& link : network_.links()) {
    if (!link->up || link->cut) continue;
    if (!link->requests.empty()) found.push_back({link.get(), true});
    if (!link->answers.empty()) found.push_back({link.get(), false});
  }
  return found;
}

void Fabric::CarryBytes() {
  while (true) {
    Scheduler::Get().Wait([this] { return stop_ || HasBytes(); });
    if (stop_) return;
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % (kMostMicroseconds + 1)));
    const std::vector<Stream> streams = StreamsWithBytes();
    if (streams.empty()) continue;
    const auto [link, requests] = streams[random_() % streams.size()];
    const size_t bytes = (requests ? link->requests : link->answers).size();
    network_.Deliver(*link, requests, random_() % 4 == 0 ? 1 + random_() % bytes : bytes);
    Wake(link->from);
    Wake(link->to);
  }
}

// Wakes the RNIC of this port, if something has arrived there.
void Fabric::Wake(const softrnic::MemoryNetwork::Port* port) {
  if (!port->Pending()) return;
  for (const auto& machine : machines_)
    if (machine->port == port) machine->rnic.Wake();
}

}  // namespace hyperloop::simulation
