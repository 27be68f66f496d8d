// Memory runs out on the thread of a LinkServer, or on its engine's: it costs a connection, which
// is made again, and nothing stays lost of what outlives a connection.
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hyperloop/identity/openssl_ciphers.h"
#include "softrnic/daemon/link_connection.h"
#include "softrnic/daemon/link_server.h"
#include "softrnic/daemon/testing/raw_neighbour.h"
#include "support/failing_memory.h"
#include "support/keys.h"
#include "support/log_lines.h"
#include "support/must.h"
#include "support/status_matchers.h"

namespace hyperloop::softrnic {
namespace {

constexpr uint64_t kReads = 3;  // of an exchange

const std::vector<std::byte>& LongPacket() {
  static const std::vector<std::byte> packet(kMaxPacketBytes);
  return packet;
}

// A server of host a, which dials host b at `b_address` unless that is empty. The test is the
// engine.
struct LinkWorld {
  LinkWorld(std::shared_ptr<identity::KeyRing> a, const std::string& b_address) {
    LinkOptions options;
    options.listen = *ParseLinkAddress("127.0.0.1:0", /*any_port=*/true);
    options.keys = std::move(a);
    options.ciphers = identity::OpenSslCiphers();
    if (!b_address.empty()) options.peers = {*ParseLinkPeer("b=" + b_address)};
    loop = Must(EngineLoop::Create(&engine, {}));
    server = Must(LinkServer::Create(options, &engine, log));
  }
  ~LinkWorld() { server->Stop(); }

  void Answer(LinkId link) {
    server->Send(link, LongPacket());
    server->Flush();
  }

  std::shared_ptr<LogLines> log = std::make_shared<LogLines>();
  Engine engine{EngineOptions{}};
  std::unique_ptr<EngineLoop> loop;
  std::unique_ptr<LinkServer> server;
};

class LinkMemoryExhaustion : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(mkdtemp(root_.data()), nullptr);
    test::MakeKeys(root_, {"a", "b"}, identity::kRoleLink);
    a_ = *identity::KeyRing::Load(test::KeysDir(root_, "a"));
    b_ = *identity::KeyRing::Load(test::KeysDir(root_, "b"));
    const auto any = ParseLinkAddress("127.0.0.1:0", /*any_port=*/true);
    listener_.Reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(bind(listener_.get(), reinterpret_cast<const sockaddr*>(&any->storage), any->length),
              0);
    ASSERT_EQ(listen(listener_.get(), 16), 0);
    LinkAddress bound;
    bound.length = sizeof bound.storage;
    getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&bound.storage), &bound.length);
    b_address_ = bound.ToString();
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  // The next event of the server; false: `neighbour` was closed before it came.
  static bool NextEvent(LinkWorld& world, const RawNeighbour& neighbour, LinkEvent* event) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!world.server->Receive(event)) {
      if (neighbour.closed()) return world.server->Receive(event);
      if (std::chrono::steady_clock::now() > deadline) {
        ADD_FAILURE() << "neither an event nor the connection's end";
        return false;
      }
      sched_yield();
    }
    return true;
  }

  // Neighbour b connects, and asks. False: the connection ended before everything was answered.
  bool ServeIncoming(LinkWorld& world) {
    RawNeighbour neighbour(world.server->listening(), b_);
    if (!neighbour.Introduce().ok()) return false;
    neighbour.Ask(kReads);
    for (uint64_t i = 0; i < kReads; ++i) {
      LinkEvent event;
      if (!NextEvent(world, neighbour, &event)) return false;
      EXPECT_EQ(event.kind, LinkEvent::Kind::kPacket);
      world.Answer(event.link);
    }
    return neighbour.AwaitAnswers(kReads);
  }

  // The server has dialed b, and sends requests until it must wait; b reads them, and answers one.
  // False: the connection ended before. `most`: how many requests fit.
  bool ServeDialed(LinkWorld& world, size_t* most = nullptr) {
    pollfd waiting{listener_.get(), POLLIN, 0};
    if (poll(&waiting, 1, static_cast<int>(kPatience.count()) * 1000) != 1) {
      ADD_FAILURE() << "it does not dial";
      return false;
    }
    RawNeighbour neighbour(UniqueFd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)), b_);
    if (!neighbour.Introduce().ok()) return false;
    LinkEvent event;
    // A connection that ended may have left the wish for room behind, which comes true now.
    do {
      if (!NextEvent(world, neighbour, &event)) return false;
      EXPECT_NE(event.kind, LinkEvent::Kind::kPacket);
    } while (event.kind != LinkEvent::Kind::kUp);
    size_t sent = 0;
    for (; world.server->Ready(1); ++sent) world.server->Send(1, LongPacket());
    if (most != nullptr) *most = sent;
    world.server->Flush();
    if (!neighbour.AwaitAnswers(sent)) return false;
    if (!NextEvent(world, neighbour, &event)) return false;
    EXPECT_EQ(event.kind, LinkEvent::Kind::kRoom);
    neighbour.Say({.type = PacketType::kAck, .dest_qpn = 1, .source_qpn = 1, .session = 1});
    if (!NextEvent(world, neighbour, &event)) return false;
    EXPECT_EQ(event.kind, LinkEvent::Kind::kPacket);
    return true;
  }

  // Closes the connections that a server of an earlier world has dialed.
  void DropWaiting() const {
    pollfd waiting{listener_.get(), POLLIN, 0};
    while (poll(&waiting, 1, 0) == 1)
      UniqueFd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }

  // What the engine has not received yet is of connections that have ended.
  static void DrainEvents(LinkWorld& world) {
    LinkEvent event;
    while (world.server->Receive(&event)) {
    }
    world.server->Flush();
  }

  // The room for packets that the engine has: all of it is there.
  void ExpectRoomForAnswers(LinkWorld& world) {
    const uint64_t bytes = kMaxPacketBytes + identity::SecureChannel::FrameOverhead(true);
    const uint64_t room = (kLinkInFlightBytes + bytes - 1) / bytes;
    RawNeighbour one(world.server->listening(), b_), other(world.server->listening(), b_);
    ASSERT_OK(one.Introduce());
    ASSERT_OK(other.Introduce());
    one.Ask(room / 2);
    other.Ask(room);
    LinkEvent event;
    for (uint64_t i = 0; i < room; ++i)
      ASSERT_TRUE(NextEvent(world, one, &event)) << "room for " << i << " of " << room;
  }

  // Runs `exchange` while memory runs out on the server's thread, `count` times in a row, and then
  // `recovers`, which is to succeed.
  void CostsAConnection(const std::string& b_address, size_t count,
                        const std::function<bool(LinkWorld&)>& exchange,
                        const std::function<void(LinkWorld&)>& recovers) {
    const auto scenario = [&](test::Shortage& shortage) {
      DropWaiting();
      LinkWorld world(a_, b_address);
      bool whole = false;
      EXPECT_FALSE(shortage.Elsewhere([&] {
        world.server->Start(world.loop.get());
        whole = exchange(world);
      }));
      recovers(world);
      EXPECT_TRUE(whole || count != 1 || world.log->Has("out of memory"));
      return whole;
    };
    test::ForEachFailingAllocation({.count = count, .harmed = 11}, scenario);
  }
  // Some of what is dialed may have ended before it is accepted, `ended` at most.
  void ExpectDialedAgain(LinkWorld& world, size_t ended) {
    size_t most = 0;
    bool whole = false;
    for (size_t i = 0; i <= ended && !whole; ++i) {
      DrainEvents(world);
      whole = ServeDialed(world, &most);
    }
    EXPECT_TRUE(whole);
    const size_t frame = kMaxPacketBytes + identity::SecureChannel::FrameOverhead(true);
    EXPECT_EQ(most, (kLinkQueueBytes + frame - 1) / frame) << "room that nobody uses is taken";
  }

  std::string root_ = std::filesystem::temp_directory_path() / "hyperloop-links-XXXXXX", b_address_;
  std::shared_ptr<identity::KeyRing> a_, b_;
  UniqueFd listener_;
};

