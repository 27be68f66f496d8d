// What the command line says about links: addresses, peers, the key.
#pragma once

#include <sys/socket.h>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hyperloop/core/status.h"

namespace hyperloop::softrnic {

// A numeric IPv4 or IPv6 address and a port.
struct LinkAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  std::string ToString() const;  // "10.0.0.1:7471", "[::1]:7471"
  bool loopback() const;
  bool wildcard() const;  // 0.0.0.0, [::]
  uint16_t port() const;
  friend bool operator==(const LinkAddress& a, const LinkAddress& b) {
    return a.ToString() == b.ToString();
  }
};

// True if who connects to `address` reaches what listens at `listening` on this machine.
bool Reaches(const LinkAddress& address, const LinkAddress& listening);

// "10.0.0.1:7471" or "[fe80::1]:7471"; names are not looked up. Port 0 only if `any_port`.
Result<LinkAddress> ParseLinkAddress(std::string_view text, bool any_port);

struct LinkPeer {
  std::string host;
  LinkAddress address;
};
// "HOST=ADDRESS:PORT".
Result<LinkPeer> ParseLinkPeer(std::string_view text);
// A file of such lines; empty ones and those that begin with # are left out. Errors name the line.
Result<std::vector<LinkPeer>> ReadPeersFile(const std::string& path);

using LinkKey = std::array<unsigned char, 32>;
// A file with 64 hexadecimal digits, of this user or root, that nobody else may read.
// kPermissionDenied and kInvalidArgument name the remedy.
Result<LinkKey> ReadLinkKey(const std::string& path);

struct LinkOptions {
  std::optional<LinkAddress> listen;
  std::vector<LinkPeer> peers;
  std::optional<LinkKey> key;

  bool any() const { return listen.has_value() || !peers.empty(); }
};
// Texts as given on the command line; empty: not given. Without a key every address must be
// loopback: otherwise kPermissionDenied. A key without anything to
// use it for is kInvalidArgument.
Result<LinkOptions> MakeLinkOptions(const std::string& listen, const std::string& key_file,
                                    const std::vector<std::string>& peers,
                                    const std::string& peers_file);

}  // namespace hyperloop::softrnic
