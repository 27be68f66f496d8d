#include "hyperloop/identity/keys.h"

#include <sodium.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "hyperloop/core/name.h"
#include "hyperloop/core/text.h"
#include "identity/keys_directory.h"
#include "identity/noise_xx.h"

namespace hyperloop::identity {
namespace {

constexpr const char* kTrustedHeader =
    "# Whom this host trusts: NAME PUBLIC_KEY_HEX ROLES [ENDPOINT]\n"
    "# ROLES: a comma list of primary, replica, link. A name may have several keys, a line each.\n";

Status StartCrypto() {
  if (sodium_init() < 0) return Internal("libsodium cannot be initialised");
  return {};
}

}  // namespace

SecretKey::~SecretKey() { sodium_memzero(bytes_.data(), bytes_.size()); }

// --- Peer

std::string Peer::names() const {
  std::string text;
  for (const TrustedPeer& each : lines_) text += (text.empty() ? "" : ",") + each.name;
  return text;
}

Roles Peer::roles() const {
  Roles roles = 0;
  for (const TrustedPeer& each : lines_) roles |= each.roles;
  return roles;
}

bool Peer::Is(std::string_view name, Roles any_of) const {
  return std::any_of(lines_.begin(), lines_.end(), [&](const TrustedPeer& each) {
    return each.name == name && (each.roles & any_of) != 0;
  });
}

// --- KeyRing

// Remembers what a file held, or why it could not be read, when it was read last. It keeps a hash
// alone, so that no second copy of the secret exists.
struct KeyRing::Seen {
  std::array<unsigned char, 32> hash{};
  // Has `take` take `what`, and remembers it then, unless it is what was taken the last time. What
  // `take` ran out of memory for is taken the next time.
  template <class Take>
  Status Changed(std::string_view what, Take&& take) {
    std::array<unsigned char, 32> now;
    crypto_generichash(now.data(), now.size(), reinterpret_cast<const unsigned char*>(what.data()),
                       what.size(), nullptr, 0);
    if (now == hash) return {};
    Status taken = take();
    hash = now;
    return taken;
  }
};

KeyRing::KeyRing(std::string dir)
    : dir_(std::move(dir)),
      identity_seen_(std::make_unique<Seen>()),
      trusted_seen_(std::make_unique<Seen>()) {}

KeyRing::~KeyRing() = default;

Result<std::shared_ptr<KeyRing>> KeyRing::Load(const std::string& dir) {
  HL_RETURN_IF_ERROR(StartCrypto());
  std::shared_ptr<KeyRing> ring(new KeyRing(dir));
  HL_RETURN_IF_ERROR(ring->Refresh());
  return ring;
}

Status KeyRing::Refresh() {
  MutexLock lock(refresh_mutex_);
  const auto folder = OpenKeysDirectory(dir_);
  if (!folder.ok()) {
    // Both remember it, so that it is reported once.
    const auto tell = [&folder] { return folder.status(); };
    const Status first = identity_seen_->Changed(folder.status().message(), tell);
    const Status second = trusted_seen_->Changed(folder.status().message(), tell);
    return first.ok() ? second : first;
  }
  const Status identity = ReadIdentity(folder->get());
  const Status trusted = ReadTrusted(folder->get());
  if (identity.ok() || trusted.ok()) return identity.ok() ? trusted : identity;
  return {identity.code(), identity.message() + "; " + trusted.message()};
}

Status KeyRing::ReadIdentity(int folder) {
  const auto text = ReadKeysFile(folder, dir_, kIdentityFile, /*secret=*/true);
  if (!text.ok())
    return identity_seen_->Changed(text.status().message(), [&text] { return text.status(); });
  return identity_seen_->Changed(text->view(), [&]() -> Status {
    auto identity = ParseIdentity(text->view());
    const std::string path = dir_ + "/" + kIdentityFile;
    if (!identity.ok()) return identity.status().WithContext(path);
    if (!name_.empty() && identity->name != name_)
      return InvalidArgument(path + " names this host " + identity->name + ", and it was " + name_ +
                             ": a name is changed by starting the programs anew");
    MutexLock lock(mutex_);
    if (name_.empty()) name_ = identity->name;
    key_pair_ = {PublicKeyOf(identity->secret), identity->secret};
    return {};
  });
}

Status KeyRing::ReadTrusted(int folder) {
  const auto text = ReadKeysFile(folder, dir_, kTrustedFile, /*secret=*/false);
  if (!text.ok())
    return trusted_seen_->Changed(text.status().message(), [&text] { return text.status(); });
  return trusted_seen_->Changed(text->view(), [&]() -> Status {
    auto trusted = ParseTrusted(text->view());
    if (!trusted.ok()) return trusted.status().WithContext(dir_ + "/" + kTrustedFile);
    MutexLock lock(mutex_);
    trusted_ = *std::move(trusted);
    ++generation_;
    return {};
  });
}

PublicKey KeyRing::public_key() const {
  MutexLock lock(mutex_);
  return key_pair_.public_key;
}

KeyPair KeyRing::key_pair() const {
  MutexLock lock(mutex_);
  return key_pair_;
}

std::optional<Peer> KeyRing::Find(const PublicKey& key) const {
  MutexLock lock(mutex_);
  std::vector<TrustedPeer> lines;
  for (const TrustedPeer& each : trusted_)
    if (each.key == key) lines.push_back(each);
  if (lines.empty() && key == key_pair_.public_key) lines.push_back({name_, key, kEveryRole});
  if (lines.empty()) return std::nullopt;
  return Peer(std::move(lines));
}

std::vector<std::string> KeyRing::NamesAt(std::string_view endpoint) const {
  MutexLock lock(mutex_);
  std::vector<std::string> names;
  for (const TrustedPeer& each : trusted_)
    if (each.endpoint == endpoint &&
        std::find(names.begin(), names.end(), each.name) == names.end())
      names.push_back(each.name);
  return names;
}

std::vector<TrustedPeer> KeyRing::trusted() const {
  MutexLock lock(mutex_);
  return trusted_;
}

uint64_t KeyRing::generation() const {
  MutexLock lock(mutex_);
  return generation_;
}

std::string KeyRing::TrustCommand(std::string_view name, const PublicKey& key, Roles needed) const {
  Roles own = 0;
  std::string others;
  if (name == name_ && key != public_key()) others = "is this host";
  for (const TrustedPeer& each : trusted()) {
    if (each.name != name) continue;
    if (each.key == key) {
      own |= each.roles;
    } else if (others.empty()) {
      others = "has another key here, with the roles " + RolesText(each.roles);
    }
  }
  std::string command =
      "hyperloopctl keys trust --dir " + dir_ + " " + std::string(name) + " " + KeyText(key) + " ";
  if (own != 0 || others.empty()) return command + RolesText(own | needed);
  return command + "ROLES (" + std::string(name) + " " + others +
         ": give this key its name only if its operator says that it is its new one)";
}

// --- changing the files

Status MakeIdentity(const std::string& dir, const std::string& name) {
  HL_RETURN_IF_ERROR(StartCrypto());
  if (!IsName(name)) return InvalidArgument(Text("the name of a host is ", kNameRule));
  if (mkdir(dir.c_str(), 0700) != 0 && errno != EEXIST)
    return FromErrno(errno, "making the keys directory " + dir);
  HL_ASSIGN_OR_RETURN(const UniqueFd folder, OpenKeysDirectory(dir));
  Identity identity;
  identity.name = name;
  randombytes_buf(identity.secret.data(), kKeyBytes);
  FileText text;
  WriteIdentity(identity, &text);
  HL_RETURN_IF_ERROR(
      WriteKeysFile(folder.get(), dir, kIdentityFile, text.view(), 0600, /*replace=*/false));
  const Status trusted =
      WriteKeysFile(folder.get(), dir, kTrustedFile, kTrustedHeader, 0644, /*replace=*/false);
  return trusted.code() == Code::kAlreadyExists ? Status() : trusted;
}

Status Trust(const std::string& dir, const TrustedPeer& peer) {
  HL_RETURN_IF_ERROR(StartCrypto());
  if (const auto checked = ParseTrusted(peer.Line()); !checked.ok())
    return InvalidArgument("trusted peer: " + checked.status().message());
  HL_ASSIGN_OR_RETURN(const UniqueFd folder, OpenKeysDirectory(dir));
  if (flock(folder.get(), LOCK_EX) != 0) return FromErrno(errno, "locking " + dir);
  std::string before = kTrustedHeader, after;
  auto text = ReadKeysFile(folder.get(), dir, kTrustedFile, /*secret=*/false);
  if (text.ok()) {
    before = text->view();
  } else if (text.status().code() != Code::kNotFound) {
    return text.status();
  }
  if (const auto good = ParseTrusted(before); !good.ok())
    return good.status().WithContext(dir + "/" + kTrustedFile);
  bool replaced = false;
  for (size_t at = 0; at < before.size();) {
    const size_t end = std::min(before.find('\n', at), before.size());
    const std::string line = before.substr(at, end - at);
    const auto parsed = ParseTrusted(line);
    const bool same =
        !parsed->empty() && parsed->front().name == peer.name && parsed->front().key == peer.key;
    after += (same ? peer.Line() : line) + "\n";
    replaced = replaced || same;
    at = end + 1;
  }
  if (!replaced) after += peer.Line() + "\n";
  if (const auto good = ParseTrusted(after); !good.ok())
    return good.status().WithContext(dir + "/" + kTrustedFile);
  return WriteKeysFile(folder.get(), dir, kTrustedFile, after, 0644, /*replace=*/true);
}

}  // namespace hyperloop::identity
