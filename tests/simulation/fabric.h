// Fabric: the software RNICs of a simulation. Either all hosts share one, as emulated hosts on one
// machine do, or each host has its own, and links join them.
#pragma once

#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "softrnic/embedded/embedded.h"
#include "softrnic/engine/testing/memory_network.h"
#include "softrnic/engine/testing/persistence_model.h"

namespace hyperloop::simulation {

class Fabric {
 public:
  // `engine`: the options of each engine, except for the seed. `apart`: each host has a machine of
  // its own.
  Fabric(const std::vector<std::string>& hosts, bool apart, softrnic::EngineOptions engine,
         uint64_t seed);
  ~Fabric();
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  bool apart() const { return machines_.size() > 1; }
  softrnic::EmbeddedRnic& rnic(const std::string& host) { return MachineOf(host).rnic; }
  softrnic::PersistenceModel& power(const std::string& host) { return MachineOf(host).power; }

  // The RNIC of the host's machine ends and starts again: the devices of all its hosts are dead,
  // and its links lose what is under way.
  void Restart(const std::string& host);

  // For hosts on machines of their own. While a link is cut, its bytes wait. A reset loses the
  // bytes that are under way.
  void SetCut(const std::string& one, const std::string& other, bool cut);
  void Reset(const std::string& one, const std::string& other);

 private:
  struct Machine {
    explicit Machine(softrnic::EngineOptions options)
        : rnic((options.test.watch = &power, options)) {}
    softrnic::PersistenceModel power;
    softrnic::EmbeddedRnic rnic;
    softrnic::MemoryNetwork::Port* port = nullptr;
  };
  using Link = softrnic::MemoryNetwork::Link;
  // One direction of a link.
  struct Stream {
    Link* link;
    bool requests;
  };

  Machine& MachineOf(const std::string& host) { return *machine_of_.at(host); }
  void Join(Machine& from, const std::string& host);
  std::vector<Link*> Between(const std::string& one, const std::string& other);
  bool HasBytes() const;
  std::vector<Stream> StreamsWithBytes() const;
  void CarryBytes();
  void Wake(const softrnic::MemoryNetwork::Port* port);

  std::mt19937_64 random_;
  softrnic::MemoryNetwork network_;
  std::vector<std::unique_ptr<Machine>> machines_;
  std::map<std::string, Machine*> machine_of_;
  bool stop_ = false;
  std::thread carrier_;
};

}  // namespace hyperloop::simulation
