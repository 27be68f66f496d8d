// hyperloop:///NAME: what follows from a host's files, and what in them or beside them is refused.
#include "options/node_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "hyperloop/identity/hosts.h"
#include "hyperloop/identity/keys.h"
#include "support/status_matchers.h"

namespace hyperloop {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

namespace fs = std::filesystem;

// This host is b, of a group of a, b and c.
class NodeGroupTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = fs::temp_directory_path() / "hyperloop-group-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    fs::create_directory(folder_ + "/groups");
    setenv("HYPERLOOP_NODE", folder_.c_str(), 1);
    ASSERT_OK(identity::MakeIdentity(Keys(), "b"));
    ASSERT_OK(identity::TrustHosts(Keys(), Hosts()));
    const auto ring = identity::KeyRing::Load(Keys());
    ASSERT_OK(ring);
    own_ = identity::HostLine{"b", "10.0.0.2", (*ring)->public_key()}.Line() + "\n";
    Write(Hosts(), Line("a", "10.0.0.1", '1') + own_ + Line("c", "fd00::3", '3'));
    Write(File(), "hosts = c, a, b\n");
  }
  void TearDown() override {
    unsetenv("HYPERLOOP_NODE");
    fs::remove_all(folder_);
  }

  std::string Keys() const { return folder_ + "/keys"; }
  std::string Hosts() const { return folder_ + "/hosts"; }
  std::string File() const { return folder_ + "/groups/orders.conf"; }
  static std::string Line(const std::string& name, const std::string& address, char digit) {
    return name + " " + address + " " + std::string(64, digit) + "\n";
  }
  static void Write(const std::string& path, const std::string& text) {
    { std::ofstream(path + "~") << text; }
    fs::rename(path + "~", path);
  }
  void Say(const std::string& lines) const { Write(File(), "hosts = c, a, b\n" + lines); }
  static Status Parse(const std::string& uri, StoreOptions* options) {
    const std::string before = FormatStoreUri(*options);
    const Status status = ParseStoreUri(uri, options);
    EXPECT_TRUE(status.ok() || FormatStoreUri(*options) == before) << "a refusal changed options";
    return status;
  }
  static Status Parse(const std::string& uri) {
    StoreOptions options;
    return Parse(uri, &options);
  }

  std::string folder_, own_;
};

TEST_F(NodeGroupTest, TheNameIsEnoughOfAUri) {
  StoreOptions options;
  ASSERT_OK(Parse("hyperloop:///orders", &options));
  EXPECT_THAT(options.replicas, ElementsAre("[fd00::3]:7000", "10.0.0.1:7000", "10.0.0.2:7000"));
  EXPECT_EQ(options.host, "b");
  EXPECT_EQ(options.keys, Keys());
  EXPECT_EQ(options.provider, "softrnic");
  EXPECT_EQ(options.device, "/run/hyperloop/rnicd.sock");
  EXPECT_EQ(options.pool, "/var/lib/hyperloop/orders-primary.pool");
  EXPECT_OK(ValidateStoreOptions(options));
  StoreOptions again;
  ASSERT_OK(ParseStoreUri(FormatStoreUri(options), &again));
  EXPECT_EQ(FormatStoreUri(again), FormatStoreUri(options)) << "the long form says the same";
}

TEST_F(NodeGroupTest, OptionsOfAllHostsAreInTheFileAndOthersFollow) {
  Say("port = 7100\nack = sync\nack_timeout = 4s\nfolder = /data\ndevice = /r.sock\n");
  StoreOptions options;
  options.window = 7;
  ASSERT_OK(Parse("hyperloop:///orders?datapath=fanout&wait=event&takeover=true", &options));
  EXPECT_THAT(options.replicas, ElementsAre("[fd00::3]:7100", "10.0.0.1:7100", "10.0.0.2:7100"));
  EXPECT_EQ(options.ack, AckMode::kSync);
  EXPECT_EQ(options.ack_timeout, std::chrono::seconds(4));
  EXPECT_EQ(options.datapath, Datapath::kFanout);
  EXPECT_EQ(options.wait, WaitMode::kEvent);
  EXPECT_EQ(options.window, 7u) << "what was set before stays";
  EXPECT_EQ(options.pool, "/data/orders-primary.pool");
  EXPECT_EQ(options.device, "/r.sock");
  EXPECT_TRUE(options.takeover);
  ASSERT_OK(Parse("hyperloop:///orders?pool=/p", &options)) << "a place of this host alone";
  EXPECT_EQ(options.pool, "/p");
}

