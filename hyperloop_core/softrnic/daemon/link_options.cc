#include "softrnic/daemon/link_options.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <map>

#include "hyperloop/core/name.h"
#include "hyperloop/core/text.h"
#include "hyperloop/core/unique_fd.h"
#include "hyperloop/identity/hosts.h"
#include "softrnic/links/packet.h"

namespace hyperloop::softrnic {
namespace {

constexpr const char* kMakeKeys = "hyperloopctl keys init makes one";
constexpr size_t kMaxPeersFileBytes = 1 << 20;

Status LoopbackOnly(const LinkAddress& address, const std::string& what) {
  if (address.loopback()) return {};
  return InvalidArgument(what + " " + address.ToString() +
                         " is not loopback: whoever reaches it could write to this machine's "
                         "regions, and --insecure does not allow that. Give --keys DIR (" +
                         kMakeKeys + ")");
}

// Makes this machine a host of the file of hosts, if the keys in its folder point to that file.
Status TakeNode(const LinkArguments& arguments, LinkOptions* options) {
  if (arguments.node.empty() || !arguments.keys_dir.empty()) return {};
  auto keys = identity::KeyRing::Load(identity::KeysFolderIn(arguments.node));
  if (keys.status().code() == Code::kNotFound) return {};
  HL_RETURN_IF_ERROR(keys.status());
  const std::string file = (*keys)->hosts_file();
  if (file.empty()) return {};
  options->keys = *std::move(keys);
  if (options->listen.has_value()) return {};
  for (const identity::HostLine& host : options->keys->hosts()) {
    if (host.name != options->keys->name()) continue;
    HL_ASSIGN_OR_RETURN(options->listen, ParseLinkAddress(host.At(identity::kLinkPort), false));
    // As while the key is being changed.
    if (host.key != options->keys->public_key())
      options->warning = Text(
          file, " has another key for this host, ", host.name, ", than ", options->keys->dir(),
          ": hosts that do not trust its own one beside that make no links with it; put there, on "
          "all hosts alike, what hyperloopctl node init prints on this one");
    return {};
  }
  return NotFound(Text("this host's line is not in ", file,
                       ": put there, on all hosts alike, what hyperloopctl node init --name ",
                       options->keys->name(), " --address ADDRESS prints on this one"));
}

// Takes the keys, or checks that `insecure` permits links without them.
Status TakeKeys(const LinkArguments& arguments, LinkOptions* options) {
  HL_RETURN_IF_ERROR(TakeNode(arguments, options));
  if (options->keys != nullptr) {
    if (!arguments.insecure) return {};
    return InvalidArgument("--insecure contradicts --node " + arguments.node +
                           ", whose keys point to a file of hosts: leave one of them out");
  }
  if (!arguments.keys_dir.empty()) {
    if (arguments.insecure)
      return InvalidArgument("--insecure contradicts --keys " + arguments.keys_dir +
                             ": leave one of them out");
    HL_ASSIGN_OR_RETURN(options->keys, identity::KeyRing::Load(arguments.keys_dir));
    if (options->any()) return {};
    return InvalidArgument("--keys " + arguments.keys_dir +
                           " without a link to use them for: give --listen, --peer or "
                           "--peers-file, or leave it out");
  }
  if (options->any() && !arguments.insecure)
    return InvalidArgument(
        "links need to know who is at their other end: give --keys DIR (" + std::string(kMakeKeys) +
        "), or --insecure where every user and program of this machine may read and write its "
        "regions");
  return options->listen.has_value() ? LoopbackOnly(*options->listen, "--listen") : Status();
}

// The text of a file of peers. Whatever is at `path`, this does not wait for another program, and
// takes bounded time and memory: the thread of the links calls it.
Result<std::string> ReadPeersText(const std::string& path) {
  const std::string reading = "reading the peers file " + path;
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat info {};
  if (!fd || fstat(fd.get(), &info) != 0) return FromErrno(errno, reading);
  if (!S_ISREG(info.st_mode)) return InvalidArgument("peers file " + path + ": not a regular file");
  std::string text(kMaxPeersFileBytes + 1, '\0');
  size_t got = 0;
  while (got < text.size()) {
    const ssize_t n = read(fd.get(), text.data() + got, text.size() - got);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FromErrno(errno, reading);
    if (n == 0) break;
    got += static_cast<size_t>(n);
  }
  if (got > kMaxPeersFileBytes)
    return InvalidArgument(Text("peers file ", path, ": more than ", kMaxPeersFileBytes, " bytes"));
  text.resize(got);
  return text;
}

// Adds the hosts of the keys that nothing else names, without this one.
Status AddHosts(const identity::KeyRing& keys, std::vector<LinkPeer>* peers) {
  std::map<uint64_t, std::string> taken;  // GID prefixes, and the names that they are of
  for (const LinkPeer& peer : *peers) taken.emplace(GidPrefix(peer.host), peer.host);
  for (const identity::HostLine& host : keys.hosts()) {
    if (host.key == keys.public_key() || host.name == keys.name()) continue;
    const auto [other, added] = taken.emplace(GidPrefix(host.name), host.name);
    if (!added && other->second == host.name) continue;
    if (!added)
      return InvalidArgument(Text(keys.hosts_file(), ": host ", host.name,
                                  " cannot be told apart from ", other->second,
                                  " on links: give one another name"));
    HL_ASSIGN_OR_RETURN(LinkAddress address, ParseLinkAddress(host.At(identity::kLinkPort), false));
    peers->push_back({host.name, address});
  }
  return {};
}

}  // namespace

std::string LinkAddress::ToString() const {
  char host[NI_MAXHOST], service[NI_MAXSERV];
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&storage), length, host, sizeof host, service,
                  sizeof service, NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return "?";
  return storage.ss_family == AF_INET6 ? "[" + std::string(host) + "]:" + service
                                       : std::string(host) + ":" + service;
}

