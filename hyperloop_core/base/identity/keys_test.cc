// What a keys directory takes, what it refuses, and how it is changed.
#include "hyperloop/identity/keys.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/identity/noise_xx.h"
#include "hyperloop/core/name.h"
#include "support/status_matchers.h"

namespace hyperloop::identity {
namespace {

using testing::HasSubstr;

namespace fs = std::filesystem;

constexpr char kSomeKey[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
constexpr char kOtherKey[] = "10112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

class KeysTest : public testing::Test {
 protected:
  KeysTest() {
    std::string pattern = fs::temp_directory_path() / "hyperloop-keys-XXXXXX";
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    dir_ = root_ + "/keys";
  }
  ~KeysTest() override { fs::remove_all(root_); }

  std::string Path(const std::string& name) const { return dir_ + "/" + name; }
  std::string Read(const std::string& name) const {
    std::ifstream file(Path(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name)) << text;
  }
  void MakeHost() { ASSERT_OK(MakeIdentity(dir_, "alpha")); }
  Status LoadError() const { return KeyRing::Load(dir_).status(); }
  static PublicKey Key(const char* text) { return *ParseKey(text); }

  std::string root_, dir_;
};

TEST_F(KeysTest, ANewIdentityIsPrivateAndIsRead) {
  MakeHost();
  struct stat info {};
  ASSERT_EQ(stat(Path("identity").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  ASSERT_EQ(stat(dir_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700u);
  const auto ring = KeyRing::Load(dir_);
  ASSERT_OK(ring);
  EXPECT_EQ((*ring)->name(), "alpha");
  EXPECT_EQ((*ring)->public_key(), PublicKeyOf((*ring)->key_pair().secret));
  EXPECT_TRUE((*ring)->trusted().empty()) << "nobody else is trusted unasked";
  // No scratch file is left behind.
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), {}), 2);
}

TEST_F(KeysTest, AnIdentityIsNeverOverwritten) {
  MakeHost();
  const std::string before = Read("identity");
  EXPECT_THAT(MakeIdentity(dir_, "beta"), StatusIs(Code::kAlreadyExists));
  EXPECT_EQ(Read("identity"), before);
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), {}), 2);
}

TEST_F(KeysTest, NamesAreLimited) {
  EXPECT_TRUE(IsName("a-b_c.9"));
  EXPECT_TRUE(IsName(std::string(63, 'x')));
  for (const std::string& bad : {std::string(), std::string(64, 'x'), std::string("a b"),
                                 std::string("a/b"), std::string("a\n"), std::string("\xc3\xa4")}) {
    EXPECT_FALSE(IsName(bad)) << bad;
    EXPECT_THAT(MakeIdentity(dir_, bad), StatusIs(Code::kInvalidArgument));
  }
  EXPECT_FALSE(fs::exists(dir_));
}

TEST_F(KeysTest, WhatOthersCouldReadOrChangeIsRefusedWithTheRemedy) {
  MakeHost();
  struct Case {
    std::string path;
    mode_t mode;
    std::string remedy;
  };
  for (const Case& each :
       {Case{Path("identity"), 0640, "chmod 600"}, Case{Path("identity"), 0604, "chmod 600"},
        Case{Path("trusted"), 0664, "chmod go-w"}, Case{Path("trusted"), 0646, "chmod go-w"},
        Case{dir_, 0770, "chmod go-w"}, Case{dir_, 0707, "chmod go-w"}}) {
    struct stat before {};
    ASSERT_EQ(stat(each.path.c_str(), &before), 0);
    ASSERT_EQ(chmod(each.path.c_str(), each.mode), 0);
    EXPECT_THAT(LoadError(),
                StatusIs(Code::kPermissionDenied, HasSubstr(each.remedy + " " + each.path)))
        << each.path;
    ASSERT_EQ(chmod(each.path.c_str(), before.st_mode & 07777), 0);
  }
  EXPECT_OK(LoadError());
}

