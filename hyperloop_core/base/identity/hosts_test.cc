// What the files of hosts and groups say, what of them is refused, and what trust follows.
#include "hyperloop/identity/hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "support/status_matchers.h"

namespace hyperloop::identity {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

namespace fs = std::filesystem;

std::string KeyOf(char digit) { return std::string(64, digit); }
std::string LineOf(const std::string& name, const std::string& address, char digit) {
  return name + " " + address + " " + KeyOf(digit) + "\n";
}
PublicKey Key(char digit) { return *ParseKey(KeyOf(digit)); }

TEST(HostsFileTest, ALineForEachHost) {
  const auto hosts = ParseHosts(
      "# ours\n\n" + LineOf("a", "10.0.0.1", '1') + " \tb  fd00::2\t" + KeyOf('2') + " \r\n", "f");
  ASSERT_OK(hosts);
  EXPECT_THAT(*hosts,
              ElementsAre(HostLine{"a", "10.0.0.1", Key('1')}, HostLine{"b", "fd00::2", Key('2')}));
  EXPECT_EQ(hosts->front().Line() + "\n", LineOf("a", "10.0.0.1", '1'));
  EXPECT_EQ((*hosts)[0].At(7000), "10.0.0.1:7000");
  EXPECT_EQ((*hosts)[1].At(7000), "[fd00::2]:7000");
}

TEST(HostsFileTest, WhatIsRefusedIsNamedWithItsLineAndTheRemedy) {
  const auto refused = [](const std::string& text, const std::string& why) {
    const auto hosts = ParseHosts(text, "/e/hosts");
    EXPECT_THAT(hosts, StatusIs(Code::kInvalidArgument, HasSubstr(why))) << text;
  };
  const std::string a = LineOf("a", "10.0.0.1", '1');
  refused("", "/e/hosts names no host: put the lines there");
  refused("# " + a, "names no host");
  refused(a + "\nb 10.0.0.2\n", "/e/hosts:3: 2 words; a line is NAME ADDRESS PUBLIC_KEY");
  refused(a + "b 10.0.0.2 " + KeyOf('2').substr(1), "/e/hosts:2: the key is not 64");
  refused(a.substr(0, a.size() - 1) + " more", "/e/hosts:1: 4 words");
  refused(LineOf("a/b", "10.0.0.1", '1'), "the name is not 1 to 63");
  refused(a + LineOf("a", "10.0.0.2", '2'), "/e/hosts:2: a is named twice");
  refused(a + LineOf("b", "10.0.0.1", '2'), "/e/hosts:2: the address of a");
  refused(a + LineOf("b", "::ffff:10.0.0.1", '2'), "/e/hosts:2: the address of a");
  refused(a + LineOf("b", "10.0.0.2", '1'), "/e/hosts:2: the key of a");
  for (const char* address : {"a.example", "10.0.0.1:7471", "10.0.0", "[fd00::1]", "10.0.0.1/24"})
    refused(LineOf("a", address, '1'), "the address is no number");
  for (const char* address : {"0.0.0.0", "::"})
    refused(LineOf("a", address, '1'), "not a wildcard");
  std::string many;
  for (size_t i = 0; i <= kMostHosts; ++i) {
    char key[65];
    std::snprintf(key, sizeof key, "%064zx", i);
    many += "h" + std::to_string(i) + " fd00::" + std::to_string(i + 1) + " " + key + "\n";
  }
  refused(many, "/e/hosts:1025: more than 1024 hosts");
}

TEST(GroupFileTest, ItsHostsAndItsPort) {
  const auto group = ParseGroup("# orders\nhosts = a, b,c\n\tport=7100 \n", "/g/o.conf");
  ASSERT_OK(group);
  EXPECT_EQ(group->name, "o");
  EXPECT_THAT(group->hosts, ElementsAre("a", "b", "c"));
  EXPECT_EQ(group->port, 7100);
  EXPECT_EQ(ParseGroup("hosts = a\n", "/g/o.conf")->port, kGroupPort);
}

TEST(GroupFileTest, FurtherSettingsAreKeptWithTheirLines) {
  const auto group = ParseGroup("hosts = a\n\nsize = 64M\nservice = /bin/x  --y = z\nack=\n", "/g");
  ASSERT_OK(group);
  std::string all;
  for (const GroupFile::Setting& each : group->settings)
    all += std::to_string(each.line) + ":" + each.name + "=" + each.value + ";";
  EXPECT_EQ(all, "3:size=64M;4:service=/bin/x  --y = z;5:ack=;");
}

TEST(GroupFileTest, WhatIsRefusedIsNamedWithItsLineAndTheRemedy) {
  const auto refused = [](const std::string& text, const std::string& why) {
    EXPECT_THAT(ParseGroup(text, "/g/o.conf"), StatusIs(Code::kInvalidArgument, HasSubstr(why)))
        << text;
  };
  refused("", "/g/o.conf names no host: add a line such as hosts = a, b, c");
  refused("port = 7000\n", "names no host");
  refused("hosts a\n", "/g/o.conf:1: a line is NAME = VALUE");
  refused("hosts =\n", "/g/o.conf:1: hosts: name 1 to 8 hosts, not 0");
  refused("hosts = a, b", "/g/o.conf ends within a line, and may have been cut");
  refused("hosts = ,\n", "name 1 to 8 hosts, not 0");
  refused("hosts = a,b,c,d,e,f,g,h,i\n", "name 1 to 8 hosts, not 9");
  refused("hosts = a, a\n", "a is there twice");
  refused("hosts = a/b\n", "a name is not 1 to 63");
  refused("hosts = a\n\nhosts = b\n", "/g/o.conf:3: hosts is there twice");
  refused("hosts = a\nhost = b\n", "/g/o.conf:2: a group has no setting host: leave");
  refused("hosts = a\nprot = 7000\n",
          "/g/o.conf:2: a group has no setting prot: leave the line out; "
          "did you mean port?");
  refused("hosts = a\npool = /p\n", "/g/o.conf:2: a group has no setting pool");
  refused("hosts = a\nack = sync\nack = sync\n", "/g/o.conf:3: ack is there twice");
  refused("Hosts = a\n", "a line is NAME = VALUE");
  for (const char* port : {"0", "65535", "7471", "7470", "70000", "7000x", "-1"})
    refused(std::string("hosts = a\nport = ") + port + "\n", "port: give a number from 1 to 65534");
}

TEST(GroupFileTest, ItsNameIsNoWayOutOfTheFolder) {
  EXPECT_EQ(*GroupFileIn("/etc/hyperloop", "orders"), "/etc/hyperloop/groups/orders.conf");
  for (const char* name : {"", "..", ".x", "a/b", "../keys/identity", "a b"})
    EXPECT_THAT(GroupFileIn("/etc/hyperloop", name), StatusIs(Code::kInvalidArgument)) << name;
}

TEST(TrustOfTest, RolesFollowFromTheGroups) {
  const std::vector<HostLine> hosts = {{"a", "10.0.0.1", Key('1')}, {"b", "10.0.0.2", Key('2')}};
  const std::vector<GroupFile> groups = {{"o", {"b", "gone"}, 7000}, {"p", {"b"}, 7100}};
  EXPECT_THAT(TrustOf(hosts, groups),
              ElementsAre(TrustedPeer{"a", Key('1'), kRoleLink},
                          TrustedPeer{"b", Key('2'), kEveryRole, "10.0.0.2:7000"},
                          TrustedPeer{"b", Key('2'), kEveryRole, "10.0.0.2:7100"}));
  EXPECT_EQ(Peer(TrustOf(hosts, groups)).names(), "a,b") << "each is named once";
}

// A host whose keys point to a file of hosts.
class HostsOfKeysTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = fs::temp_directory_path() / "hyperloop-hosts-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    fs::create_directory(folder_ + "/groups");
    ASSERT_OK(MakeIdentity(Keys(), "a"));
    ASSERT_OK(TrustHosts(Keys(), Hosts()));
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string Keys() const { return KeysFolderIn(folder_); }
  std::string Hosts() const { return HostsFileIn(folder_); }
  std::string Group(const std::string& name) const { return *GroupFileIn(folder_, name); }
  static void Write(const std::string& path, const std::string& text) {
    { std::ofstream(path + "~") << text; }
    fs::rename(path + "~", path);
  }
  std::shared_ptr<KeyRing> Load() const {
    const auto ring = KeyRing::Load(Keys());
    EXPECT_OK(ring);
    return ring.ok() ? *ring : nullptr;
  }
  // "a" is this host.
  std::string OwnLine(const KeyRing& ring) const {
    return HostLine{"a", "10.0.0.1", ring.public_key()}.Line() + "\n";
  }
  static Roles RolesOf(const KeyRing& ring, char digit) {
    const auto peer = ring.Find(Key(digit));
    return peer.has_value() ? peer->roles() : 0;
  }