bool LinkAddress::loopback() const {
  if (storage.ss_family == AF_INET)
    return (ntohl(reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr.s_addr) >> 24) == 127;
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&v6);
}

uint16_t LinkAddress::port() const {
  return ntohs(storage.ss_family == AF_INET
                   ? reinterpret_cast<const sockaddr_in*>(&storage)->sin_port
                   : reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
}

std::string LinkAddress::Source() const {
  if (storage.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr;
    return std::string(reinterpret_cast<const char*>(&v4), sizeof v4);
  }
  const auto* const v6 =
      reinterpret_cast<const char*>(&reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr);
  // An IPv4 address on a socket that serves both families.
  if (IN6_IS_ADDR_V4MAPPED(reinterpret_cast<const in6_addr*>(v6))) return std::string(v6 + 12, 4);
  return std::string(v6, 8);
}

bool LinkAddress::wildcard() const {
  if (storage.ss_family == AF_INET)
    return reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr.s_addr == INADDR_ANY;
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr;
  return IN6_IS_ADDR_UNSPECIFIED(&v6);
}

bool LinkAddress::SameHost(const LinkAddress& other) const {
  if (storage.ss_family != other.storage.ss_family) return false;
  if (storage.ss_family == AF_INET)
    return reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in*>(&other.storage)->sin_addr.s_addr;
  return IN6_ARE_ADDR_EQUAL(&reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr,
                            &reinterpret_cast<const sockaddr_in6*>(&other.storage)->sin6_addr);
}

uint32_t LinkAddress::interface() const {
  if (storage.ss_family != AF_INET6) return 0;
  return reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_scope_id;
}

OwnAddresses::OwnAddresses(const LinkAddress& listening) : listening_(listening) {
  ifaddrs* all = nullptr;
  if (!listening_.wildcard() || getifaddrs(&all) != 0) return;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(all, freeifaddrs);
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    const int family = each->ifa_addr == nullptr ? AF_UNSPEC : each->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    LinkAddress address;
    address.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&address.storage, each->ifa_addr, address.length);
    interfaces_.push_back(address);
  }
}

bool OwnAddresses::Has(const LinkAddress& address) const {
  if (address == listening_) return true;
  // [::] takes IPv4, too.
  if (!listening_.wildcard() || address.port() != listening_.port() ||
      (listening_.storage.ss_family == AF_INET && address.storage.ss_family != AF_INET))
    return false;
  return address.loopback() || address.wildcard() ||
         std::ranges::any_of(interfaces_,
                             [&](const LinkAddress& own) { return own.SameHost(address); });
}

