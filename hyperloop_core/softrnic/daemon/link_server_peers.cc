// The LinkServer's table of peers: who is a neighbour, by which link, and what the file of peers
// and `trusted` change while the daemon runs.
#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "softrnic/daemon/link_connection.h"
#include "softrnic/links/packet.h"

namespace hyperloop::softrnic {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{1000};  // at the files
// So many looks that each found another file of peers are worth a line in the log.
constexpr int kRestlessLooks = 5;
// With keys the other end closes the oldest of many connections of one daemon. These, and as many
// that a cut left behind, are few enough.
constexpr size_t kMaxLinksToAddress = 4;
static_assert(2 * kMaxLinksToAddress <= kMaxConnectionsOfNeighbour);
// More than there can be peers and open links, so that forgetting others makes room.
constexpr size_t kMaxKnownSources = 2 * (kMaxNeighbours + kMaxConnections);

}  // namespace

// A neighbour without hosts. There is room for it.
LinkServer::Neighbour& LinkServer::AddNeighbour(const LinkAddress& address) {
  const size_t count = count_.load(std::memory_order_relaxed);
  if (count < kMaxNeighbours) {
    neighbours_[count] = std::make_unique<Neighbour>();
    neighbours_[count]->id = static_cast<LinkId>(count + 1);
    neighbours_[count]->address = address;
    count_.store(count + 1, std::memory_order_release);
    return *neighbours_[count];
  }
  Neighbour& former = **std::ranges::find_if(Neighbours(), [](const auto& n) { return !!n->gone; });
  // Packets that the engine has made for the former link, and has not handed over, carry its id.
  const LinkId next = former.id + static_cast<LinkId>(kMaxNeighbours);
  former.id = next < kIncomingLinks ? next : (next - 1) % kMaxNeighbours + 1;
  former.address = address;
  former.was_up = false;
  return former;
}

void LinkServer::SetHosts(Neighbour& neighbour, std::vector<std::string> hosts) {
  std::string name;
  for (const std::string& host : hosts) name += (name.empty() ? "" : ",") + host;
  name += " (" + neighbour.address.ToString() + ")";
  MutexLock lock(names_mutex_);
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
    return InvalidArgument(options_.PeersFiles() +
                           (options_.has_hosts() ? " names no other host" : " names no host") +
                           " any more");
  if (listening_.empty()) return peers;
  const OwnAddresses own(bound_);
  std::erase_if(peers, [&own](const LinkPeer& each) { return own.Has(each.address); });
  return peers;
}

// The links to make to `peers`. A link is up only while its other end proves to be all of its
// hosts. So hosts at one address share one if they have a key in common, and each that has none yet
// has one of its own. If there are many, the last one at an address takes the rest.
std::vector<LinkServer::NewLink> LinkServer::LinksTo(std::span<const LinkPeer> peers) const {
  std::map<std::string, std::set<identity::PublicKey>> keys;  // by name
  for (const identity::TrustedPeer& line : LinesForLinks()) keys[line.name].insert(line.key);
  std::vector<NewLink> links;
  std::map<std::string, std::vector<size_t>> at;  // by address; indexes
  const auto add = [&](const LinkPeer& peer, const std::set<identity::PublicKey>& its) {
    std::vector<size_t>& there = at[peer.address.ToString()];
    for (const size_t i : there) {
      std::set<identity::PublicKey> common;
      std::ranges::set_intersection(links[i].keys, its, std::inserter(common, common.end()));
      if (common.empty()) continue;
      links[i].keys.swap(common);
      links[i].hosts.push_back(peer.host);
      return;
    }
    if (there.size() == kMaxLinksToAddress) {
      links[there.back()].hosts.push_back(peer.host);
      return;
    }
    there.push_back(links.size());
    links.push_back({peer.address, {peer.host}, its});
  };
  // Those that nobody can prove to be come last, and so take no link from the others.
  std::vector<LinkPeer> unknown;
  for (const LinkPeer& each : peers) {
    if (options_.keys == nullptr) {
      add(each, {identity::PublicKey{}});  // nothing is proved
    } else if (const auto its = keys.find(each.host); its != keys.end()) {
      add(each, its->second);
    } else {
      unknown.push_back(each);
    }
  }
  for (const LinkPeer& each : unknown) add(each, {});
  return links;
}

