// The LinkServer's table of peers: who is a neighbour, by which link, and what the file of peers
// changes while the daemon runs.
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "softrnic/daemon/link_connection.h"
#include "softrnic/links/packet.h"

namespace hyperloop::softrnic {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{1000};  // at the file of peers
// With keys the other end closes the oldest of many connections of one daemon. These, and as many
// that a cut left behind, are few enough.
constexpr size_t kMaxLinksToAddress = 4;
static_assert(2 * kMaxLinksToAddress <= kMaxConnectionsOfNeighbour);

}  // namespace

LinkId LinkServer::AddNeighbour(const LinkAddress& address) {
  const size_t count = count_.load(std::memory_order_relaxed);
  neighbours_[count] = std::make_unique<Neighbour>();
  neighbours_[count]->address = address;
  count_.store(count + 1, std::memory_order_release);
  return static_cast<LinkId>(count + 1);
}

void LinkServer::SetHosts(Neighbour& neighbour, std::vector<std::string> hosts) {
  std::string name;
  for (const std::string& host : hosts) name += (name.empty() ? "" : ",") + host;
  name += " (" + neighbour.address.ToString() + ")";
  std::lock_guard lock(names_mutex_);
  neighbour.gone = hosts.empty();
  neighbour.name.swap(name);
  neighbour.hosts.swap(hosts);
}

// Whether links lead to hosts that the command line does not name.
bool LinkServer::HasHostsOfFile() const {
  std::set<std::string> given;
  for (const LinkPeer& each : options_.peers) given.insert(each.host);
  for (const auto& neighbour : Neighbours())
    for (const std::string& host : neighbour->hosts)
      if (!given.contains(host)) return true;
  return false;
}

// The peers whose hosts are not this daemon's own ones, which a list that is the same on all
// machines names, too.
Result<std::vector<LinkPeer>> LinkServer::ReadOthers() const {
  HL_ASSIGN_OR_RETURN(std::vector<LinkPeer> peers, options_.ReadPeers());
  // More likely a file that was lost than a group that was given up.
  if (peers.size() == options_.peers.size() && HasHostsOfFile())
    return InvalidArgument(options_.peers_file + " names no host any more");
  std::erase_if(peers, [this](const LinkPeer& each) {
    return !listening_.empty() && Reaches(each.address, bound_);
  });
  return peers;
}

// Hosts at one address share a link.
Status LinkServer::AddNeighbours(Engine* engine) {
  HL_ASSIGN_OR_RETURN(const std::vector<LinkPeer> peers, ReadOthers());
  std::map<std::string, std::vector<std::string>> hosts;  // by address
  for (const LinkPeer& each : peers) hosts[each.address.ToString()].push_back(each.host);
  if (hosts.size() > kMaxNeighbours) return TooManyPeers();
  std::map<std::string, LinkId> links;
  for (const LinkPeer& each : peers) {
    const std::string at = each.address.ToString();
    if (!links.contains(at)) {
      links[at] = AddNeighbour(each.address);
      SetHosts(NeighbourAt(links[at]), hosts[at]);
      known_sources_.insert(each.address.Source());
    }
    const Status added = engine->AddRoute(each.host, links[at]);
    if (!added.ok()) return InvalidArgument(added.message());  // the list of peers is wrong
  }
  return {};
}

Status LinkServer::TooManyPeers() {
  return InvalidArgument("a daemon has links to " + std::to_string(kMaxNeighbours) +
                         " addresses at most, those included that its file of peers has named "
                         "since it started; a restart forgets these");
}

// Reads the file of peers again if it has changed. Returns when to look again.
LinkServer::SteadyClock::time_point LinkServer::LookAtPeers(SteadyClock::time_point now) {
  if (options_.peers_file.empty()) return now + kBetweenLooks;
  if (now < look_at_) return look_at_;
  look_at_ = now + kBetweenLooks;
  if (!peers_watch_.Look()) return look_at_;
  Status taken;
  if (RanOutOfMemory([&] { taken = TakePeers(); })) {
    peers_watch_.Forget();
    LogLine(log_.get(), LogLevel::kWarn,
            {"the file of peers is not read again: ", kNoMemory, "; trying again"});
  } else if (!taken.ok()) {
    ReportPeers(taken);
  } else {
    peers_error_.clear();
  }
  return look_at_;
}

// Logs why the file of peers is not used. If the reason is not in the file, this is done once, and
// the file is read again.
void LinkServer::ReportPeers(const Status& why) {
  const bool in_file = why.code() == Code::kInvalidArgument;
  if (!in_file) peers_watch_.Forget();
  if (!in_file && why.message() == peers_error_) return;
  LogLine(
      log_.get(), LogLevel::kError,
      {"the changed file of peers is not used, and its links stay as they were: ", why.message()});
  if (RanOutOfMemory([&] { peers_error_ = why.message(); })) peers_error_.clear();
}

