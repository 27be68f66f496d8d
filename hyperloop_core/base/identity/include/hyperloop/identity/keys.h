// Keys: who this host is, and whom it trusts.
//
// A host has one identity: a name and an X25519 key pair, used for links and control plane alike.
// It lies in a keys directory of two files:
//
//   identity   this host's name and secret key; mode 0600, of this user or root
//   trusted    one line a peer: NAME PUBLIC_KEY_HEX ROLES [ENDPOINT]; # begins a comment; and
//              at most one line "@hosts FILE": whom FILE names is trusted, too (hosts.h)
//
// ROLES are a comma list of primary, replica and link. A NAME may have several lines with different
// keys, so that a key is changed without stopping: add the new one everywhere, change the identity,
// remove the old one. One key may have several NAMEs (a daemon that serves several hosts). ENDPOINT
// is the ADDRESS:PORT at which the peer is found. A host trusts its own key without a line.
//
// Both files and the directory are refused where others could write them, `identity` also where
// others could read it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hyperloop/core/mutex.h"
#include "hyperloop/core/status.h"

namespace hyperloop::identity {

inline constexpr size_t kKeyBytes = 32;
using PublicKey = std::array<unsigned char, kKeyBytes>;

std::string KeyText(const PublicKey& key);  // 64 hexadecimal digits
Result<PublicKey> ParseKey(std::string_view text);

// What a peer may be. A set of roles is their bitwise or.
using Roles = unsigned;
inline constexpr Roles kRolePrimary = 1;
inline constexpr Roles kRoleReplica = 2;
inline constexpr Roles kRoleLink = 4;
inline constexpr Roles kEveryRole = kRolePrimary | kRoleReplica | kRoleLink;
std::string RolesText(Roles roles);  // "primary,link"
Result<Roles> ParseRoles(std::string_view text);

// A line of `trusted`.
struct TrustedPeer {
  std::string name;
  PublicKey key{};
  Roles roles = 0;
  std::string endpoint{};  // empty: not told

  std::string Line() const;  // as in the file, without the newline
  friend bool operator==(const TrustedPeer&, const TrustedPeer&) = default;
};
// The text of a `trusted` file, without what a file of hosts adds. Its path goes to `hosts_file`,
// unless that is null; empty: there is none. kInvalidArgument names the line.
Result<std::vector<TrustedPeer>> ParseTrusted(std::string_view text,
                                              std::string* hosts_file = nullptr);

// A secret, overwritten when it goes.
class SecretKey {
 public:
  SecretKey() = default;
  SecretKey(const SecretKey&) = default;
  SecretKey& operator=(const SecretKey&) = default;
  ~SecretKey();

  unsigned char* data() { return bytes_.data(); }
  const unsigned char* data() const { return bytes_.data(); }

 private:
  std::array<unsigned char, kKeyBytes> bytes_{};
};

struct KeyPair {
  PublicKey public_key{};
  SecretKey secret;
};

// The host that a proven key belongs to: one line of `trusted` for each of its names.
class Peer {
 public:
  Peer() = default;
  explicit Peer(std::vector<TrustedPeer> lines) : lines_(std::move(lines)) {}

  // Its first name in `trusted`; empty: nobody has proved anything.
  std::string name() const { return lines_.empty() ? std::string() : lines_.front().name; }
  std::string names() const;  // all of them, for messages: "a,b"
  const std::vector<TrustedPeer>& lines() const { return lines_; }
  // Under any of its names.
  Roles roles() const;
  // True if one of its lines has this name and one of these roles.
  bool Is(std::string_view name, Roles any_of) const;

 private:
  std::vector<TrustedPeer> lines_;
};

struct HostLine;   // hosts.h
struct GroupFile;  // hosts.h

// A keys directory in memory, and the files of hosts and groups that its `trusted` points to. Safe
// for use by several threads.
class KeyRing {
 public:
  // kNotFound: no such directory or file; kPermissionDenied: others may read or change what they
  // must not; kInvalidArgument: a malformed file. All name the remedy. A file of hosts may be
  // missing yet. That, and a file of a group that cannot be used, which gives nobody a role, is
  // reported by the next Refresh.
  static Result<std::shared_ptr<KeyRing>> Load(const std::string& dir);
  ~KeyRing();

  // Reads the files again, for use when a connection begins: the changed ones take effect, for
  // connections that begin later. A file that is missing, unsafe or malformed leaves what was read
  // from it before in force, and is reported once, not again until it changes. So it is with each
  // file of a group; that one is gone takes the roles that it gave.
  Status Refresh();

