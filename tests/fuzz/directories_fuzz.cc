// Directories of any content: files, links, queues and directories with any names, modes and
// owners, in the place of a keys directory and of a replica's files, and on the way to them. Rules:
// what is believed can be changed by nobody else, by another way of looking at it, and what nobody
// else can change is not refused; a keys directory that cannot be used leaves in force what was
// read before; what a store lists can be read and removed, and nothing beside it is touched.
//
// Files of other users can be made by root only; elsewhere that part is left out.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/identity/keys_directory.h"
#include "files/file_store.h"
#include "fuzz/fuzz.h"
#include "hyperloop/core/name.h"
#include "hyperloop/core/trusted_files.h"
#include "hyperloop/identity/keys.h"
#include "hyperloop/replication/replica_files.h"
#include "support/must.h"

namespace hyperloop::fuzz {
namespace {

namespace stdfs = std::filesystem;
using identity::KeyRing;

constexpr uid_t kStranger = 65533;
constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;
constexpr int kMostSteps = 40;

// Places in the tree. kOwnName: a name of the input's, in the directory of files.
constexpr const char* kPlaces[] = {"d", "d/identity", "d/trusted", "d/e", "files", "l", "f"};
constexpr uint8_t kOwnName = std::size(kPlaces);
constexpr const char* kSpellings[] = {"", "/", "/.", "/../d", "/e/..", "//e", "/missing"};
constexpr mode_t kModes[] = {0600, 0700, 0644, 0755, 0660, 0777, 01777, 0606};

enum Step : uint8_t {
  kFile,
  kDirectory,
  kLink,
  kQueue,
  kMode,
  kOwner,
  kRemove,
  kCheck,
  kRead,
  kKeys,
  kTrust,
  kList,
  kAdd,
  kAside,
  kSteps
};

// Where this process may do so, and there is such a thing.
void Give(const std::string& path, uid_t user) {
  if (geteuid() != 0 || lchown(path.c_str(), user, user) == 0) return;
  HL_FUZZ_CHECK(errno == ENOENT || errno == ENOTDIR, path);
}

// A folder of this process with the tree and, beside it, what no link may lead out of: fresh for
// each input.
class Tree {
 public:
  Tree() : base_(Base()) {
    stdfs::remove_all(base_);
    for (const std::string& path : {base_, root(), base_ + "/beside"})
      HL_FUZZ_CHECK(mkdir(path.c_str(), 0700) == 0, path);
    std::ofstream(outside()) << "precious";
  }
  ~Tree() {
    std::ifstream in(outside());
    std::string text;
    HL_FUZZ_CHECK(std::getline(in, text) && text == "precious", "a file beside was changed");
  }
  std::string root() const { return base_ + "/tree"; }
  std::string outside() const { return base_ + "/precious"; }