TEST_F(KeysTest, AFileOfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  MakeHost();
  for (const std::string& path : {Path("identity"), Path("trusted"), dir_}) {
    ASSERT_EQ(chown(path.c_str(), 12345, 12345), 0);
    const Status status = LoadError();
    EXPECT_THAT(status, StatusIs(Code::kPermissionDenied, HasSubstr("belongs to user 12345")))
        << path;
    ASSERT_EQ(chown(path.c_str(), 0, 0), 0);
  }
}

TEST_F(KeysTest, LinksAndOtherThingsThanFilesAreRefused) {
  MakeHost();
  for (const std::string name : {"identity", "trusted"}) {
    fs::rename(Path(name), root_ + "/moved");
    fs::create_symlink(root_ + "/moved", Path(name));
    EXPECT_THAT(LoadError(), StatusIs(Code::kPermissionDenied)) << name;
    fs::remove(Path(name));
    ASSERT_EQ(mkfifo(Path(name).c_str(), 0600), 0);  // nobody writes: it must not be waited for
    EXPECT_THAT(LoadError(), StatusIs(Code::kInvalidArgument)) << name;
    fs::remove(Path(name));
    EXPECT_THAT(LoadError(), StatusIs(Code::kNotFound, HasSubstr("hyperloopctl keys"))) << name;
    fs::rename(root_ + "/moved", Path(name));
  }
  EXPECT_OK(LoadError());
  dir_ += "-none";
  EXPECT_THAT(LoadError().message(), HasSubstr("hyperloopctl keys init"));
}

TEST_F(KeysTest, MalformedIdentitiesAreRefusedWithoutTheirSecret) {
  MakeHost();
  const std::string good = Read("identity"), secret = good.substr(good.find("secret "));
  for (const std::string& bad :
       {std::string(), std::string("name alpha\n"), secret, "name al pha\n" + secret,
        "name alpha\n" + secret.substr(0, secret.size() - 2) + "\n",
        "name alpha\n" + secret + secret, "name alpha\nname beta\n" + secret,
        "name alpha\nsecret " + std::string(64, 'z') + "\n", good + "more\n",
        std::string(2 << 20, '#')}) {
    Write("identity", bad);
    const Status status = LoadError();
    EXPECT_THAT(status, StatusIs(Code::kInvalidArgument, HasSubstr(Path("identity"))))
        << bad.substr(0, 100);
    EXPECT_THAT(status.message(), testing::Not(HasSubstr(secret.substr(7, 8))));
  }
}

TEST(TrustedFile, LinesAreReadAndWritten) {
  const std::string text = std::string("# hosts\n\n  alpha\t") + kSomeKey +
                           " primary,link\r\nbeta " + kOtherKey + " replica 10.0.0.2:7000";
  const auto peers = ParseTrusted(text);
  ASSERT_OK(peers);
  ASSERT_EQ(peers->size(), 2u);
  EXPECT_EQ((*peers)[0].Line(), std::string("alpha ") + kSomeKey + " primary,link");
  EXPECT_EQ((*peers)[1].Line(), std::string("beta ") + kOtherKey + " replica 10.0.0.2:7000");
  for (const TrustedPeer& each : *peers)
    EXPECT_EQ(ParseTrusted(each.Line())->front(), each) << each.Line();
}

TEST(TrustedFile, MalformedLinesAreNamed) {
  const std::string key = kSomeKey;
  for (const std::string& bad :
       {std::string("alpha"), "alpha " + key, "alpha " + key + " boss", "alpha " + key + " link,",
        "alpha " + key + " ,", "alpha " + key.substr(1) + " link", "alpha " + key + "0 link",
        "alpha x" + key.substr(1) + " link", "al/pha " + key + " link",
        std::string(65, 'a') + " " + key + " link", "alpha " + key + " link a b",
        "alpha " + key + " link " + std::string(256, 'e'), "alpha " + key + " link \x01",
        "alpha " + key + " link\nalpha " + key + " replica"}) {
    const auto peers = ParseTrusted("# one\n" + bad + "\n");
    ASSERT_THAT(peers, StatusIs(Code::kInvalidArgument)) << bad;
    EXPECT_THAT(peers, StatusIs(Code::kInvalidArgument));
    EXPECT_EQ(peers.status().message().rfind("line ", 0), 0u) << peers.status().ToString();
  }
}