  std::string folder_;
};

TEST_F(HostsOfKeysTest, TrustFollowsFromTheFilesAsTheyChange) {
  const auto ring = Load();
  EXPECT_EQ(ring->hosts_file(), Hosts());
  EXPECT_TRUE(ring->trusted().empty()) << "there is no file of hosts yet";
  EXPECT_THAT(ring->Refresh(),
              StatusIs(Code::kNotFound, AllOf(HasSubstr("hosts file " + Hosts() + ", to which "),
                                              HasSubstr(" points, is not there: put there"))));
  EXPECT_OK(ring->Refresh()) << "it is said once";
  EXPECT_TRUE(ring->hosts_usable());
  Write(Hosts(), OwnLine(*ring) + LineOf("b", "10.0.0.2", '2') + LineOf("c", "10.0.0.3", '3'));
  const uint64_t before = ring->generation(), hosts_before = ring->hosts_generation();
  ASSERT_OK(ring->Refresh());
  EXPECT_GT(ring->generation(), before);
  EXPECT_GT(ring->hosts_generation(), hosts_before);
  EXPECT_THAT(ring->hosts(), SizeIs(3));
  EXPECT_EQ(RolesOf(*ring, '2'), kRoleLink);
  Write(Group("orders"), "hosts = a, b\n");
  ASSERT_OK(ring->Refresh());
  EXPECT_EQ(ring->hosts_generation(), hosts_before + 1) << "the hosts are the same";
  EXPECT_EQ(RolesOf(*ring, '2'), kEveryRole);
  EXPECT_EQ(RolesOf(*ring, '3'), kRoleLink);
  EXPECT_THAT(ring->NamesAt("10.0.0.2:7000"), ElementsAre("b"));
  fs::remove(Group("orders"));
  ASSERT_OK(ring->Refresh());
  EXPECT_EQ(RolesOf(*ring, '2'), kRoleLink) << "a group that is gone gives no roles";
}

