// Tests what a LinkServer makes of its file of peers when that changes. The test takes the place of
// the engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "hyperloop/core/text.h"
#include "softrnic/daemon/link_server.h"
#include "softrnic/links/packet.h"
#include "support/eventually.h"
#include "support/free_address.h"
#include "support/log_lines.h"
#include "support/status_matchers.h"

namespace hyperloop::softrnic {
namespace {

using test::Eventually;
using test::FreeAddress;
using Links = std::vector<std::pair<std::string, bool>>;
namespace fs = std::filesystem;

// A server, with an engine that is not run.
struct Daemon {
  explicit Daemon(const LinkOptions& options) {
    auto made = LinkServer::Create(options, &engine, log);
    EXPECT_OK(made);
    auto driver = EngineLoop::Create(&engine, {});
    EXPECT_OK(driver);
    server = std::move(*made);
    loop = std::move(*driver);
    server->Start(loop.get());
  }
  ~Daemon() { server->Stop(); }

  std::shared_ptr<LogLines> log = std::make_shared<LogLines>();
  Engine engine{EngineOptions{}};
  std::unique_ptr<LinkServer> server;
  std::unique_ptr<EngineLoop> loop;
};

LinkOptions Listening() {
  LinkOptions options;
  options.listen = *ParseLinkAddress("127.0.0.1:0", /*any_port=*/true);
  return options;
}

class LinkServerPeersTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = fs::temp_directory_path() / "hyperloop-peers-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string Path() const { return folder_ + "/peers"; }
  void Write(const std::string& text) {
    { std::ofstream(Path() + ".new") << text; }
    fs::rename(Path() + ".new", Path());
  }
  std::unique_ptr<Daemon> Start(const std::string& peers) {
    Write(peers);
    LinkOptions options = Listening();
    options.peers_file = Path();
    return std::make_unique<Daemon>(options);
  }
  std::string One() const { return one_.server->listening(); }
  std::string Other() const { return other_.server->listening(); }
  static std::string Line(const std::string& host, const std::string& address) {
    return host + "=" + address + "\n";
  }
  static std::string Name(const std::string& hosts, const std::string& address) {
    return hosts + " (" + address + ")";
  }
  static Links LinksOf(const Daemon& daemon) {
    Links links;
    for (const LinkServer::LinkState& link : daemon.server->LinkStates())
      links.emplace_back(link.peer, link.up);
    return links;
  }
  static bool ComeTo(const Daemon& daemon, const Links& expected) {
    const bool came = Eventually([&] { return LinksOf(daemon) == expected; });
    if (!came) {
      EXPECT_EQ(LinksOf(daemon), expected);
    }
    return came;
  }
  // The link of the next event kRoute of `host`, or kNoLink if none comes.
  static LinkId LinkOf(Daemon& daemon, const std::string& host) {
    LinkEvent event;
    EXPECT_TRUE(Eventually([&] {
      return daemon.server->Receive(&event) && event.kind == LinkEvent::Kind::kRoute &&
             event.prefix == GidPrefix(host) && event.link != kNoLink;
    })) << host;
    return event.link;
  }
  static bool IsUp(const Daemon& daemon, const std::string& name) {
    return Eventually(
        [&] { return std::ranges::count(LinksOf(daemon), std::pair(name, true)) == 1; });
  }
  // The next event of the kind kRoute; others are left out.
  static LinkEvent NextRoute(Daemon& daemon) {
    LinkEvent event;
    EXPECT_TRUE(Eventually(
        [&] { return daemon.server->Receive(&event) && event.kind == LinkEvent::Kind::kRoute; }));
    return event;
  }
  static void ExpectRoute(Daemon& daemon, const std::string& host, LinkId link) {
    const LinkEvent event = NextRoute(daemon);
    EXPECT_EQ(event.prefix, GidPrefix(host)) << host;
    EXPECT_EQ(event.link, link) << host;
  }
  static size_t Lines(const Daemon& daemon, const std::string& text) {
    const auto lines = daemon.log->lines();
    return static_cast<size_t>(std::ranges::count_if(
        lines, [&](const std::string& line) { return line.find(text) != std::string::npos; }));
  }