Status LinkServer::AddNeighbours(Engine* engine) {
  const MutexLock sockets(sockets_);
  HL_ASSIGN_OR_RETURN(const std::vector<LinkPeer> peers, ReadOthers());
  const std::vector<NewLink> links = LinksTo(peers);
  if (links.size() > kMaxNeighbours) return TooManyPeers();
  for (const NewLink& each : links) {
    Neighbour& neighbour = AddNeighbour(each.address);
    SetHosts(neighbour, each.hosts);
    KnowSource(each.address.Source());
    for (const std::string& host : each.hosts) {
      const Status added = engine->AddRoute(host, neighbour.id);
      if (!added.ok()) return InvalidArgument(added.message());  // the list of peers is wrong
    }
  }
  return {};
}

Status LinkServer::TooManyPeers() {
  return InvalidArgument("a daemon has " + std::to_string(kMaxNeighbours) +
                         " links at most: one for each address, and up to " +
                         std::to_string(kMaxLinksToAddress) +
                         " where hosts came one by one or have different keys");
}

// Reads the files again that have changed. Returns when to look again.
LinkServer::SteadyClock::time_point LinkServer::LookAtFiles(SteadyClock::time_point now) {
  if (now < look_at_) return look_at_;
  look_at_ = now + kBetweenLooks;
  if (options_.later.has_value()) LookForNode();
  if (!options_.peers_file.empty() || options_.has_hosts()) LookAtPeers();
  if (options_.keys != nullptr) LookAtTrusted();
  return look_at_;
}

// Makes this machine a host, once its keys and its line are there.
void LinkServer::LookForNode() {
  Status taken;
  const auto take = [&] {
    sockets_.known_held();
    taken = TakeNode();
  };
  if (RanOutOfMemory(take) || taken.ok() || taken.message() == node_error_) return;
  LogLine(log_.get(), LogLevel::kWarn, {"no links yet: ", taken.message(), "; it is tried again"});
  if (RanOutOfMemory([&] { node_error_ = taken.message(); })) node_error_.clear();
}

// What fails is done again as a whole. Until all is done there is no neighbour.
Status LinkServer::TakeNode() {
  HL_ASSIGN_OR_RETURN(LinkOptions made, MakeLinkOptions(*options_.later));
  if (made.later.has_value()) return {};
  made.later = options_.later;
  made.ciphers = options_.ciphers;
  options_ = std::move(made);
  HL_RETURN_IF_ERROR(Listen());
  const identity::KeyRing& keys = *options_.keys;
  trusted_watch_ = FileWatch(keys.dir() + "/trusted");
  looked_ = hosts_seen_ = keys.seen_generation();
  judged_ = keys.generation();
  hosts_taken_ = kNoHosts;
  link_names_ = NamesForLinks();
  options_.later.reset();
  LogLine(log_.get(), LogLevel::kInfo,
          {"links as ", keys.name(), ", key ", identity::KeyText(keys.public_key()), ", at ",
           listening_});
  if (!options_.warning.empty()) LogLine(log_.get(), LogLevel::kWarn, {options_.warning});
  return {};
}

// True if the hosts of the keys are not those that were taken, and the file says the same as at the
// last look. If it says nothing that can be used, what it said before may have been a part of it.
bool LinkServer::HostsAreNew() {
  if (options_.keys == nullptr) return false;
  const uint64_t seen = options_.keys->seen_generation();
  return std::exchange(hosts_seen_, seen) == seen && options_.keys->hosts_usable() &&
         options_.keys->hosts_generation() != hosts_taken_;
}

void LinkServer::LookAtPeers() {
  const bool new_file = !options_.peers_file.empty() && peers_watch_.Look();
  const bool new_hosts = HostsAreNew() && (options_.peers_file.empty() || peers_watch_.Same());
  if (new_hosts) hosts_taken_ = options_.keys->hosts_generation();
  if (!new_file && !new_hosts) {
    if (peers_watch_.restless() == kRestlessLooks)
      LogLine(log_.get(), LogLevel::kWarn,
              {"the file of peers is not read: ", options_.peers_file,
               " changes all the time. It is read once it is the same for a second"});
    return;
  }
  Status taken;
  const auto take = [&] {
    sockets_.known_held();
    taken = TakePeers();
  };
  if (RanOutOfMemory(take)) {
    ForgetPeers();
    LogLine(log_.get(), LogLevel::kWarn,
            {"the file of peers is not read again: ", kNoMemory, "; trying again"});
  } else if (!taken.ok()) {
    ReportPeers(taken);
  } else {
    peers_error_.clear();
  }
}

// What was read could not be used for a reason that may pass: it is read again.
void LinkServer::ForgetPeers() {
  peers_watch_.Forget();
  hosts_taken_ = kNoHosts;
}