TEST_F(HostsOfKeysTest, AHostTrustsItselfWhateverTheFilesGiveIt) {
  const auto ring = Load();
  Write(Hosts(), OwnLine(*ring) + LineOf("b", "10.0.0.2", '2'));
  ASSERT_OK(ring->Refresh());
  const auto self = ring->Find(ring->public_key());
  ASSERT_TRUE(self.has_value());
  EXPECT_TRUE(self->Is("a", kRolePrimary));
  EXPECT_TRUE(self->Is("a", kRoleReplica));
  EXPECT_FALSE(self->Is("b", kEveryRole));
}

TEST_F(HostsOfKeysTest, WhatGivesTrustIsALineInOneOfTheFiles) {
  Write(Hosts(), LineOf("b", "10.0.0.2", '2'));
  const auto ring = Load();
  EXPECT_THAT(ring->TrustCommand("c", Key('3'), kRoleLink),
              AllOf(HasSubstr("node init prints on c"), HasSubstr(Hosts())));
  EXPECT_THAT(ring->TrustCommand("b", Key('2'), kRoleReplica, "10.0.0.2:7100"),
              AllOf(HasSubstr("name b among the hosts of a group"), HasSubstr("10.0.0.2:7100")));
}

TEST_F(HostsOfKeysTest, LinesOfTrustedCountBesideThem) {
  ASSERT_OK(Trust(Keys(), {"tools", Key('7'), kRoleLink}));
  ASSERT_OK(TrustHosts(Keys(), Hosts())) << "once more changes nothing";
  Write(Hosts(), LineOf("b", "10.0.0.2", '2'));
  const auto ring = Load();
  EXPECT_EQ(RolesOf(*ring, '7'), kRoleLink);
  EXPECT_EQ(RolesOf(*ring, '2'), kRoleLink);
  EXPECT_THAT(TrustHosts(Keys(), "/elsewhere/hosts"), StatusIs(Code::kAlreadyExists));
}