TEST_F(LinkMemoryExhaustion, WhatANeighbourDoesCostsItsConnection) {
  for (const size_t count : {1, 8}) {
    CostsAConnection(
        "", count, [this](LinkWorld& world) { return ServeIncoming(world); },
        [this](LinkWorld& world) {
          DrainEvents(world);
          EXPECT_TRUE(ServeIncoming(world));
          ExpectRoomForAnswers(world);
        });
    if (HasFailure()) return;
  }
}

TEST_F(LinkMemoryExhaustion, ALinkThatBreaksIsMadeAgain) {
  for (const size_t count : {1, 2}) {
    CostsAConnection(
        b_address_, count, [this](LinkWorld& world) { return ServeDialed(world); },
        [&](LinkWorld& world) { ExpectDialedAgain(world, count); });
    if (HasFailure()) return;
  }
}

// The server's thread does not run, so that what the engine sends piles up.
TEST_F(LinkMemoryExhaustion, TheEnginesThreadLosesAtMostThePacketThatItSends) {
  test::ForEachFailingAllocation({}, [this](test::Shortage& shortage) {
    DropWaiting();
    LinkWorld world(a_, b_address_);
    size_t lost = 0;
    for (int turn = 0; turn < 4; ++turn) {
      for (const LinkId link : {LinkId{1}, kIncomingLinks | 1})
        lost += shortage.Here([&] { world.server->Send(link, LongPacket()); }) ? 1 : 0;
      bool received = true, ready = true;
      EXPECT_FALSE(shortage.Here([&] {
        world.server->Flush();
        LinkEvent event;
        received = world.server->Receive(&event);
        ready = world.server->Ready(1);
      }));
      EXPECT_FALSE(received || ready);
    }
    EXPECT_EQ(lost, shortage.failed());
    world.server->Start(world.loop.get());
    ExpectDialedAgain(world, 0);
    return lost == 0;
  });
}

}  // namespace
}  // namespace hyperloop::softrnic