// Logs why the file of peers is not used. If the reason is not in the file, this is done once, and
// the file is read again.
void LinkServer::ReportPeers(const Status& why) {
  const bool in_file = why.code() == Code::kInvalidArgument;
  if (!in_file) ForgetPeers();
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
  if (!options_.peers_file.empty() && !peers_watch_.Same()) return {};
  HL_RETURN_IF_ERROR(read.status());
  RefreshKeys();
  const std::vector<LinkPeer>& peers = *read;
  std::map<std::string, std::string> linked;  // hosts, and their present addresses
  for (const auto& neighbour : Neighbours())
    for (const std::string& host : neighbour->hosts) linked[host] = neighbour->address.ToString();
  std::map<std::string, LinkAddress> wanted;
  std::vector<LinkPeer> added;
  for (const LinkPeer& each : peers) {
    const std::string at = each.address.ToString();
    wanted.emplace(each.host, each.address);
    if (const auto found = linked.find(each.host); found == linked.end() || found->second != at)
      added.push_back(each);
  }
  std::vector<NewLink> links = LinksTo(added);
  const auto stays = [&](const Neighbour& neighbour) {
    return std::ranges::any_of(neighbour.hosts, [&](const std::string& host) {
      const auto found = wanted.find(host);
      return found != wanted.end() && found->second == neighbour.address;
    });
  };
  const auto staying =
      std::ranges::count_if(Neighbours(), [&](const auto& n) { return stays(*n); });
  if (static_cast<size_t>(staying) + links.size() > kMaxNeighbours) return TooManyPeers();
  for (const auto& neighbour : Neighbours()) DropHosts(*neighbour, wanted);
  const std::string news = "new in " + options_.PeersFiles();
  // Hosts that come back have the link that they had.
  std::multimap<std::string, Neighbour*> unused;
  for (const auto& neighbour : Neighbours())
    if (neighbour->gone) unused.emplace(neighbour->address.ToString(), neighbour.get());
  std::erase_if(links, [&](const NewLink& each) HL_REQUIRES(sockets_) {
    const auto found = unused.find(each.address.ToString());
    if (found == unused.end()) return false;
    AddHosts(*found->second, each.hosts, news);
    unused.erase(found);
    return true;
  });
  for (const NewLink& each : links) AddHosts(NeighbourForMore(each.address), each.hosts, news);
  ForgetSources();
  return {};
}

// The link for hosts that are new at `address`: one of their own, because they may prove to be
// somebody else than those that are there, or the last one if there are many.
LinkServer::Neighbour& LinkServer::NeighbourForMore(const LinkAddress& address) {
  size_t count = 0;
  Neighbour* last = nullptr;
  for (const auto& neighbour : Neighbours()) {
    if (neighbour->gone || neighbour->address != address) continue;
    ++count;
    last = neighbour.get();
  }
  return count < kMaxLinksToAddress ? AddNeighbour(address) : *last;
}

// Drops the hosts of a link that `wanted` has not, or has elsewhere; with the last one, the link.
// Those that are no peers any more lose the links that they made, too.
void LinkServer::DropHosts(Neighbour& neighbour, const std::map<std::string, LinkAddress>& wanted) {
  std::vector<std::string> kept;
  std::set<uint64_t> no_peers;
  Arrivals routes;
  for (const std::string& host : neighbour.hosts) {
    const auto now = wanted.find(host);
    if (now != wanted.end() && now->second == neighbour.address) {
      kept.push_back(host);
      continue;
    }
    routes.push_back({.event = {.kind = LinkEvent::Kind::kRoute, .prefix = GidPrefix(host)}});
    if (now == wanted.end()) no_peers.insert(GidPrefix(host));
    LogLine(log_.get(), LogLevel::kInfo,
            {"host ", host, " is not at ", neighbour.address.ToString(), " any more, says ",
             options_.PeersFiles(), ": queue pairs that are connected to it there end",
             now == wanted.end() && IsTrustedAs(host)
                 ? ". `trusted` lets it make a link still: take its line out to shut it out"
                 : ""});
  }
  if (routes.empty()) return;
  const bool last = kept.empty();
  SetHosts(neighbour, std::move(kept));
  PushEvents(std::move(routes));
  if (last) Close(neighbour.connection, "no host is there any more");
  CloseLinksFrom(no_peers);
}

// Closes the connections whose other ends have proved to be one of these hosts. Needs no memory.
void LinkServer::CloseLinksFrom(const std::set<uint64_t>& hosts) {
  for (auto it = connections_.begin(); it != connections_.end();) {
    const Connection& c = *(it++)->second;  // it may be closed
    if (std::ranges::any_of(c.proven, [&](uint64_t host) { return hosts.contains(host); }))
      Close(c.serial, "its host is no peer any more");
  }
}