TEST_F(KeysTest, AHostIsItselfWithoutALine) {
  MakeHost();
  const auto ring = KeyRing::Load(dir_);
  ASSERT_OK(ring);
  const PublicKey own = (*ring)->public_key();
  const auto peer = (*ring)->Find(own);
  ASSERT_TRUE(peer.has_value());
  EXPECT_EQ(peer->names(), (*ring)->name());
  EXPECT_EQ(peer->roles(), kEveryRole);
  EXPECT_TRUE((*ring)->trusted().empty());
  ASSERT_OK(Trust(dir_, {"other", own, kRoleLink, ""}));
  ASSERT_OK((*ring)->Refresh());
  EXPECT_EQ((*ring)->Find(own)->names(), "other");
  EXPECT_EQ((*ring)->Find(own)->roles(), kRoleLink);
}

TEST_F(KeysTest, TrustAddsReplacesAndKeepsTheRest) {
  MakeHost();
  ASSERT_OK(Trust(dir_, {"beta", Key(kSomeKey), kRoleLink, ""}));
  ASSERT_OK(Trust(dir_, {"beta", Key(kOtherKey), kRoleLink, ""}));
  Write("trusted", Read("trusted") + "# a comment");
  ASSERT_OK(Trust(dir_, {"beta", Key(kSomeKey), kRoleLink | kRoleReplica, "10.0.0.2:7"}));
  ASSERT_OK(Trust(dir_, {"gamma", Key(kSomeKey), kRoleLink, ""}));
  const std::string text = Read("trusted");
  EXPECT_THAT(text, HasSubstr("# a comment\n"));
  const auto ring = KeyRing::Load(dir_);
  ASSERT_OK(ring);
  EXPECT_EQ((*ring)->trusted().size(), 3u);
  const auto peer = (*ring)->Find(Key(kSomeKey));
  ASSERT_TRUE(peer.has_value());
  EXPECT_EQ(peer->names(), "beta,gamma");
  EXPECT_TRUE(peer->Is("beta", kRoleReplica));
  EXPECT_FALSE(peer->Is("gamma", kRoleReplica));
  EXPECT_FALSE(peer->Is("delta", kEveryRole));
  EXPECT_EQ((*ring)->Find(Key(kOtherKey))->name(), "beta");
  EXPECT_EQ((*ring)->NamesAt("10.0.0.2:7"), std::vector<std::string>{"beta"});
  EXPECT_THAT(Trust(dir_, {"a b", Key(kSomeKey), kRoleLink, ""}), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(Trust(dir_, {"a", Key(kSomeKey), kRoleLink, "x\ny"}),
              StatusIs(Code::kInvalidArgument));
  EXPECT_EQ(Read("trusted"), text);
}

// Whoever claims a name that is trusted gets no ready command for that name's roles.
TEST_F(KeysTest, ACommandGivesNobodyTheRolesOfAnotherKey) {
  MakeHost();
  ASSERT_OK(Trust(dir_, {"beta", Key(kSomeKey), kRolePrimary | kRoleLink, ""}));
  const auto ring = KeyRing::Load(dir_);
  ASSERT_OK(ring);
  const std::string begin = "hyperloopctl keys trust --dir " + dir_ + " ";
  EXPECT_EQ((*ring)->TrustCommand("beta", Key(kSomeKey), kRoleReplica),
            begin + "beta " + kSomeKey + " primary,replica,link");
  EXPECT_EQ((*ring)->TrustCommand("gamma", Key(kSomeKey), kRoleLink),
            begin + "gamma " + kSomeKey + " link");
  EXPECT_EQ((*ring)->TrustCommand("beta", Key(kOtherKey), kRoleLink),
            begin + "beta " + kOtherKey +
                " ROLES (beta has another key here, with the roles primary,link: give this key its "
                "name only if its operator says that it is its new one)");
  EXPECT_EQ((*ring)
                ->TrustCommand("alpha", Key(kOtherKey), kRoleLink)
                .find(begin + "alpha " + kOtherKey + " ROLES (alpha is this host"),
            0u);
}

TEST_F(KeysTest, TrustLeavesABrokenFileAlone) {
  MakeHost();
  Write("trusted", "nonsense\n");
  EXPECT_THAT(Trust(dir_, {"beta", Key(kSomeKey), kRoleLink, ""}),
              StatusIs(Code::kInvalidArgument));
  EXPECT_EQ(Read("trusted"), "nonsense\n");
}

TEST_F(KeysTest, RefreshTakesWhatChangedAndKeepsWhatBroke) {
  MakeHost();
  const auto loaded = KeyRing::Load(dir_);
  ASSERT_OK(loaded);
  KeyRing& ring = **loaded;
  EXPECT_OK(ring.Refresh());
  const PublicKey key = Key(kSomeKey);
  ASSERT_OK(Trust(dir_, {"beta", key, kRoleLink, ""}));
  EXPECT_FALSE(ring.Find(key).has_value());
  EXPECT_OK(ring.Refresh());
  EXPECT_TRUE(ring.Find(key).has_value());

  const std::string good = Read("trusted");
  Write("trusted", "nonsense\n");
  EXPECT_THAT(ring.Refresh(), StatusIs(Code::kInvalidArgument));
  EXPECT_TRUE(ring.Find(key).has_value()) << "a broken file took the trusted ones away";
  EXPECT_OK(ring.Refresh()) << "told of twice";
  fs::remove(Path("trusted"));
  EXPECT_THAT(ring.Refresh(), StatusIs(Code::kNotFound));
  EXPECT_TRUE(ring.Find(key).has_value());
  // What was in force before is read again after a breakage, too.
  Write("trusted", good);
  EXPECT_OK(ring.Refresh());
  Write("trusted", "# nobody\n");
  EXPECT_OK(ring.Refresh());
  EXPECT_FALSE(ring.Find(key).has_value());

  const PublicKey own = ring.public_key();
  ASSERT_OK(MakeIdentity(root_ + "/next", "alpha"));
  fs::rename(root_ + "/next/identity", Path("identity"));
  EXPECT_OK(ring.Refresh());
  const PublicKey changed = ring.public_key();
  EXPECT_NE(changed, own);
  fs::remove(Path("identity"));
  ASSERT_OK(MakeIdentity(dir_, "beta"));
  EXPECT_THAT(ring.Refresh().message(), HasSubstr("was alpha"));
  EXPECT_EQ(ring.public_key(), changed);
  EXPECT_EQ(ring.name(), "alpha");
  fs::rename(dir_, root_ + "/away");
  EXPECT_THAT(ring.Refresh(), StatusIs(Code::kNotFound));
  EXPECT_OK(ring.Refresh()) << "told of twice";
  fs::rename(root_ + "/away", dir_);
}

TEST_F(KeysTest, TheGenerationSaysThatOtherLinesAreInForce) {
  ASSERT_OK(MakeIdentity(dir_, "alpha"));
  const auto ring = KeyRing::Load(dir_);
  ASSERT_OK(ring);
  const uint64_t first = (*ring)->generation();
  EXPECT_OK((*ring)->Refresh());
  EXPECT_EQ((*ring)->generation(), first);
  ASSERT_OK(Trust(dir_, {"beta", Key(kSomeKey), kRoleLink, ""}));
  EXPECT_OK((*ring)->Refresh());
  const uint64_t second = (*ring)->generation();
  EXPECT_GT(second, first);
  Write("trusted", "nonsense\n");
  EXPECT_FALSE((*ring)->Refresh().ok());
  EXPECT_EQ((*ring)->generation(), second);
  Write("trusted", "# nobody\n");
  EXPECT_OK((*ring)->Refresh());
  EXPECT_GT((*ring)->generation(), second);
}

}  // namespace
}  // namespace hyperloop::identity