// Makes the table what the file says now. An error leaves it as it was, and so does a file that is
// written meanwhile: hosts that a part of it does not name have not gone.
Status LinkServer::TakePeers() {
  const auto read = ReadOthers();
  if (!peers_watch_.Same()) return {};
  HL_RETURN_IF_ERROR(read.status());
  const std::vector<LinkPeer>& peers = *read;
  std::map<std::string, std::string> linked;  // hosts, and their present addresses
  for (const auto& neighbour : Neighbours())
    for (const std::string& host : neighbour->hosts) linked[host] = neighbour->address.ToString();
  std::map<std::string, LinkAddress> wanted;
  std::map<std::string, std::vector<std::string>> added;  // hosts, by address
  for (const LinkPeer& each : peers) {
    const std::string at = each.address.ToString();
    wanted.emplace(each.host, each.address);
    if (const auto found = linked.find(each.host); found == linked.end() || found->second != at)
      added[at].push_back(each.host);
  }
  const auto unused = Unused();
  const auto is_new = [&](const auto& each) { return !unused.contains(each.first); };
  if (static_cast<size_t>(std::count_if(added.begin(), added.end(), is_new)) >
      kMaxNeighbours - Neighbours().size())
    return TooManyPeers();
  for (LinkId link = 1; link <= Neighbours().size(); ++link) DropHosts(link, wanted);
  const auto links = Unused();
  for (const auto& [at, hosts] : added) {
    const auto found = links.find(at);
    AddHosts(found != links.end() ? found->second : LinkForMore(wanted.at(hosts.front())), hosts);
  }
  return {};
}

// The link for hosts that are new at `address`: one of their own, because they may prove to be
// somebody else than those that are there, or the last one if there are many.
LinkId LinkServer::LinkForMore(const LinkAddress& address) {
  size_t count = 0;
  LinkId last = kNoLink;
  for (LinkId link = 1; link <= Neighbours().size(); ++link) {
    if (NeighbourAt(link).gone || NeighbourAt(link).address != address) continue;
    ++count;
    last = link;
  }
  return count < kMaxLinksToAddress ? AddNeighbour(address) : last;
}

// The links of addresses at which no host is any more.
std::map<std::string, LinkId> LinkServer::Unused() const {
  std::map<std::string, LinkId> links;
  for (LinkId link = 1; link <= Neighbours().size(); ++link)
    if (NeighbourAt(link).gone) links.emplace(NeighbourAt(link).address.ToString(), link);
  return links;
}

// Drops the hosts of `link` that `wanted` has not, or has elsewhere; with the last one, the link.
void LinkServer::DropHosts(LinkId link, const std::map<std::string, LinkAddress>& wanted) {
  Neighbour& neighbour = NeighbourAt(link);
  std::vector<std::string> kept;
  Arrivals routes;
  for (const std::string& host : neighbour.hosts) {
    const auto now = wanted.find(host);
    if (now != wanted.end() && now->second == neighbour.address) {
      kept.push_back(host);
      continue;
    }
    routes.push_back({.event = {.kind = LinkEvent::Kind::kRoute, .prefix = GidPrefix(host)}});
    LogLine(log_.get(), LogLevel::kInfo,
            {"host ", host, " is not at ", neighbour.address.ToString(), " any more, says ",
             options_.peers_file, ": queue pairs that are connected to it there end"});
  }
  if (routes.empty()) return;
  const bool last = kept.empty();
  SetHosts(neighbour, std::move(kept));
  PushEvents(std::move(routes));
  if (last) Close(neighbour.connection, "no host is there any more");
}

// Gives a link hosts beside those that it has. It is then dialed (again), to prove all of them.
void LinkServer::AddHosts(LinkId link, const std::vector<std::string>& hosts) {
  Neighbour& neighbour = NeighbourAt(link);
  std::vector<std::string> all = neighbour.hosts;
  all.insert(all.end(), hosts.begin(), hosts.end());
  Arrivals routes;
  for (const std::string& host : hosts)
    routes.push_back(
        {.event = {.kind = LinkEvent::Kind::kRoute, .link = link, .prefix = GidPrefix(host)}});
  known_sources_.insert(neighbour.address.Source());
  SetHosts(neighbour, std::move(all));
  Close(neighbour.connection, "more hosts are there");
  neighbour.last_error.clear();
  neighbour.backoff = {};
  neighbour.dial_at = {};
  PushEvents(std::move(routes));
  LogLine(log_.get(), LogLevel::kInfo, {"new in ", options_.peers_file, ": ", neighbour.name});
}

}  // namespace hyperloop::softrnic