Result<LinkAddress> ParseLinkAddress(std::string_view text, bool any_port) {
  const auto bad = [&](const char* why) {
    return InvalidArgument("link address \"" + std::string(text) + "\": " + why +
                           "; expected a numeric ADDRESS:PORT, such as 10.0.0.1:7471 or "
                           "[fd00::1]:7471");
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad("no port");
  std::string_view host = text.substr(0, colon);
  const std::string_view port_text = text.substr(colon + 1);
  const bool bracketed = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (host.find(':') != std::string_view::npos && !bracketed)
    return bad("an IPv6 address needs brackets");
  unsigned port = 0;
  const auto [end, error] =
      std::from_chars(port_text.data(), port_text.data() + port_text.size(), port);
  if (error != std::errc() || end != port_text.data() + port_text.size() || port > 65535 ||
      (port == 0 && !any_port))
    return bad("a port is 1 to 65535");
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (host.empty() ||
      getaddrinfo(std::string(host).c_str(), std::string(port_text).c_str(), &hints, &found) != 0)
    return bad("not a numeric address");
  LinkAddress address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.length = found->ai_addrlen;
  freeaddrinfo(found);
  return address;
}

Result<LinkPeer> ParseLinkPeer(std::string_view text) {
  const size_t equals = text.find('=');
  const std::string_view host = text.substr(0, equals);
  if (equals == std::string_view::npos || !IsName(host))
    return InvalidArgument(
        Text("peer \"", text, "\": expected HOST=ADDRESS:PORT with a host name of ", kNameRule));
  HL_ASSIGN_OR_RETURN(LinkAddress address, ParseLinkAddress(text.substr(equals + 1), false));
  return LinkPeer{std::string(host), address};
}

Result<std::vector<LinkPeer>> ReadPeersFile(const std::string& path, std::vector<LinkPeer> given) {
  HL_ASSIGN_OR_RETURN(const std::string text, ReadPeersText(path));
  std::vector<LinkPeer> peers = std::move(given);
  std::map<uint64_t, std::string> taken;  // GID prefixes, and the names that they are of
  for (const LinkPeer& peer : peers) taken.emplace(GidPrefix(peer.host), peer.host);
  std::string_view left = text;
  for (int number = 1; !left.empty(); ++number) {
    std::string_view line = left.substr(0, left.find('\n'));
    left.remove_prefix(std::min(line.size() + 1, left.size()));
    while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back())) != 0)
      line.remove_suffix(1);
    if (line.empty() || line.front() == '#') continue;
    auto peer = ParseLinkPeer(line);
    if (!peer.ok()) return peer.status().WithContext(path + ":" + std::to_string(number));
    const auto [other, added] = taken.emplace(GidPrefix(peer->host), peer->host);
    if (!added)
      return InvalidArgument(Text(path, ":", number, ": host ", peer->host,
                                  other->second == peer->host
                                      ? Text(" is named twice")
                                      : Text(" cannot be told apart from ", other->second,
                                             " on links: give one another name")));
    peers.push_back(std::move(*peer));
  }
  return peers;
}

std::string LinkOptions::PeersFiles() const {
  const std::string hosts = has_hosts() ? keys->hosts_file() : "";
  return Text(peers_file, peers_file.empty() || hosts.empty() ? "" : " and ", hosts);
}

Result<std::vector<LinkPeer>> LinkOptions::ReadPeers() const {
  std::vector<LinkPeer> all = peers;
  if (!peers_file.empty()) {
    HL_ASSIGN_OR_RETURN(all, ReadPeersFile(peers_file, std::move(all)));
  }
  if (has_hosts()) HL_RETURN_IF_ERROR(AddHosts(*keys, &all));
  for (const LinkPeer& peer : all)
    if (keys == nullptr) HL_RETURN_IF_ERROR(LoopbackOnly(peer.address, "peer " + peer.host + "="));
  return all;
}

Result<LinkOptions> MakeLinkOptions(const LinkArguments& arguments) {
  LinkOptions options;
  options.peers_file = arguments.peers_file;
  for (const std::string& text : arguments.peers) {
    HL_ASSIGN_OR_RETURN(LinkPeer peer, ParseLinkPeer(text));
    options.peers.push_back(std::move(peer));
  }
  if (!arguments.listen.empty()) {
    HL_ASSIGN_OR_RETURN(options.listen, ParseLinkAddress(arguments.listen, true));
  }
  HL_RETURN_IF_ERROR(TakeKeys(arguments, &options));
  if (!arguments.node.empty() && !options.any()) options.later = arguments;
  return options;
}

}  // namespace hyperloop::softrnic