// Gives a link hosts beside those that it has. It is then dialed (again), to prove all of them.
void LinkServer::AddHosts(Neighbour& neighbour, const std::vector<std::string>& hosts,
                          std::string_view why) {
  std::vector<std::string> all = neighbour.hosts;
  all.insert(all.end(), hosts.begin(), hosts.end());
  Arrivals routes;
  for (const std::string& host : hosts)
    routes.push_back({.event = {.kind = LinkEvent::Kind::kRoute,
                                .link = neighbour.id,
                                .prefix = GidPrefix(host)},
                      .route = MakeRoute(GidPrefix(host), neighbour.id)});
  KnowSource(neighbour.address.Source());
  SetHosts(neighbour, std::move(all));
  Close(neighbour.connection, "more hosts are there");
  neighbour.last_error.clear();
  neighbour.backoff = {};
  neighbour.dial_at = {};
  PushEvents(std::move(routes));
  LogLine(log_.get(), LogLevel::kInfo, {why, ": ", neighbour.name});
}

// --- trust

// Reads the keys again, and lets `trusted` take effect on what is open. It is read each time,
// because what kept it from being read may have gone without a trace in the file.
void LinkServer::LookAtTrusted() {
  trusted_watch_.Look();
  if (trusted_watch_.restless() != 0) return;  // it is being written
  [[maybe_unused]] const bool later = RanOutOfMemory([this] {
    sockets_.known_held();
    RefreshKeys();
    const uint64_t generation = options_.keys->generation();
    // A file of hosts or of a group may still be written: it counts once it was the same twice, and
    // the hosts can be used.
    const uint64_t seen = options_.keys->seen_generation();
    const bool same = std::exchange(looked_, seen) == seen;
    const bool usable = options_.keys->hosts_usable() || !options_.has_hosts();
    const bool quiet = (same && usable) || !options_.has_hosts();
    if (!quiet) link_names_.merge(NamesForLinks());  // who is new may make links at once
    if (generation == judged_ || !trusted_watch_.Same()) return;
    if (same && !usable && std::exchange(waiting_, generation) != generation)
      LogLine(log_.get(), LogLevel::kWarn,
              {options_.keys->hosts_file(),
               " cannot be used, and what it said before may have been a part of it: links stay as "
               "they are until it can"});
    if (!quiet) return;
    if (LostItsLines()) {
      if (std::exchange(reported_, generation) == generation) return;
      return LogLine(log_.get(), LogLevel::kError,
                     {trusted_watch_.path(),
                      " lets nobody make links any more. It may have lost "
                      "its lines, so open links stay, and new ones are refused: put the lines "
                      "back, best as another file that is renamed to it (hyperloopctl keys trust "
                      "does so), or stop this daemon to end its links"});
    }
    TakeTrusted();
    judged_ = generation;
  });
}

// Ends the queue pairs of hosts that `trusted` does not name any more, and the links to those that
// it does not call any more what they proved to be.
void LinkServer::TakeTrusted() {
  std::set<uint64_t> names = NamesForLinks();
  std::set<uint64_t> gone;
  std::ranges::set_difference(link_names_, names, std::inserter(gone, gone.end()));
  EndQueuePairsOf(gone);
  link_names_.swap(names);
  for (auto it = connections_.begin(); it != connections_.end();) {
    const Connection& c = *(it++)->second;  // it may be closed
    if (!c.channel.open()) {
      // The end that is dialed may have been judged before.
      if (c.dialed && !c.connecting) Close(c.serial, "the keys are read again");
    } else if (!IsTrustedStill(c)) {
      Close(c.serial, "its key is not trusted any more as what it was");
    }
  }
  ForgetSources();
}

// The lines of `trusted` whose keys may make links, this host's own one included.
std::vector<identity::TrustedPeer> LinkServer::LinesForLinks() const {
  if (options_.keys == nullptr) return {};
  std::vector<identity::TrustedPeer> lines = options_.keys->trusted();
  if (const auto self = options_.keys->Find(options_.keys->public_key()))
    lines.insert(lines.end(), self->lines().begin(), self->lines().end());
  std::erase_if(lines, [](const identity::TrustedPeer& line) {
    return (line.roles & identity::kRoleLink) == 0;
  });
  return lines;
}

// The GidPrefix of each name under which some key may make links.
std::set<uint64_t> LinkServer::NamesForLinks() const {
  std::set<uint64_t> names;
  for (const identity::TrustedPeer& line : LinesForLinks()) names.insert(GidPrefix(line.name));
  return names;
}

