#include "hyperloop/identity/keys.h"

#include <sodium.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "base/identity/keys_directory.h"
#include "base/identity/noise_xx.h"
#include "hyperloop/core/name.h"
#include "hyperloop/core/text.h"
#include "hyperloop/identity/hosts.h"

namespace hyperloop::identity {
namespace {

constexpr const char* kTrustedHeader =
    "# Whom this host trusts: NAME PUBLIC_KEY_HEX ROLES [ENDPOINT]\n"
    "# ROLES: a comma list of primary, replica, link. A name may have several keys, a line each.\n";

// Has `change` make another text of the `trusted` of `dir`; the same one: nothing is written.
template <class Change>
Status ChangeTrusted(const std::string& dir, Change&& change) {
  HL_ASSIGN_OR_RETURN(const UniqueFd folder, OpenKeysDirectory(dir));
  if (flock(folder.get(), LOCK_EX) != 0) return FromErrno(errno, "locking " + dir);
  std::string before = kTrustedHeader;
  const auto text = ReadKeysFile(folder.get(), dir, kTrustedFile, /*secret=*/false);
  if (text.ok()) {
    before = text->view();
  } else if (text.status().code() != Code::kNotFound) {
    return text.status();
  }
  const std::string path = dir + "/" + kTrustedFile;
  HL_RETURN_IF_ERROR(ParseTrusted(before).status().WithContext(path));
  const Result<std::string> after = change(before);
  HL_RETURN_IF_ERROR(after.status().WithContext(path));
  HL_RETURN_IF_ERROR(ParseTrusted(*after).status().WithContext(path));
  if (text.ok() && *after == before) return {};
  return WriteKeysFile(folder.get(), dir, kTrustedFile, *after, 0644, /*replace=*/true);
}

Status StartCrypto() {
  if (sodium_init() < 0) return Internal("libsodium cannot be initialised");
  return {};
}

}  // namespace

SecretKey::~SecretKey() { sodium_memzero(bytes_.data(), bytes_.size()); }

// --- Peer

std::string Peer::names() const {
  std::string text;
  for (auto each = lines_.begin(); each != lines_.end(); ++each)
    if (std::find_if(lines_.begin(), each,
                     [&](const auto& before) { return before.name == each->name; }) == each)
      text += (text.empty() ? "" : ",") + each->name;
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

// What the files of trust hold, as they were read last.
struct KeyRing::Files {
  struct Group {
    Seen seen;
    std::optional<GroupFile> file;
  };
  std::vector<TrustedPeer> listed;  // by `trusted` itself
  std::string hosts_path;           // to which it points
  Seen hosts_seen;
  bool hosts_good = true;    // the text that was read last
  bool hosts_usable = true;  // at the last reading
  std::vector<HostLine> hosts;
  Seen groups_seen;                      // why their folder could not be read
  std::map<std::string, Group> groups;   // by path
  std::array<unsigned char, 32> seen{};  // a hash of what all files of the ring held last
  bool changed = false;                  // since they were published
  bool hosts_changed = false;
};

KeyRing::KeyRing(std::string dir)
    : dir_(std::move(dir)),
      identity_seen_(std::make_unique<Seen>()),
      trusted_seen_(std::make_unique<Seen>()),
      files_(std::make_unique<Files>()) {}

KeyRing::~KeyRing() = default;

Result<std::shared_ptr<KeyRing>> KeyRing::Load(const std::string& dir) {
  HL_RETURN_IF_ERROR(StartCrypto());
  std::shared_ptr<KeyRing> ring(new KeyRing(dir));
  MutexLock lock(ring->refresh_mutex_);
  HL_RETURN_IF_ERROR(ring->ReadAll(/*first_time=*/true));
  // What is wrong with a group is told to who refreshes, and keeps nobody from starting.
  std::map<std::string, Files::Group>& read = ring->files_->groups;
  const Status groups = ring->ReadGroups();
  if (!groups.ok()) {
    ring->files_->groups_seen = {};
    for (auto& [path, group] : read)
      if (!group.file.has_value()) group.seen = {};
  }
  ring->NoteSeen();
  ring->Publish();
  return ring;
}

Status KeyRing::Refresh() {
  MutexLock lock(refresh_mutex_);
  const Status status = ReadAll(/*first_time=*/false);
  NoteSeen();
  Publish();
  return status;
}

// `first_time`: groups are left out, and hosts may be missing.
Status KeyRing::ReadAll(bool first_time) {
  const auto folder = OpenKeysDirectory(dir_);
  if (!folder.ok()) {
    // Both remember it, so that it is reported once.
    const auto tell = [&folder] { return folder.status(); };
    const Status first = identity_seen_->Changed(folder.status().message(), tell);
    const Status second = trusted_seen_->Changed(folder.status().message(), tell);
    return first.ok() ? second : first;
  }
  Status first;
  for (const Status& each : {ReadIdentity(folder->get()), ReadTrusted(folder->get()),
                             ReadHosts(first_time), first_time ? Status() : ReadGroups()}) {
    if (each.ok()) continue;
    first = first.ok() ? each : Status(first.code(), first.message() + "; " + each.message());
  }
  return first;
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
  Files& files = *files_;
  const auto text = ReadKeysFile(folder, dir_, kTrustedFile, /*secret=*/false);
  if (!text.ok())
    return trusted_seen_->Changed(text.status().message(), [&text] { return text.status(); });
  return trusted_seen_->Changed(text->view(), [&]() -> Status {
    std::string hosts_path;
    auto trusted = ParseTrusted(text->view(), &hosts_path);
    if (!trusted.ok()) return trusted.status().WithContext(dir_ + "/" + kTrustedFile);
    files.listed = *std::move(trusted);
    files.changed = true;
    if (files.hosts_path == hosts_path) return {};
    files.hosts_path = std::move(hosts_path);
    files.hosts_seen = {};
    files.hosts_usable = true;
    files.hosts_changed = true;
    files.hosts.clear();
    files.groups.clear();
    return {};
  });
}

Status KeyRing::ReadHosts(bool first_time) {
  Files& files = *files_;
  const std::string& path = files.hosts_path;
  if (path.empty()) return {};
  const auto text = ReadNodeFile(path, kMostHostsBytes);
  const bool not_yet = text.status().code() == Code::kNotFound && files.hosts.empty();
  files.hosts_usable = not_yet;
  if (not_yet && first_time) return {};
  if (not_yet)
    return files.hosts_seen.Changed(std::string_view("\0", 1), [&] {
      return NotFound(Text("hosts file ", path, ", to which ", dir_, "/", kTrustedFile,
                           " points, is not there: put there, on all hosts alike, the lines that "
                           "hyperloopctl node init prints on each"));
    });
  if (!text.ok())
    return files.hosts_seen.Changed(text.status().message(), [&text] { return text.status(); });
  const Status taken = files.hosts_seen.Changed(*text, [&]() -> Status {
    files.hosts_good = false;
    HL_ASSIGN_OR_RETURN(files.hosts, ParseHosts(*text, path));
    files.hosts_good = files.changed = files.hosts_changed = true;
    return {};
  });
  files.hosts_usable = files.hosts_good;
  return taken;
}

Status KeyRing::ReadGroups() {
  Files& files = *files_;
  if (files.hosts_path.empty()) return {};
  const auto paths = GroupFilesBeside(files.hosts_path);
  if (!paths.ok())
    return files.groups_seen.Changed(paths.status().message(), [&paths] { return paths.status(); });
  files.groups_seen = {};
  const size_t gone = std::erase_if(files.groups, [&](const auto& each) {
    return !std::ranges::binary_search(*paths, each.first);
  });
  files.changed = files.changed || gone != 0;
  Status first;
  for (const std::string& path : *paths) {
    const Status read = ReadGroupAt(path);
    if (first.ok()) first = read;
  }
  return first;
}

Status KeyRing::ReadGroupAt(const std::string& path) {
  Files& files = *files_;
  Files::Group& group = files.groups[path];
  const auto text = ReadNodeFile(path, kMostGroupBytes);
  if (!text.ok())
    return group.seen.Changed(text.status().message(), [&text] { return text.status(); });
  return group.seen.Changed(*text, [&]() -> Status {
    HL_ASSIGN_OR_RETURN(group.file, ParseGroup(*text, path));
    files.changed = true;
    return {};
  });
}

void KeyRing::NoteSeen() {
  crypto_generichash_state state;
  crypto_generichash_init(&state, nullptr, 0, files_->seen.size());
  const auto add = [&state](const Seen& seen) {
    crypto_generichash_update(&state, seen.hash.data(), seen.hash.size());
  };
  add(*identity_seen_);
  add(*trusted_seen_);
  add(files_->hosts_seen);
  add(files_->groups_seen);
  for (const auto& [path, group] : files_->groups) {
    crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(path.c_str()),
                              path.size() + 1);
    add(group.seen);
  }
  std::array<unsigned char, 32> now;
  crypto_generichash_final(&state, now.data(), now.size());
  const bool changed = std::exchange(files_->seen, now) != now;
  const MutexLock lock(mutex_);
  seen_generation_ += changed ? 1 : 0;
  hosts_usable_ = files_->hosts_usable;
}

// Puts what was read in force.
void KeyRing::Publish() {
  if (!files_->changed && !files_->hosts_changed) return;
  std::vector<GroupFile> groups;
  for (const auto& [path, group] : files_->groups)
    if (group.file.has_value()) groups.push_back(*group.file);
  std::vector<TrustedPeer> trusted = files_->listed;
  const size_t listed = trusted.size();
  std::ranges::move(TrustOf(files_->hosts, groups), std::back_inserter(trusted));
  std::vector<HostLine> hosts = files_->hosts;
  std::string hosts_file = files_->hosts_path;
  MutexLock lock(mutex_);
  trusted_.swap(trusted);
  listed_ = listed;
  hosts_.swap(hosts);
  hosts_file_.swap(hosts_file);
  ++generation_;
  if (files_->hosts_changed) ++hosts_generation_;
  files_->changed = files_->hosts_changed = false;
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
  const bool listed =
      std::any_of(trusted_.begin(), trusted_.begin() + static_cast<ptrdiff_t>(listed_),
                  [&](const TrustedPeer& each) { return each.key == key; });
  if (!listed && key == key_pair_.public_key) lines.push_back({name_, key, kEveryRole});
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

bool KeyRing::has_hosts_file() const {
  const MutexLock lock(mutex_);
  return !hosts_file_.empty();
}

std::string KeyRing::hosts_file() const {
  MutexLock lock(mutex_);
  return hosts_file_;
}

std::vector<HostLine> KeyRing::hosts() const {
  MutexLock lock(mutex_);
  return hosts_;
}

uint64_t KeyRing::hosts_generation() const {
  MutexLock lock(mutex_);
  return hosts_generation_;
}

uint64_t KeyRing::generation() const {
  MutexLock lock(mutex_);
  return generation_;
}

uint64_t KeyRing::seen_generation() const {
  MutexLock lock(mutex_);
  return seen_generation_;
}

bool KeyRing::hosts_usable() const {
  MutexLock lock(mutex_);
  return hosts_usable_;
}

std::string KeyRing::TrustCommand(std::string_view name, const PublicKey& key, Roles needed,
                                  std::string_view endpoint) const {
  if (const std::string file = hosts_file(); !file.empty()) {
    if (std::ranges::count(hosts(), key, &HostLine::key) == 0)
      return Text("put the line that hyperloopctl node init prints on ", name, " into ", file);
    return Text("name ", name, " among the hosts of a group, in the folder groups beside ", file,
                endpoint.empty() ? "" : ", with the address and port of ", endpoint);
  }
  const std::string last = Text(endpoint.empty() ? "" : " ", endpoint);
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
  if (own != 0 || others.empty()) return command + RolesText(own | needed) + last;
  return command + "ROLES (" + std::string(name) + " " + others +
         ": give this key its name only if its operator says that it is its new one)" + last;
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
  return ChangeTrusted(dir, [&](const std::string& before) -> Result<std::string> {
    std::string after;
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
    return after;
  });
}

Status TrustHosts(const std::string& dir, const std::string& path) {
  HL_RETURN_IF_ERROR(StartCrypto());
  return ChangeTrusted(dir, [&](const std::string& before) -> Result<std::string> {
    std::string present;
    HL_RETURN_IF_ERROR(ParseTrusted(before, &present).status());
    if (present == path) return before;
    if (!present.empty())
      return AlreadyExists(Text("its line @hosts names ", present, ", not ", path,
                                ": change that line, or use the folder of that file"));
    return Text(before, before.empty() || before.ends_with('\n') ? "" : "\n", "@hosts ", path,
                "\n");
  });
}

}  // namespace hyperloop::identity