TEST_F(HostsOfKeysTest, AFileThatCannotBeUsedNeitherTakesNorGivesAnything) {
  Write(Hosts(), LineOf("b", "10.0.0.2", '2'));
  Write(Group("orders"), "hosts = b\n");
  const auto ring = Load();
  const auto before = ring->trusted();
  const uint64_t generation = ring->generation();
  ASSERT_EQ(RolesOf(*ring, '2'), kEveryRole);
  const auto changes_nothing = [&](const std::string& why) {
    EXPECT_THAT(ring->Refresh().message(), HasSubstr(why));
    EXPECT_OK(ring->Refresh()) << "it is said once";
    EXPECT_EQ(ring->trusted(), before) << why;
    EXPECT_EQ(ring->generation(), generation) << why;
  };
  Write(Hosts(), "");
  changes_nothing("names no host");
  Write(Hosts(), LineOf("c", "10.0.0.3", '3') + "b 10.0.0.2 2222\n");
  changes_nothing(Hosts() + ":2: the key is not");
  fs::remove(Hosts());
  changes_nothing("No such file");
  Write(Hosts(), LineOf("c", "10.0.0.3", '3'));
  chmod(Hosts().c_str(), 0666);
  changes_nothing("may be written by others");
  fs::remove(Hosts());
  fs::create_symlink(folder_ + "/elsewhere", Hosts());
  changes_nothing("symbolic link");
  Write(Hosts(), LineOf("b", "10.0.0.2", '2'));
  EXPECT_OK(ring->Refresh());
  Write(Group("orders"), "hosts = b, c");
  Write(Group("orders"), "hosts b\n");
  EXPECT_THAT(ring->Refresh(), StatusIs(Code::kInvalidArgument, HasSubstr("orders.conf:1")));
  EXPECT_EQ(ring->trusted(), before);
  Write(Hosts(), LineOf("b", "10.0.0.2", '2') + LineOf("d", "10.0.0.4", '4'));
  EXPECT_OK(ring->Refresh());
  EXPECT_EQ(RolesOf(*ring, '2'), kEveryRole) << "the bad group keeps the roles that it gave";
  EXPECT_EQ(RolesOf(*ring, '4'), kRoleLink);
  chmod((folder_ + "/groups").c_str(), 0777);
  fs::remove(Group("orders"));
  EXPECT_THAT(ring->Refresh(), StatusIs(Code::kPermissionDenied, HasSubstr("groups")));
  EXPECT_EQ(RolesOf(*ring, '2'), kEveryRole) << "others could have removed the file";
}