  const std::string& dir() const { return dir_; }
  const std::string& name() const { return name_; }  // this host's; never changes
  PublicKey public_key() const;
  KeyPair key_pair() const;
  // Nothing: this key is not trusted. This host's own key needs no line: without one in `trusted`
  // itself it is this host with every role, for whoever has the secret of its identity is this
  // host.
  std::optional<Peer> Find(const PublicKey& key) const;
  // The names that `trusted` says are found at `endpoint`, each once.
  std::vector<std::string> NamesAt(std::string_view endpoint) const;
  // The lines of `trusted`, and behind them those that follow from the files of hosts and groups.
  std::vector<TrustedPeer> trusted() const;
  // The file of hosts to which `trusted` points; empty: to none.
  std::string hosts_file() const;
  bool has_hosts_file() const;  // takes no memory
  // Its lines; none: there is none, or not yet.
  std::vector<HostLine> hosts() const;
  // Goes up whenever other lines take the place of those that hosts() gives.
  uint64_t hosts_generation() const;
  // Goes up whenever other lines of `trusted` take the place of those in force, whoever has called
  // Refresh. Ask before the functions above: what they say is of this generation or a later one.
  uint64_t generation() const;
  // Goes up whenever a file holds something else than at the last reading, or cannot be read for
  // another reason, whether what it holds is put in force or not.
  uint64_t seen_generation() const;
  // False: the file of hosts could not be used when it was read last, so that hosts() is older.
  bool hosts_usable() const;
  // What gives `key` the name, `needed` and, unless it is empty, `endpoint`, for messages: if there
  // is a file of hosts, what to write there or beside it; else a command. Roles replace those of
  // the line, so the command has those that the name has with this key, too; never those that it
  // has with another one. Where it has only others, whether this is its new key is for a person to
  // find out: the command is not complete, and its text says why.
  std::string TrustCommand(std::string_view name, const PublicKey& key, Roles needed,
                           std::string_view endpoint = {}) const;

 private:
  struct Seen;
  struct Files;
  explicit KeyRing(std::string dir);
  Status ReadAll(bool first_time) HL_REQUIRES(refresh_mutex_);
  Status ReadIdentity(int folder) HL_REQUIRES(refresh_mutex_);
  Status ReadTrusted(int folder) HL_REQUIRES(refresh_mutex_);
  Status ReadHosts(bool first_time) HL_REQUIRES(refresh_mutex_);
  Status ReadGroups() HL_REQUIRES(refresh_mutex_);
  Status ReadGroupAt(const std::string& path) HL_REQUIRES(refresh_mutex_);
  void NoteSeen() HL_REQUIRES(refresh_mutex_);
  void Publish() HL_REQUIRES(refresh_mutex_);

  const std::string dir_;
  std::string name_;
  Mutex refresh_mutex_;  // one reads the files at a time
  std::unique_ptr<Seen> identity_seen_ HL_GUARDED_BY(refresh_mutex_);
  std::unique_ptr<Seen> trusted_seen_ HL_GUARDED_BY(refresh_mutex_);
  std::unique_ptr<Files> files_ HL_GUARDED_BY(refresh_mutex_);
  mutable Mutex mutex_;
  KeyPair key_pair_ HL_GUARDED_BY(mutex_);
  std::vector<TrustedPeer> trusted_ HL_GUARDED_BY(mutex_);
  size_t listed_ HL_GUARDED_BY(mutex_) = 0;  // of these, the first are lines of `trusted` itself
  std::string hosts_file_ HL_GUARDED_BY(mutex_);
  std::vector<HostLine> hosts_ HL_GUARDED_BY(mutex_);
  uint64_t hosts_generation_ HL_GUARDED_BY(mutex_) = 0;
  uint64_t generation_ HL_GUARDED_BY(mutex_) = 0;
  uint64_t seen_generation_ HL_GUARDED_BY(mutex_) = 0;
  bool hosts_usable_ HL_GUARDED_BY(mutex_) = true;
};

// Makes `dir` (mode 0700) if it does not exist, a new key pair in it under `name`, and an empty
// `trusted` if there is none. kAlreadyExists: there is an identity; it is never overwritten.
Status MakeIdentity(const std::string& dir, const std::string& name);

// Adds `peer` to the `trusted` of `dir`; where its name has that key already, its line is replaced.
// The file changes as a whole or not at all.
Status Trust(const std::string& dir, const TrustedPeer& peer);

// Has the `trusted` of `dir` point to the file of hosts `path`. kAlreadyExists: it points to
// another one.
Status TrustHosts(const std::string& dir, const std::string& path);

}  // namespace hyperloop::identity