 private:
  static const std::string& Base() {
    // It stays, because the function that runs at the exit reads it.
    static const std::string& base = *new std::string([] {
      std::string pattern = "/dev/shm/hyperloop-fuzz-XXXXXX";
      HL_FUZZ_CHECK(mkdtemp(pattern.data()) != nullptr, pattern);
      std::atexit([] { stdfs::remove_all(Base()); });
      return pattern;
    }());
    return base;
  }
  const std::string& base_;
};

// What lstat says, by another way of looking than the code's.
std::optional<struct stat> Look(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return std::nullopt;
  return info;
}
bool IsTrusted(const struct stat& info) { return info.st_uid == 0 || info.st_uid == geteuid(); }
bool IsSafeDirectory(const std::string& path) {
  const auto info = Look(path);
  return info && S_ISDIR(info->st_mode) && IsTrusted(*info) &&
         ((info->st_mode & kOthersWrite) == 0 || (info->st_mode & S_ISVTX) != 0);
}
// Whether `path`, which has no links, and all above it are safe.
bool IsSafe(stdfs::path path) {
  for (;; path = path.parent_path()) {
    if (!IsSafeDirectory(path)) return false;
    if (path == "/") return true;
  }
}
bool IsTrustedFile(const std::string& path, mode_t forbidden) {
  const auto info = Look(path);
  return info && S_ISREG(info->st_mode) && IsTrusted(*info) && (info->st_mode & forbidden) == 0;
}
std::string Contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class Explorer {
 public:
  explicit Explorer(Reader& in) : in_(in) {}
  void Run() {
    for (int i = 0; i < kMostSteps && !in_.done(); ++i) TakeStep();
  }

 private:
  std::string Place() {
    const uint8_t which = in_.U8() % (kOwnName + 1);
    if (which != kOwnName) return tree_.root() + "/" + kPlaces[which];
    const auto bytes = in_.Bytes(in_.U8());
    std::string name(bytes.begin(), bytes.end());
    std::replace(name.begin(), name.end(), '/', '_');
    std::replace(name.begin(), name.end(), '\0', '0');
    if (name.empty() || name == "." || name == "..") name = "x";
    return tree_.root() + "/files/" + name;
  }
  // A link may lead out of the tree.
  bool IsInside(const std::string& path) const {
    std::error_code error;
    const std::string parent = stdfs::canonical(stdfs::path(path).parent_path(), error).string();
    return !error && (parent + "/").starts_with(tree_.root() + "/");
  }

  void TakeStep() {
    const uint8_t step = in_.U8() % kSteps;
    if (step == kList) return List();
    if (step == kAdd) return Add();
    if (step == kAside) return SetAside();
    if (step == kKeys) return Keys();
    if (step == kTrust) return TrustOne();
    const std::string path = Place();
    const uint8_t how = in_.U8();
    const mode_t mode = kModes[how % std::size(kModes)];
    switch (step) {
      case kCheck:
        return Check(path + kSpellings[how % std::size(kSpellings)], (how & 128) != 0);
      case kRead:
        return Read(path, how);
      case kLink:
        return MakeLink(path, how);
      default:
        break;
    }
    if (!IsInside(path)) return;
    if (step == kRemove) {
      std::error_code ignored;
      stdfs::remove_all(path, ignored);
      return;
    }
    if (step == kFile) {
      WriteFile(path, how);
    } else if (step == kDirectory) {
      mkdir(path.c_str(), 0700);
    } else if (step == kQueue) {
      mkfifo(path.c_str(), 0600);
    } else if (step == kOwner) {
      Give(path, (how & 1) != 0 ? kStranger : geteuid());
    }
    if (step != kOwner && Look(path) && !S_ISLNK(Look(path)->st_mode))
      HL_FUZZ_CHECK(chmod(path.c_str(), mode) == 0, path);
  }

  void WriteFile(const std::string& path, uint8_t how) {
    const auto info = Look(path);
    if (info && !S_ISREG(info->st_mode)) return;
    const auto bytes = in_.Bytes(how < 128 ? 2 * in_.U8() : 0);
    std::string text(bytes.begin(), bytes.end());
    if (how >= 128) text = KnownText(how);
    std::ofstream(path, std::ios::binary).write(text.data(), static_cast<ssize_t>(text.size()));
  }
  static std::string KnownText(uint8_t how) {
    const std::string key(64, 'a');
    switch (how % 4) {
      case 0:
        return "name a\nsecret " + key + "\n";
      case 1:
        return "name b\nsecret " + std::string(64, 'b') + "\n";
      case 2:
        return "p " + key + " primary h:1\nq " + key + " replica h:1\np " + std::string(64, 'c') +
               " link h:2\n";
      default:
        return std::string(2 << 20, '#');  // longer than a file of keys may be
    }
  }
  void MakeLink(const std::string& path, uint8_t how) {
    const std::string targets[] = {tree_.root() + "/d", "f",  "../d/./e", "l", "../beside",
                                   tree_.outside(),     "..", "missing"};
    if (Look(path) || !IsInside(path)) return;
    if (symlink(targets[how % std::size(targets)].c_str(), path.c_str()) == 0 && how >= 192)
      Give(path, kStranger);
  }

  void Check(const std::string& path, bool own) {
    const auto checked = CheckDirectory(path, own ? DirectoryRule::kOwn : DirectoryRule::kShared);
    std::error_code error;
    const stdfs::path real = stdfs::canonical(path, error);
    if (!checked.ok()) {
      HL_FUZZ_CHECK(!checked.status().message().empty(), "a refusal without a reason");
      const bool linked = error || real != stdfs::path(path);
      HL_FUZZ_CHECK(linked || own || !IsSafe(real), checked.status().ToString());
      return;
    }
    HL_FUZZ_CHECK(!error && real == stdfs::path(*checked), *checked);
    HL_FUZZ_CHECK(IsSafe(real), *checked);
    const auto info = Look(*checked);
    HL_FUZZ_CHECK(!own || (info->st_uid == geteuid() && (info->st_mode & kOthersWrite) == 0),
                  *checked);
  }

  void Read(const std::string& path, uint8_t from) {
    const auto text = ReadTrustedFile(path, from);
    if (!text.ok()) {
      HL_FUZZ_CHECK(!IsTrustedFile(path, kOthersWrite), text.status().ToString());
      return;
    }
    HL_FUZZ_CHECK(IsTrustedFile(path, kOthersWrite), path);
    const std::string all = Contents(path);
    HL_FUZZ_CHECK(*text == all.substr(std::min<size_t>(from, all.size())), path);
  }

  // --- a keys directory

  std::string KeysDir() const { return tree_.root() + "/d"; }
  // Where it really lies.
  std::string RealKeysDir() const {
    std::error_code error;
    const stdfs::path real = stdfs::canonical(KeysDir(), error);
    return error ? KeysDir() : real.string();
  }

  void Keys() {
    const std::string dir = RealKeysDir();
    const std::string identity = dir + "/identity", trusted = dir + "/trusted";
    const bool usable = IsSafe(dir) && (Look(dir)->st_mode & kOthersWrite) == 0;
    if (ring_ == nullptr) {
      auto loaded = KeyRing::Load(KeysDir());
      if (!loaded.ok()) {
        HL_FUZZ_CHECK(!loaded.status().message().empty(), "a refusal without a reason");
        return;
      }
      ring_ = *std::move(loaded);
      HL_FUZZ_CHECK(usable && IsTrustedFile(identity, 077) && IsTrustedFile(trusted, 022),
                    "keys that others could read or change");
      HL_FUZZ_CHECK(IsName(ring_->name()), ring_->name());
      CheckTrusted(Contents(trusted));
      return;
    }
    const std::string name = ring_->name();
    const auto before = ring_->trusted();
    const auto key = ring_->public_key();
    const bool ok = ring_->Refresh().ok();
    HL_FUZZ_CHECK(ring_->name() == name, "another name");
    if (!usable || !IsTrustedFile(trusted, 022))
      HL_FUZZ_CHECK(ring_->trusted() == before, "trusted what others could have written");
    if (!usable || !IsTrustedFile(identity, 077))
      HL_FUZZ_CHECK(ring_->public_key() == key, "took a key that others could have written");
    // What cannot be read stays an error that is told once; so only new content shows.
    if (ok && ring_->trusted() != before) CheckTrusted(Contents(trusted));
  }
  void CheckTrusted(const std::string& text) const {
    const auto peers = identity::ParseTrusted(text);
    HL_FUZZ_CHECK(peers.ok() && ring_->trusted() == *peers,
                  "others are trusted than the file says");
    for (const identity::TrustedPeer& each : *peers) {
      const auto found = ring_->Find(each.key);
      HL_FUZZ_CHECK(found && found->Is(each.name, each.roles) && !found->names().empty(),
                    each.Line());
      const auto names = ring_->NamesAt(each.endpoint);
      HL_FUZZ_CHECK(std::count(names.begin(), names.end(), each.name) == 1, each.Line());
    }
  }

  // Adds a peer, or makes an identity; what is there stays, as far as it is sound.
  void TrustOne() {
    const std::string dir = RealKeysDir(), trusted = dir + "/trusted";
    const uint8_t how = in_.U8();
    const std::string name = (how & 64) != 0 ? "no name" : "n" + std::to_string(how % 8);
    if ((how & 128) != 0) {
      const bool there = Look(dir + "/identity").has_value();
      const Status made = identity::MakeIdentity(KeysDir(), name);
      HL_FUZZ_CHECK(!made.ok() || !there, "an identity was overwritten");
      return;
    }
    const bool was_file = IsTrustedFile(trusted, 022);
    const auto before = identity::ParseTrusted(was_file ? Contents(trusted) : "");
    identity::TrustedPeer peer{name, {}, identity::kRoleReplica, "h:1"};
    peer.key[0] = how % 4;
    if (!identity::Trust(KeysDir(), peer).ok()) return;
    HL_FUZZ_CHECK(IsSafe(dir) && IsTrustedFile(trusted, 022), "written where others may write");
    const auto after = Must(identity::ParseTrusted(Contents(trusted)));
    HL_FUZZ_CHECK(std::count(after.begin(), after.end(), peer) == 1, peer.Line());
    for (const identity::TrustedPeer& each : Must(before))
      HL_FUZZ_CHECK((each.name == peer.name && each.key == peer.key) ||
                        std::count(after.begin(), after.end(), each) == 1,
                    each.Line());
  }

  // --- a replica's files

  std::string FilesDir() const { return tree_.root() + "/files"; }

  void List() {
    auto store = FileStore::OpenToRead(FilesDir());
    if (!store.ok()) return;
    CheckStoreIsOwn();
    for (const FileStore::Stored& each : Must((*store)->List())) {
      const WholeFile& file = each.file;
      HL_FUZZ_CHECK(CheckWholeFileName(file.name).ok() && file.checksum != 0, file.name);
      std::string bytes(each.received, '\0');
      const auto read = (*store)->Read(file, 0, std::as_writable_bytes(std::span(bytes)));
      const auto path = FindLinkableFile(tree_.root(), "files", file, tree_.root());
      if (!each.finished) continue;
      HL_FUZZ_CHECK(read.ok() && *read == bytes.size(), file.name);
      HL_FUZZ_CHECK(path.ok() && Contents(*path) == bytes, file.name);
    }
  }
  // A file is set aside under a name of its own, and is no longer one of the store's.
  void SetAside() {
    const uint8_t which = in_.U8();
    auto store = FileStore::Open(FilesDir());
    if (!store.ok()) return;
    CheckStoreIsOwn();
    const auto listed = Must((*store)->List());
    if (listed.empty()) return;
    const FileStore::Stored& some = listed[which % listed.size()];
    if (!some.finished) return;
    const size_t aside = Must((*store)->Aside()).size();
    const auto moved = (*store)->SetAside(some.file);
    HL_FUZZ_CHECK(moved.ok(), moved.status().ToString());
    HL_FUZZ_CHECK(Must((*store)->Aside()).size() == aside + 1, *moved);
    for (const FileStore::Stored& each : Must((*store)->List()))
      HL_FUZZ_CHECK(!each.finished || each.file != some.file, some.file.name);
  }
  // Bytes for the first file that is listed, or for one of the input's; or it is removed.
  void Add() {
    const uint8_t how = in_.U8();
    auto store = (how & 1) != 0 ? FileStore::Open(FilesDir()) : FileStore::OpenToRead(FilesDir());
    if (!store.ok()) return;
    CheckStoreIsOwn();
    const auto listed = Must((*store)->List());
    const auto bytes = std::as_bytes(in_.Bytes(in_.U8()));
    FileChecksum checksum;
    checksum.Add({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    WholeFile file{"000007.sst", bytes.size(), checksum.value()};
    uint64_t offset = 0;
    if ((how & 2) != 0 && !listed.empty()) {
      const auto& some = listed[(how >> 4) % listed.size()];
      file = some.file, offset = some.received;
    }
    if ((how & 4) != 0) {
      if (!(*store)->Remove(file).ok()) return;
      for (const FileStore::Stored& each : Must((*store)->List()))
        HL_FUZZ_CHECK(!each.finished || each.file != file, file.name);
      return;
    }
    if ((how & 8) != 0) offset += 1;
    const auto received = (*store)->Write(file, offset, bytes);
    if (!received.ok() || *received != file.size) return;
    // It is finished now.
    const auto again = Must((*store)->List());
    const auto is_it = [&](const FileStore::Stored& each) {
      return each.finished && each.file == file;
    };
    HL_FUZZ_CHECK(std::count_if(again.begin(), again.end(), is_it) == 1, file.name);
  }
  void CheckStoreIsOwn() const {
    const auto info = Look(stdfs::canonical(FilesDir()));
    HL_FUZZ_CHECK(info->st_uid == geteuid() && (info->st_mode & kOthersWrite) == 0,
                  "files where others may write");
  }

  Reader& in_;
  const Tree tree_;
  std::shared_ptr<KeyRing> ring_;
};

constexpr uint8_t kD = 0, kIdentity = 1, kTrusted = 2, kE = 3, kFiles = 4, kL = 5, kF = 6;
// Modes, by their places in kModes.
constexpr uint8_t k600 = 0, k700 = 1, k644 = 2, k777 = 5, k1777 = 6;
// Texts of files: 128 and more.
constexpr uint8_t kIdentityA = 128, kIdentityB = 129, kPeers = 130, kTooLong = 131;

class Script {
 public:
  Script& Do(Step step, uint8_t place, uint8_t how) {
    out_.U8(step).U8(place).U8(how);
    return *this;
  }
  // A file with one of the known texts.
  Script& File(uint8_t place, uint8_t text, uint8_t mode) {
    return Do(kFile, place, text).Do(kMode, place, mode);
  }
  Script& Named(Step step, std::string_view name, uint8_t how) {
    out_.U8(step).U8(kOwnName).U8(static_cast<unsigned>(name.size()));
    out_.Bytes(name.data(), name.size()).U8(how);
    return *this;
  }
  // An entry of the directory of files, with bytes.
  Script& Entry(std::string_view name, std::string_view bytes) {
    Named(kFile, name, k600).out_.U8(static_cast<unsigned>((bytes.size() + 1) / 2));
    out_.Bytes(bytes.data(), bytes.size());
    return *this;
  }
  Script& Keys() {
    out_.U8(kKeys);
    return *this;
  }
  Script& Trust(unsigned how) {
    out_.U8(kTrust).U8(how);
    return *this;
  }
  Script& List() {
    out_.U8(kList);
    return *this;
  }
  Script& Aside() {
    out_.U8(kAside).U8(0);
    return *this;
  }
  Script& Add(unsigned how, std::string_view bytes) {
    out_.U8(kAdd).U8(how).U8(static_cast<unsigned>(bytes.size()));
    out_.Bytes(bytes.data(), bytes.size());
    return *this;
  }
  Input Finish() { return out_.Finish(); }

 private:
  Writer out_;
};

void AddPathSeeds(std::vector<Input>* seeds) {
  for (const unsigned own : {0u, 128u}) {
    Script s;
    s.Do(kDirectory, kD, k700).Do(kDirectory, kE, k700);
    for (unsigned spelling = 0; spelling < std::size(kSpellings); ++spelling)
      s.Do(kCheck, kD, static_cast<uint8_t>(own + spelling));
    for (const uint8_t mode : {k777, k1777})
      s.Do(kMode, kD, mode).Do(kCheck, kD, own).Do(kCheck, kE, own);
    s.Do(kMode, kD, k700).Do(kOwner, kD, 1).Do(kCheck, kE, own).Do(kOwner, kD, 0);
    seeds->push_back(s.Do(kOwner, kE, 1).Do(kCheck, kE, own).Finish());
  }
  for (unsigned target = 0; target < 8; ++target) {
    Script s;
    s.Do(kDirectory, kD, k700).Do(kDirectory, kE, k700).File(kF, kPeers, k644);
    s.Do(kLink, kL, static_cast<uint8_t>(target)).Do(kCheck, kL, 0).Do(kRead, kL, 3);
    s.Do(kRemove, kL, 0).Do(kLink, kL, static_cast<uint8_t>(192 + target)).Do(kCheck, kL, 0);
    seeds->push_back(s.Do(kRead, kF, 3).Do(kMode, kF, k777).Do(kRead, kF, 0).Finish());
  }
  Script s;
  s.Do(kQueue, kF, k600).Do(kRead, kF, 0).Do(kRemove, kF, 0).File(kF, kTooLong, k600);
  s.Do(kRead, kF, 200).Do(kOwner, kF, 1).Do(kRead, kF, 0).Do(kRead, kL, 0).Do(kCheck, kF, 0);
  seeds->push_back(s.Finish());
}

void AddKeysSeeds(std::vector<Input>* seeds) {
  const auto begin = [] {
    Script s;
    s.Do(kDirectory, kD, k700).File(kIdentity, kIdentityA, k600).File(kTrusted, kPeers, k644);
    return s.Keys();
  };
  Script changed = begin();
  changed.File(kIdentity, static_cast<uint8_t>(kIdentityA + 4), k600).Keys();
  changed.File(kIdentity, kIdentityB, k600).Keys().Do(kMode, kIdentity, k644).Keys();
  changed.Do(kMode, kTrusted, k777).Keys().Do(kRemove, kTrusted, 0).Keys().Keys();
  changed.Do(kMode, kD, k777).Keys().Do(kMode, kD, k700);
  seeds->push_back(changed.Do(kRemove, kD, 0).Keys().Keys().Finish());
  Script others = begin();
  others.Do(kOwner, kTrusted, 1).Keys().Do(kOwner, kIdentity, 1).Keys().Do(kOwner, kD, 1).Keys();
  seeds->push_back(others.Finish());
  for (const uint8_t place : {kIdentity, kTrusted}) {
    Script strange = begin();
    strange.Do(kRemove, place, 0).Do(kLink, place, 1).Keys().Do(kRemove, place, 0);
    strange.Do(kQueue, place, k600).Keys().Do(kRemove, place, 0).Do(kDirectory, place, k700).Keys();
    strange.Do(kRemove, place, 0).File(place, kTooLong, k600).Keys();
    strange.Do(kFile, place, 0).Keys();  // empty
    seeds->push_back(strange.Finish());
  }
  Script trust;
  trust.Trust(1).Trust(128 + 64).Trust(128).Trust(129).Keys().Trust(1).Trust(2).Keys().Trust(1);
  trust.Trust(64).Do(kMode, kTrusted, k777).Trust(3).File(kTrusted, kIdentityA, k644).Trust(3);
  seeds->push_back(trust.Do(kRemove, kTrusted, 0).Trust(3).Keys().Finish());
}

void AddStoreSeeds(std::vector<Input>* seeds) {
  const auto begin = [] {
    Script s;
    return s.Do(kDirectory, kFiles, k700);
  };
  FileChecksum checksum;
  constexpr std::string_view kBytes = "the bytes of a table";
  checksum.Add(kBytes);
  char hex[20];
  std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(checksum.value()));
  const std::string finished = std::string("000007.sst@") + hex;
  const std::string part = finished + "-" + std::to_string(kBytes.size()) + ".part";
  for (const std::string& name : {finished, part}) {
    Script s = begin();
    s.Entry(name, kBytes).List().Add(2, "more").Add(2 + 8, "").Add(2, "").Add(0, kBytes).List();
    s.Add(2 + 4, "").List().Named(kLink, name, 5).List().Add(0, kBytes).Add(4, kBytes);
    seeds->push_back(s.Do(kMode, kFiles, k777).List().Add(1, kBytes).Finish());
  }
  Script aside = begin();  // the same file twice
  for (int i = 0; i < 2; ++i) aside.Entry(finished, kBytes).List().Aside();
  seeds->push_back(aside.Entry(part, kBytes.substr(0, 10)).Aside().Aside().List().Finish());
  Script pieces = begin();  // two halves, then one too many
  pieces.Entry(part, kBytes.substr(0, 10)).Add(2, kBytes.substr(10)).List().Add(2 + 8, "x");
  seeds->push_back(pieces.Entry(part, "more than the file may have: too long").Add(2, "").Finish());
  Script strange = begin();
  for (const char* name :
       {"000007.sst@00000000000000AB", "x@0000000000000000", "x@00000000000000ab-07.part", "x@ab",
        "x", "x@00000000000000ab-.part", ".x@00000000000000ab", "x@00000000000000ab-5.part",
        "@00000000000000ab", "\xff@00000000000000ab"})
    strange.Entry(name, "abc");
  seeds->push_back(strange.List().Add(2, "ab").Add(2 + 4, "").List().Finish());
  Script made;  // the store makes its directory
  made.Add(0, kBytes).Add(1, kBytes).List().Do(kRemove, kFiles, 0).Do(kFile, kFiles, kPeers);
  seeds->push_back(made.List().Add(1, kBytes).Finish());
  Script others = begin();
  seeds->push_back(others.Do(kOwner, kFiles, 1).List().Add(1, kBytes).Finish());
  Script linked;
  linked.Do(kDirectory, kD, k700).Do(kLink, kFiles, 0).Entry(part, "the").List().Add(2, "");
  seeds->push_back(linked.Finish());
}

std::vector<Input> Seeds() {
  std::vector<Input> seeds;
  AddPathSeeds(&seeds);
  AddKeysSeeds(&seeds);
  AddStoreSeeds(&seeds);
  return seeds;
}

const FuzzTarget kFuzzTarget("directories", Seeds, [](Reader& in) { Explorer(in).Run(); });

}  // namespace
}  // namespace hyperloop::fuzz