TEST_F(NodeGroupTest, WhatTheFilesDecideIsNotSetBesideThem) {
  for (const char* option : {"replicas=h:1", "host=x", "keys=/k", "provider=verbs",
                             "provider=softrnic", "gid_index=1", "mtu=1024", "traffic_class=1"}) {
    const std::string text = option;
    EXPECT_THAT(Parse("hyperloop:///orders?" + text),
                StatusIs(Code::kInvalidArgument,
                         AllOf(HasSubstr("sets " + text.substr(0, text.find('='))),
                               HasSubstr(Hosts() + " and " + File() + " decide for all hosts"),
                               HasSubstr("or give the whole URI, hyperloop://host:port"))))
        << option;
  }
  EXPECT_OK(Parse("hyperloop:///orders?ack=sync"));
  Say("ack = append\n");
  EXPECT_THAT(Parse("hyperloop:///orders?ack=sync"),
              StatusIs(Code::kInvalidArgument,
                       HasSubstr("sets ack, which " + File() + " sets for all hosts: change it")));
  EXPECT_THAT(Parse("hyperloop:///orders?window=1&window=2"),
              StatusIs(Code::kInvalidArgument, HasSubstr("sets window twice")));
  EXPECT_THAT(Parse("hyperloop:///orders?windw=1"),
              StatusIs(Code::kInvalidArgument, HasSubstr("nearest known one is \"window\"")));
}

TEST_F(NodeGroupTest, AReplicaAndAnAgentKnowTheirPlaces) {
  Say("size = 64M\nhttp_port = 7480\nhook = /a  /b\nservice = /usr/bin/service  --db\t/x=y\n");
  const auto group = ReadNodeGroup("orders");
  ASSERT_OK(group);
  EXPECT_TRUE(group->has_host);
  EXPECT_EQ(group->listen, "10.0.0.2:7000");
  EXPECT_EQ(group->bulk_listen, "10.0.0.2:7001");
  EXPECT_EQ(group->pool, "/var/lib/hyperloop/orders.pool");
  EXPECT_EQ(group->size, 64u << 20);
  EXPECT_EQ(group->database, "/var/lib/hyperloop/orders.db");
  EXPECT_EQ(group->http, "10.0.0.2:7480");
  EXPECT_THAT(group->agents, ElementsAre(Pair("a", "10.0.0.1:7480"), Pair("b", "10.0.0.2:7480"),
                                         Pair("c", "[fd00::3]:7480")));
  EXPECT_THAT(group->hooks, ElementsAre("/a", "/b"));
  EXPECT_EQ(group->address, "10.0.0.2");
  EXPECT_THAT(group->service, ElementsAre("/usr/bin/service", "--db", "/x=y"));
  Say("database = /data/db\n");
  const auto other = ReadNodeGroup("orders");
  ASSERT_OK(other);
  EXPECT_EQ(other->database, "/data/db");
  EXPECT_EQ(other->size, 512u << 20);
  EXPECT_THAT(other->http, IsEmpty());
  EXPECT_THAT(other->service, IsEmpty());
  Write(File(), "hosts = a\n");
  EXPECT_FALSE(ReadNodeGroup("orders")->has_host);
}

TEST_F(NodeGroupTest, FilesThatDoNotFitAreNamedWithTheRemedy) {
  EXPECT_THAT(Parse("hyperloop:///users"),
              StatusIs(Code::kNotFound,
                       AllOf(HasSubstr("this host has no group users: put its file"),
                             HasSubstr("/groups/users.conf"), HasSubstr("; there are orders"))));
  for (const char* name : {"", ".x", "a/b", "../keys/identity", "a,b:1"})
    EXPECT_THAT(Parse(std::string("hyperloop:///") + name),
                StatusIs(Code::kInvalidArgument, HasSubstr("is no name of a group")));
  Write(File(), "hosts = a, d\n");
  EXPECT_THAT(Parse("hyperloop:///orders"),
              StatusIs(Code::kInvalidArgument, HasSubstr("names d, which has no line in")));
  Write(File(), "hosts = a, b");
  EXPECT_THAT(Parse("hyperloop:///orders"),
              StatusIs(Code::kInvalidArgument, HasSubstr("may have been cut")));
  Write(File(), "hosts = a, b\n");
  Write(Hosts(), Line("a", "10.0.0.1", '1'));
  EXPECT_THAT(Parse("hyperloop:///orders"),
              StatusIs(Code::kNotFound, AllOf(HasSubstr(Hosts() + " has no line of this host, b"),
                                              HasSubstr("node init --name b"))));
  Write(Hosts(), Line("a", "10.0.0.1", '1') + Line("b", "10.0.0.2", '2'));
  EXPECT_THAT(Parse("hyperloop:///orders"),
              StatusIs(Code::kInvalidArgument, HasSubstr("has another key for this host, b")));
  Write(Hosts(), Line("a", "10.0.0.1", '1') + own_.substr(0, own_.size() - 1));
  EXPECT_THAT(Parse("hyperloop:///orders"),
              StatusIs(Code::kInvalidArgument, HasSubstr("may have been cut")));
  fs::remove(Hosts());
  EXPECT_THAT(Parse("hyperloop:///orders"),
              StatusIs(Code::kNotFound, HasSubstr("hosts file " + Hosts() + " is not there")));
  Write(Hosts(), own_ + Line("a", "10.0.0.1", '1'));
  chmod(File().c_str(), 0666);
  EXPECT_THAT(Parse("hyperloop:///orders"), StatusIs(Code::kPermissionDenied));
  Write(File(), "hosts = a, b\n");
  EXPECT_OK(Parse("hyperloop:///orders"));
  fs::remove_all(Keys());
  EXPECT_THAT(Parse("hyperloop:///orders"),
              StatusIs(Code::kNotFound, HasSubstr("this host has no identity in " + Keys())));
  ASSERT_OK(identity::MakeIdentity(Keys(), "b"));
  EXPECT_THAT(Parse("hyperloop:///orders"),
              StatusIs(Code::kInvalidArgument, HasSubstr("points to no file of hosts: call")));
}