// What these hosts have connected takes and makes no request any more, whoever sends it: packets of
// a session carry no claim. The routes to them stay, for the time after they are trusted again.
void LinkServer::EndQueuePairsOf(const std::set<uint64_t>& hosts) {
  Arrivals ends;
  for (const uint64_t host : hosts)
    ends.push_back({.event = {.kind = LinkEvent::Kind::kRoute, .prefix = host}});
  PushEvents(std::move(ends));
  for (const auto& neighbour : Neighbours())
    for (const std::string& host : std::vector(neighbour->hosts))
      if (hosts.contains(GidPrefix(host))) PartUntrusted(*neighbour, host);
}

// Makes the route to a host that is not trusted any more: by a link of its own, so that those with
// which it shared one, and which its daemon can prove to be still, keep that.
void LinkServer::PartUntrusted(Neighbour& neighbour, const std::string& host) {
  if (neighbour.hosts.size() > 1 && HasRoomAt(neighbour.address)) {
    std::vector<std::string> others = neighbour.hosts;
    std::erase(others, host);
    AddHosts(AddNeighbour(neighbour.address), {host}, "not in `trusted` any more");
    SetHosts(neighbour, std::move(others));
    return;
  }
  const uint64_t prefix = GidPrefix(host);
  Arrivals route;
  route.push_back(
      {.event = {.kind = LinkEvent::Kind::kRoute, .link = neighbour.id, .prefix = prefix},
       .route = MakeRoute(prefix, neighbour.id)});
  PushEvents(std::move(route));
  if (neighbour.hosts.size() > 1)
    LogLine(log_.get(), LogLevel::kError,
            {"host ", host,
             " is not in `trusted`: take it out of the peers, too. The link is down for it: ",
             neighbour.name});
}

// Whether there may be another link, to `address`.
bool LinkServer::HasRoomAt(const LinkAddress& address) const {
  size_t all = 0, there = 0;
  for (const auto& neighbour : Neighbours()) {
    if (neighbour->gone) continue;
    ++all;
    if (neighbour->address == address) ++there;
  }
  return all < kMaxNeighbours && there < kMaxLinksToAddress;
}

// Whether `trusted` has no line of another host with the role link while there are links of others'
// keys: more likely a file that somebody has emptied or half written than that all of them are shut
// out.
bool LinkServer::LostItsLines() const {
  const auto lines = options_.keys->trusted();
  const identity::PublicKey own = options_.keys->public_key();
  return std::ranges::none_of(lines,
                              [&](const auto& line) {
                                return (line.roles & identity::kRoleLink) != 0 && line.key != own;
                              }) &&
         std::ranges::any_of(connections_, [this](const auto& each) HL_REQUIRES(sockets_) {
           return each.second->channel.open() && !IsTrustedStill(*each.second);
         });
}

bool LinkServer::IsTrustedStill(const Connection& c) const {
  const auto peer = options_.keys->Find(c.channel.peer().lines().front().key);
  if (!peer.has_value()) return false;
  if (c.dialed)
    return std::ranges::all_of(NeighbourAt(c.link)->hosts, [&](const std::string& host) {
      return peer->Is(host, identity::kRoleLink);
    });
  return std::ranges::all_of(c.proven, [&](uint64_t host) {
    return std::ranges::any_of(peer->lines(), [&](const identity::TrustedPeer& line) {
      return (line.roles & identity::kRoleLink) != 0 && GidPrefix(line.name) == host;
    });
  });
}

// Whether some key may make links in the name of `host`.
bool LinkServer::IsTrustedAs(const std::string& host) const {
  if (options_.keys == nullptr) return false;
  return std::ranges::any_of(options_.keys->trusted(), [&](const identity::TrustedPeer& line) {
    return line.name == host && (line.roles & identity::kRoleLink) != 0;
  });
}

// --- sources

void LinkServer::KnowSource(const std::string& source) {
  if (known_sources_.size() >= kMaxKnownSources) ForgetSources();
  known_sources_.insert(source);
}

// Forgets the sources at which there is neither a peer nor an open link's other end.
void LinkServer::ForgetSources() {
  KnownSources present;
  for (const auto& neighbour : Neighbours())
    if (!neighbour->gone) present.insert(neighbour->address.Source());
  for (const auto& [serial, c] : connections_)
    if (!c->dialed && !c->proven.empty()) present.insert(c->source);
  known_sources_.swap(present);
}

}  // namespace hyperloop::softrnic