  std::string folder_;
  Daemon one_{Listening()}, other_{Listening()};
};

TEST_F(LinkServerPeersTest, AHostThatComesGetsALinkAndOneThatGoesLosesIt) {
  const auto daemon = Start("# nobody yet\n");
  EXPECT_EQ(daemon->server->totals().configured, 0u);
  Write(Line("b", One()));
  ASSERT_TRUE(ComeTo(*daemon, {{Name("b", One()), true}}));
  ExpectRoute(*daemon, "b", 1);
  EXPECT_TRUE(daemon->server->Ready(1));
  EXPECT_FALSE(daemon->server->Ready(2));
  Write(Line("b", One()) + Line("c", Other()));
  ASSERT_TRUE(ComeTo(*daemon, {{Name("b", One()), true}, {Name("c", Other()), true}}));
  ExpectRoute(*daemon, "c", 2);
  Write(Line("c", Other()));
  ASSERT_TRUE(ComeTo(*daemon, {{Name("c", Other()), true}}));
  ExpectRoute(*daemon, "b", kNoLink);
  EXPECT_TRUE(Eventually([&] { return !daemon->server->Ready(1); }));
  EXPECT_EQ(daemon->server->totals().configured, 1u);
  EXPECT_TRUE(daemon->log->Has("host b is not at " + One() + " any more, says " + Path()));
  EXPECT_TRUE(daemon->log->Has("is down: no host is there any more"));
  EXPECT_EQ(daemon->server->totals().connects, 2u) << "the link that stayed was made again";
  // It comes back, to the link that it had.
  Write(Line("c", Other()) + Line("b", One()));
  ASSERT_TRUE(ComeTo(*daemon, {{Name("b", One()), true}, {Name("c", Other()), true}}));
  ExpectRoute(*daemon, "b", 1);
}

TEST_F(LinkServerPeersTest, AHostThatMovesIsReachedWhereItIs) {
  const auto daemon = Start(Line("b", One()) + Line("c", One()));
  ASSERT_TRUE(ComeTo(*daemon, {{Name("b,c", One()), true}}));
  Write(Line("b", Other()) + Line("c", One()));
  ASSERT_TRUE(ComeTo(*daemon, {{Name("c", One()), true}, {Name("b", Other()), true}}));
  ExpectRoute(*daemon, "b", kNoLink);
  ExpectRoute(*daemon, "b", 2);
  // A host that joins others has a link of its own, because it may prove to be somebody else.
  Write(Line("b", Other()) + Line("c", One()) + Line("d", One()));
  ASSERT_TRUE(ComeTo(
      *daemon, {{Name("c", One()), true}, {Name("b", Other()), true}, {Name("d", One()), true}}));
  ExpectRoute(*daemon, "d", 3);
  EXPECT_EQ(daemon->server->totals().connects, 3u);
  EXPECT_EQ(daemon->server->totals().reconnects, 0u);
}

// One after the other, each is said once, with the line; the links stay as they are.
TEST_F(LinkServerPeersTest, AFileThatCannotBeUsedChangesNothing) {
  const std::string good = Line("b", One());
  const auto daemon = Start(good);
  const Links links{{Name("b", One()), true}};
  ASSERT_TRUE(ComeTo(*daemon, links));
  const auto write = [&](const std::string& text) {
    text.empty() ? void(fs::remove(Path())) : Write(text);
  };
  for (const auto& [text, why] : std::vector<std::pair<std::string, std::string>>{
           {"# c is new\nc=" + Other() + "\nnonsense\n", Path() + ":3: peer \"nonsense\""},
           {good + Line("c", Other()) + Line("b", Other()), Path() + ":3: host b is named twice"},
           {good + Line("c", "10.1.2.3:7471"), "peer c= 10.1.2.3:7471 is not loopback"},
           {"# nobody\n", Path() + " names no host any more"},
           {"", "reading the peers file " + Path()}}) {
    write(text);
    EXPECT_TRUE(Eventually([&] { return daemon->log->Has(why); })) << why;
    EXPECT_EQ(LinksOf(*daemon), links) << why;
  }
  Write(good + Line("c", Other()));
  ASSERT_TRUE(ComeTo(*daemon, {{Name("b", One()), true}, {Name("c", Other()), true}}));
  EXPECT_EQ(Lines(*daemon, "is not used, and its links stay as they were"), 5u);
  ExpectRoute(*daemon, "c", 2);
  EXPECT_EQ(daemon->server->totals().connects, 2u);
}

TEST_F(LinkServerPeersTest, AFileThatCouldNotBeReadForOtherReasonsIsReadLater) {
  const auto daemon = Start(Line("b", One()));
  ASSERT_TRUE(ComeTo(*daemon, {{Name("b", One()), true}}));
  std::ofstream(Path() + ".new") << Line("b", One()) + Line("c", Other());
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  fs::rename(Path() + ".new", Path());
  EXPECT_TRUE(Eventually([&] { return daemon->log->Has("Too many open files"); }));
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_TRUE(ComeTo(*daemon, {{Name("b", One()), true}, {Name("c", Other()), true}}));
  EXPECT_EQ(Lines(*daemon, "is not used, and its links stay as they were"), 1u);
}

// With keys the other end lets a daemon have few connections, and would close the oldest of more.
TEST_F(LinkServerPeersTest, HostsThatComeToOneAddressShareALinkWhenThereAreMany) {
  std::string text = Line("a", One());
  const auto daemon = Start(text);
  Links links{{Name("a", One()), true}};
  ASSERT_TRUE(ComeTo(*daemon, links));
  for (const std::string host : {"b", "c", "d"}) {
    Write(text += Line(host, One()));
    links.emplace_back(Name(host, One()), true);
    ASSERT_TRUE(ComeTo(*daemon, links));
  }
  EXPECT_EQ(daemon->server->totals().connects, 4u);
  Write(text += Line("e", One()));
  links.back().first = Name("d,e", One());
  ASSERT_TRUE(ComeTo(*daemon, links));
  EXPECT_EQ(daemon->server->totals().reconnects, 1u) << "the other links, too";
  for (const auto& [host, link] : std::map<std::string, LinkId>{{"b", 2}, {"c", 3}, {"d", 4}})
    ExpectRoute(*daemon, host, link);
  ExpectRoute(*daemon, "e", 4);
  // The link stays with the hosts that stay.
  Write(Line("a", One()) + Line("e", One()));
  ASSERT_TRUE(ComeTo(*daemon, {{Name("a", One()), true}, {Name("e", One()), true}}));
  EXPECT_EQ(daemon->server->totals().reconnects, 1u);
}

// However many there were before.
TEST_F(LinkServerPeersTest, AddressesThatAreGoneMakeRoomForOthers) {
  std::string others;
  for (size_t i = 2; i < kMaxNeighbours; ++i)
    others += Line(Text("p", i), Text("127.1.", i / 250, ".", i % 250 + 1, ":1"));
  const auto daemon = Start(Line("gone", "127.0.0.2:1") + Line("b", One()) + others);
  ASSERT_TRUE(IsUp(*daemon, Name("b", One())));
  EXPECT_EQ(daemon->server->totals().configured, kMaxNeighbours);
  EXPECT_TRUE(daemon->server->Ready(2));
  // Another name at the same address.
  Write(Line("gone", "127.0.0.2:1") + Line("d", One()) + others);
  ASSERT_TRUE(IsUp(*daemon, Name("d", One())));
  EXPECT_EQ(LinkOf(*daemon, "d"), 2u);
  // What the engine still sends to the host that is gone does not reach the one in its place.
  Write(Line("e", Other()) + Line("d", One()) + others);
  ASSERT_TRUE(IsUp(*daemon, Name("e", Other())));
  const LinkId link = LinkOf(*daemon, "e");
  EXPECT_EQ(link, 1 + kMaxNeighbours);
  EXPECT_TRUE(daemon->server->Ready(link));
  EXPECT_FALSE(daemon->server->Ready(1));
  const std::vector<std::byte> packet(kMaxPacketBytes);
  daemon->server->Send(1, packet);
  daemon->server->Flush();
  EXPECT_TRUE(daemon->server->Ready(link));

  Write(Line("e", Other()) + Line("d", One()) + others + Line("more", "127.0.0.3:1"));
  EXPECT_TRUE(Eventually([&] { return daemon->log->Has("a daemon has 1024 links at most"); }));
  EXPECT_EQ(daemon->server->totals().configured, kMaxNeighbours);
}

TEST_F(LinkServerPeersTest, AFileThatChangesAllTheTimeIsNotReadAndThatIsSaid) {
  const auto daemon = Start(Line("b", One()));
  ASSERT_TRUE(ComeTo(*daemon, {{Name("b", One()), true}}));
  EXPECT_TRUE(Eventually([&] {
    Write(Line("b", One()));
    return daemon->log->Has("is not read: " + Path() + " changes all the time");
  }));
  Write(Line("b", One()) + Line("c", Other()));
  ASSERT_TRUE(ComeTo(*daemon, {{Name("b", One()), true}, {Name("c", Other()), true}}));
  EXPECT_EQ(Lines(*daemon, "changes all the time"), 1u);
}

TEST_F(LinkServerPeersTest, AnEmptiedFileTakesNoHostsAwayBesideThoseOfTheCommandLine) {
  Write(Line("b", One()));
  LinkOptions options = Listening();
  options.peers_file = Path();
  options.peers = {*ParseLinkPeer("c=" + Other())};
  Daemon daemon(options);
  const Links links{{Name("c", Other()), true}, {Name("b", One()), true}};
  ASSERT_TRUE(ComeTo(daemon, links));
  Write("");
  EXPECT_TRUE(Eventually([&] { return daemon.log->Has(Path() + " names no host any more"); }));
  EXPECT_EQ(LinksOf(daemon), links);
}

TEST_F(LinkServerPeersTest, WhatIsNoFileOfPeersIsRefusedWithoutAWait) {
  ASSERT_EQ(mkfifo(Path().c_str(), 0600), 0);
  for (const std::string& path : {Path(), folder_, std::string("/dev/zero")})
    EXPECT_THAT(ReadPeersFile(path), StatusIs(Code::kInvalidArgument)) << path;
  const std::string line = Line("b", "127.0.0.1:7471");
  const std::string most = line + std::string((1 << 20) - line.size(), '#');
  Write(most);
  const auto peers = ReadPeersFile(Path());
  ASSERT_OK(peers);
  EXPECT_EQ(peers->size(), 1u);
  Write(most + "#");
  EXPECT_THAT(ReadPeersFile(Path()).status().message(),
              testing::HasSubstr("more than 1048576 bytes"));
}

}  // namespace
}  // namespace hyperloop::softrnic