TEST_F(NodeGroupTest, ValuesThatAreRefusedAreNamedWithTheirLine) {
  const auto refused = [&](const std::string& line, const std::string& why) {
    Say("\n" + line + "\n");
    EXPECT_THAT(Parse("hyperloop:///orders"),
                StatusIs(Code::kInvalidArgument, AllOf(HasSubstr(File() + ":3: "), HasSubstr(why))))
        << line;
  };
  refused("ack = never", "option ack=\"never\"");
  refused("window =", "option window=\"\"");
  for (const char* size : {"0", "3M", "16G", "much", ""})
    refused(std::string("size = ") + size, "size: give a size from 4M to 15G");
  for (const char* port : {"0", "7000", "7001", "7471", "65536", "x", ""})
    refused(std::string("http_port = ") + port, "http_port: give a number from 1 to 65535");
  for (const char* path : {"", "db", "/a/../b", "/a;b", "/a=b"})
    for (const char* name : {"folder", "database"})
      refused(std::string(name) + " = " + path, std::string(name) + ": give a path that begins");
  for (const char* hooks : {"", "hook", "/a b"})
    refused(std::string("hook = ") + hooks, "hook: give absolute paths of programs");
  refused("service =", "service: give the program");
  for (const char* command : {"\"/a b\"", "sh -c 'x'", "/a\\ b", "/a $HOME"})
    refused(std::string("service = ") + command, "put such a command into a script");
}

TEST_F(NodeGroupTest, ValuesThatDoNotFitTogetherAreRefusedWithTheFile) {
  Say("ack = sync\nlocal_write = acknowledged\n");
  EXPECT_THAT(ReadNodeGroup("orders"),
              StatusIs(Code::kInvalidArgument,
                       HasSubstr(File() + ": local_write=acknowledged needs ack=append")));
}

TEST_F(NodeGroupTest, AgentsNeedAGroupThatGoesOnWithoutAHost) {
  EXPECT_OK(CheckForAgents(ReadNodeGroup("orders")->store));
  Say("on_replica_failure = block\n");
  EXPECT_THAT(CheckForAgents(ReadNodeGroup("orders")->store),
              StatusIs(Code::kInvalidArgument, HasSubstr("leave on_replica_failure=block out")));
  Write(File(), "hosts = a, b\non_replica_failure = continue\n");
  EXPECT_THAT(CheckForAgents(ReadNodeGroup("orders")->store),
              StatusIs(Code::kInvalidArgument, HasSubstr("needs three replicas or more")));
}

// A new option is one that a group's file may set for all hosts, or one of these.
TEST_F(NodeGroupTest, EachOptionIsOfAllHostsOrOfOneOrOfOneOpening) {
  const std::set<std::string_view> others = {"region_size", "metrics_file", "pool",
                                             "takeover",    "restore",      "rebind",
                                             "adopt",       "add_replica",  "remove_replica"};
  const auto settings = identity::GroupSettings();
  for (const OptionInfo& info : StoreOptionTable()) {
    const int where = (std::ranges::count(settings, info.name) != 0 ? 1 : 0) +
                      (IsOfHosts(info.name) ? 1 : 0) + (others.contains(info.name) ? 1 : 0);
    EXPECT_EQ(where, 1) << info.name;
  }
  for (const std::string_view name : settings) {
    if (name == "hosts" || name == "port") continue;
    Say(std::string(name) + " = \x01\n");
    EXPECT_THAT(Parse("hyperloop:///orders"), StatusIs(Code::kInvalidArgument)) << name;
  }
}

TEST_F(NodeGroupTest, AnInstanceIsAFileOrAGroup) {
  EXPECT_THAT(InstanceArguments("replica", "orders"), ElementsAre("--group", "orders"));
  Write(folder_ + "/replica@orders.conf", "");
  EXPECT_THAT(InstanceArguments("replica", "orders"),
              ElementsAre("--config", folder_ + "/replica@orders.conf"));
}

}  // namespace
}  // namespace hyperloop
