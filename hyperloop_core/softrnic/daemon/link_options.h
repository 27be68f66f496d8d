// The command line's options for links: addresses, peers, keys.
#pragma once

#include <sys/socket.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hyperloop/core/status.h"
#include "hyperloop/identity/ciphers.h"
#include "hyperloop/identity/keys.h"

namespace hyperloop::softrnic {

// A numeric IPv4 or IPv6 address and a port.
struct LinkAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  std::string ToString() const;  // "10.0.0.1:7471", "[::1]:7471"
  bool loopback() const;
  bool wildcard() const;  // 0.0.0.0, [::]
  uint16_t port() const;
  // Identifies the address's owner: an IPv4 address, or the first 64 bits of an IPv6 address,
  // because one owner has all addresses with these bits.
  std::string Source() const;
  // Whatever the ports and the interfaces (%eth0) are.
  bool SameHost(const LinkAddress& other) const;
  friend bool operator==(const LinkAddress& a, const LinkAddress& b) {
    return a.SameHost(b) && a.port() == b.port() && a.interface() == b.interface();
  }

 private:
  uint32_t interface() const;  // 0: not given
};

// The addresses at which a socket that listens at `listening` is reached on this machine, as they
// are when this is made.
class OwnAddresses {
 public:
  explicit OwnAddresses(const LinkAddress& listening);
  bool Has(const LinkAddress& address) const;

 private:
  const LinkAddress listening_;
  std::vector<LinkAddress>
      interfaces_;  // if listening_ is a wildcard; their ports count for nothing
};

// "10.0.0.1:7471" or "[fe80::1]:7471"; names are not looked up. Port 0 only if `any_port`.
Result<LinkAddress> ParseLinkAddress(std::string_view text, bool any_port);

struct LinkPeer {
  std::string host;
  LinkAddress address;
};
// "HOST=ADDRESS:PORT".
Result<LinkPeer> ParseLinkPeer(std::string_view text);
// `given` and, behind them, those of a file of such lines; empty ones and those that begin with #
// are left out. Errors name the line. One of them is a host that is named twice, or whose name's
// hash is another one's. Not kInvalidArgument: the reason may be this machine's, not the file's.
Result<std::vector<LinkPeer>> ReadPeersFile(const std::string& path,
                                            std::vector<LinkPeer> given = {});

// Texts as given on the command line; empty: not given.
struct LinkArguments {
  std::string listen, keys_dir;
  std::string node;  // folder of hosts and keys, which count once the keys point to the hosts
  bool insecure = false;
  std::vector<std::string> peers;
  std::string peers_file;
};

struct LinkOptions {
  std::optional<LinkAddress> listen;
  std::vector<LinkPeer> peers;              // those of the command line
  std::string peers_file;                   // names more; empty: there is none
  std::shared_ptr<identity::KeyRing> keys;  // null: links are not secured, or there are none
  identity::Ciphers ciphers;
  std::string warning;  // for the log: what is not as it should be; empty: nothing
  // There are no links yet. MakeLinkOptions makes some of these once the folder `node` has keys
  // that point to a file of hosts.
  std::optional<LinkArguments> later;

  bool any() const {
    return listen.has_value() || !peers.empty() || !peers_file.empty() || has_hosts();
  }
  // Whether the keys point to a file of hosts, whose lines are peers, too.
  bool has_hosts() const { return keys != nullptr && keys->has_hosts_file(); }
  // The files that name peers, for messages.
  std::string PeersFiles() const;
  // All peers, as the files name them now: of a host that several name, the command line counts
  // most, and the file of hosts least. This host's own line there is none. Without keys each must
  // be at a loopback address.
  Result<std::vector<LinkPeer>> ReadPeers() const;
};
// kInvalidArgument: links without keys, and without `insecure` or with an address that is not
// loopback; keys without any link, or keys together with `insecure`. kNotFound: the keys, or this
// host's line among the hosts of `node`, which there may be later.
Result<LinkOptions> MakeLinkOptions(const LinkArguments& arguments);

}  // namespace hyperloop::softrnic
