#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "control/client.h"
#include "control/proposal.h"
#include "inspect/resize.h"
#include "simulation/impossible.h"
#include "simulation/scheduler.h"
#include "simulation/world.h"

namespace hyperloop::simulation {
namespace {

constexpr std::chrono::milliseconds kPatience{2000};
constexpr uint64_t kMostMicroseconds = 20'000;  // from one step of changing a key to the next

identity::Roles RoleOf(const std::string& host) {
  const bool primary = std::ranges::count(kPrimaries, host) != 0;
  return primary ? identity::kRolePrimary : identity::kRoleReplica;
}

identity::TrustedPeer MakeKey(const std::string& directory, const std::string& host) {
  MustBeOk(identity::MakeIdentity(directory, host));
  const auto ring = identity::KeyRing::Load(directory);
  MustBeOk(ring.status());
  return {host, (*ring)->public_key(), RoleOf(host)};
}

}  // namespace

Status World::Propose(int replica, int proposed) const {
  HL_ASSIGN_OR_RETURN(const auto endpoint, control::ParseEndpoint(AddressOf(replica)));
  HL_ASSIGN_OR_RETURN(const auto trust, control::Trust::Load(KeysOf(kPrimaries[0]), nullptr));
  HL_ASSIGN_OR_RETURN(const auto client,
                      control::ControlClient::Connect(endpoint, trust, kPatience));
  HL_ASSIGN_OR_RETURN(const auto hello,
                      client->Call<control::HelloReplyT>(control::HelloRequestT{}, kPatience));
  return client
      ->Call<control::DoneT>(control::MakeProposal(trust, hello, AddressOf(proposed), false),
                             kPatience)
      .status();
}

bool World::HasServed(int replica) const {
  const Result<control::Trust> trust = control::Trust::Load(KeysOf(kPrimaries[0]), nullptr);
  const Result<control::Endpoint> endpoint = control::ParseEndpoint(AddressOf(replica));
  if (!trust.ok() || !endpoint.ok()) return false;
  const auto client = control::ControlClient::Connect(*endpoint, *trust, kPatience);
  if (!client.ok()) return false;
  const auto hello = (*client)->Call<control::HelloReplyT>(control::HelloRequestT{}, kPatience);
  return hello.ok() && hello->served_epoch == hello->installed_epoch;
}

void World::Place(int replica) {
  if (!keyed_) return;
  for (identity::TrustedPeer& each : trusted_)
    if (each.name == NameOf(replica)) each.endpoint = AddressOf(replica);
  WriteTrusted();
}

Result<World::View> World::Look(int replica, const std::string& host) {
  View view;
  HL_ASSIGN_OR_RETURN(view.device, OpenerOf(host, Scheduler::Process())());
  HL_ASSIGN_OR_RETURN(view.node, NodeView::Connect(*view.device, NameOf(replica)));
  return view;
}

Result<ExportReport> World::Export(int replica, const std::string& host,
                                   const std::string& directory) {
  HL_ASSIGN_OR_RETURN(const View view, Look(replica, host));
  HL_ASSIGN_OR_RETURN(const RegionImage image, view.node->Snapshot());
  return ExportFiles(image.bytes(), directory, 0, false, FilesOf(NameOf(replica)));
}

Result<Survivors> World::FindSurvivors(const std::string& host, const Opening& opening) const {
  return hyperloop::FindSurvivors(OptionsOf(host, opening));
}

void World::Resize(const std::set<int>& replicas, uint64_t region_size) {
  for (const int each : replicas) {
    const std::string pool = PoolOf(NameOf(each));
    const Result<ResizeReport> resized = ResizePool(pool, {region_size});
    MustBeOk(resized.status());
    std::filesystem::remove(resized->set_aside);
    At(each).durable.reset();  // all of the new one is
  }
}

void World::ResizePrimaries(uint64_t region_size) {
  for (const std::string host : kPrimaries) {
    const Result<ResizeReport> resized = ResizePool(PoolOf(host), {region_size});
    const Code code = resized.status().code();
    if (code != Code::kNotFound && code != Code::kCorruption) MustBeOk(resized.status());
    std::filesystem::remove(resized.ok() ? resized->set_aside : PoolOf(host));
  }
  region_size_ = region_size;
}

void World::MakeKeys() {
  for (const std::string& host : hosts_) trusted_.push_back(MakeKey(KeysOf(host), host));
  WriteTrusted();
}

void World::WriteTrusted() const {
  for (const std::string& host : hosts_) {
    const std::string path = KeysOf(host) + "/trusted";
    std::ofstream file(path + ".next");
    for (const identity::TrustedPeer& each : trusted_) file << each.Line() << '\n';
    file.close();
    namespace fs = std::filesystem;
    fs::permissions(path + ".next", fs::perms::owner_read | fs::perms::owner_write);
    std::filesystem::rename(path + ".next", path);
  }
}

void World::ChangeKey(const std::string& host) {
  const auto pause = [this] {
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % kMostMicroseconds));
  };
  const std::string next = KeysOf(host) + ".next";
  const auto former = std::ranges::find(trusted_, host, &identity::TrustedPeer::name);
  const identity::TrustedPeer old = *former;
  trusted_.push_back(MakeKey(next, host));
  trusted_.back().endpoint = old.endpoint;
  WriteTrusted();
  pause();
  std::filesystem::rename(next + "/identity", KeysOf(host) + "/identity");
  std::filesystem::remove_all(next);
  pause();
  std::erase(trusted_, old);
  WriteTrusted();
}

}  // namespace hyperloop::simulation