// As root made it under a umask that leaves others nothing.
TEST_F(HostsOfKeysTest, AFileThatThisUserMayNotReadIsNamedWithTheRemedy) {
  Write(Hosts(), LineOf("b", "10.0.0.2", '2'));
  chmod(Hosts().c_str(), 0);
  chmod(folder_.c_str(), 0755);
  // A thread of its own gives up root's rights, which would let it read the file.
  std::thread([this] {
    if (geteuid() == 0) {
      ASSERT_EQ(syscall(SYS_setresuid, 65534, 65534, 65534), 0);
    }
    EXPECT_THAT(ReadHosts(Hosts()),
                StatusIs(Code::kPermissionDenied, HasSubstr("chmod 644 " + Hosts())));
  }).join();
}

// What is in force may be older, and a part of what the file is to say.
TEST_F(HostsOfKeysTest, WhatWasSeenLastIsToldFromWhatIsInForce) {
  Write(Hosts(), LineOf("b", "10.0.0.2", '2') + LineOf("c", "10.0.0.3", '3'));
  const auto ring = Load();
  uint64_t seen = ring->seen_generation();
  const auto changes = [&](const std::string& text, bool usable) {
    Write(Hosts(), text);
    ring->Refresh().IgnoreError();
    EXPECT_EQ(ring->hosts_usable(), usable) << text;
    const uint64_t before = std::exchange(seen, ring->seen_generation());
    ring->Refresh().IgnoreError();
    EXPECT_EQ(ring->seen_generation(), seen) << "nothing has changed since";
    EXPECT_EQ(ring->hosts_usable(), usable) << text;
    return seen > before;
  };
  EXPECT_TRUE(changes(LineOf("b", "10.0.0.2", '2'), true));
  const uint64_t in_force = ring->generation();
  EXPECT_TRUE(changes("b 10.0.0.2\n", false));
  EXPECT_TRUE(changes("b 10.0.0\n", false));
  EXPECT_EQ(ring->generation(), in_force);
  EXPECT_TRUE(changes(LineOf("b", "10.0.0.2", '2'), true));
  Write(Group("orders"), "hosts b\n");
  EXPECT_FALSE(ring->Refresh().ok());
  EXPECT_GT(ring->seen_generation(), seen);
  EXPECT_TRUE(ring->hosts_usable()) << "that is a group's";
  fs::remove(Hosts());
  EXPECT_FALSE(ring->Refresh().ok());
  EXPECT_FALSE(ring->hosts_usable());
}

TEST_F(HostsOfKeysTest, ABadGroupKeepsNobodyFromStartingAndIsReportedThen) {
  Write(Hosts(), LineOf("b", "10.0.0.2", '2'));
  Write(Group("bad"), "hosts b\n");
  Write(Group("good"), "hosts = b\n");
  const auto ring = Load();
  EXPECT_EQ(RolesOf(*ring, '2'), kEveryRole);
  EXPECT_THAT(ring->Refresh(), StatusIs(Code::kInvalidArgument, HasSubstr("bad.conf:1")));
  EXPECT_OK(ring->Refresh());
  Write(Hosts(), "nonsense\n");
  EXPECT_THAT(KeyRing::Load(Keys()), StatusIs(Code::kInvalidArgument, HasSubstr(Hosts() + ":1")));
}

TEST_F(HostsOfKeysTest, ALineOfTrustedThatPointsNowhereIsRefused) {
  for (const char* line : {"@hosts", "@hosts hosts", "@host /a", "@hosts /a /b", "@hosts /a/../b"})
    EXPECT_THAT(ParseTrusted(line), StatusIs(Code::kInvalidArgument, HasSubstr("@hosts FILE")))
        << line;
  EXPECT_THAT(ParseTrusted("@hosts /a\n@hosts /a\n"),
              StatusIs(Code::kInvalidArgument, HasSubstr("line 2: a second @hosts")));
}

}  // namespace
}  // namespace hyperloop::identity
