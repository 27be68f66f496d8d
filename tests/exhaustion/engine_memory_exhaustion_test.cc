// Memory runs out in the engine, in each command and in each request. Either one allocation fails,
// or all that follow fail too. Only the client that asked may be evicted, and what it had is given
// back.
#include <endian.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "softrnic/engine/flusher.h"
#include "softrnic/engine/testing/engine_link_fixture.h"
#include "support/failing_memory.h"
#include "support/status_matchers.h"

namespace hyperloop::softrnic {
namespace {

using test::ForEachFailingAllocation;
using test::kForGood;
using test::Shortage;

// The contexts that an engine has evicted. Takes no memory.
struct Evictions {
  explicit Evictions(Engine& engine) {
    engine.SetEvict([this](ContextId context, const auto&) { list.at(count++) = context; });
  }
  bool Has(const Client& client) const {
    return std::find(list.begin(), list.begin() + count, client.id()) != list.begin() + count;
  }
  std::array<ContextId, 16> list{};
  size_t count = 0;
};

// A client that runs out of memory, and one whose requests go on.
struct CrampedWorld {
  explicit CrampedWorld(const EngineOptions& options = {}) : engine(options) {
    cq = one.Cq(), other_cq = other.Cq();
    qp = one.Qp(cq, cq, {.has_rq = false}), other_qp = other.Qp(other_cq, other_cq);
    one.Connect(qp, qp), other.Connect(other_qp, other_qp);
    from = one.Allocate(64 << 10), to = one.Allocate(64 << 10);
  }
  void ExpectOtherGoesOn() {
    other_qp.Nop(CqeMode::kAlways);
    other_qp.Ring();
    RunAll(engine);
    const auto done = other_cq.Poll();
    ASSERT_TRUE(done.has_value());
    EXPECT_EQ(done->status, rnic::WcStatus::kSuccess);
    EXPECT_FALSE(evictions.Has(other));
  }

  Engine engine;
  Evictions evictions{engine};
  Client one{engine, "one"}, other{engine, "other"};
  TestCq cq, other_cq;
  TestQp qp, other_qp;
  std::byte *from = nullptr, *to = nullptr;
};

constexpr char kService[] = "a-service-with-a-long-name";

Command PublishAs(const Client& client, size_t private_length = 100) {
  Command command;
  command.op = Op::kPublish;
  std::strcpy(command.args.publish.service, kService);
  command.args.publish.pdn = client.pdn;
  command.args.publish.private_length = static_cast<uint32_t>(private_length);
  return command;
}
// Asks for the service of `host` with a fresh queue pair, or with `qpn`.
Command ConnectTo(const char* host, Client& client, uint32_t qpn) {
  client.Modify({.qpn = qpn}, QpState::kReset);
  Command command;
  command.op = Op::kConnectService;
  std::strcpy(command.args.connect.host, host);
  std::strcpy(command.args.connect.service, kService);
  command.args.connect.qpn = qpn;
  return command;
}
// An address of the client's memory, as in commands.
uint64_t Take(Client& client, size_t bytes) {
  return reinterpret_cast<uint64_t>(client.Allocate(bytes));
}

// What happens while memory runs out, and a command's status.
using Act = std::function<Status(CrampedWorld&)>;
// What happens before, and what is to happen then.
using Prepare = std::function<Act(CrampedWorld&)>;

// The command that `fill` makes.
Prepare Executing(std::function<Command(CrampedWorld&)> fill) {
  return [fill](CrampedWorld& prepared) -> Act {
    return [command = fill(prepared)](CrampedWorld& world) {
      Reply reply;
      return world.engine.Execute(world.one.id(), command, &reply, &world.one.text);
    };
  };
}

// `throws`: the act may throw std::bad_alloc, after which the test closes the context as a caller
// does.
void CostsItsClientAlone(const Prepare& prepare, const EngineOptions& options = {},
                         bool throws = false) {
  for (const size_t count : {size_t{1}, kForGood}) {
    ForEachFailingAllocation({.count = count}, [&](Shortage& shortage) {
      CrampedWorld world(options);
      const Act act = prepare(world);
      Status status;
      const bool threw = shortage.Here([&] { status = act(world); });
      const bool evicted = world.evictions.Has(world.one);
      const bool whole = status.ok() && !threw && world.evictions.count == 0;
      if (shortage.failed() != 0) {
        EXPECT_TRUE(threw ? throws || (count == kForGood && evicted) : evicted)
            << status.ToString();
        EXPECT_THAT(status, testing::AnyOf(IsOk(), StatusIs(Code::kNoSpace)));
      }
      world.ExpectOtherGoesOn();
      world.one.Close();
      world.ExpectOtherGoesOn();
      ExpectServed(world.engine, "one");  // who can have all names that client one had
      return whole;
    });
    if (testing::Test::HasFailure()) return;
  }
}

TEST(EngineMemoryExhaustion, ACommandThatMakesSomethingCostsItsClientAlone) {
  const std::function<Command(CrampedWorld&)> makings[] = {
      [](CrampedWorld& world) { return world.one.Make(Op::kAllocPd); },
      [](CrampedWorld& world) {
        for (int i = 0; i < 29; ++i)
          world.one.Key(world.from, 8, 0);  // the tables of keys are full
        Command command = world.one.Make(Op::kCreateMkey);
        command.args.mkey = {
            world.one.pdn, world.one.umem, Take(world.one, 64), 64, rnic::kLocalWrite, 0};
        return command;
      },
      [](CrampedWorld& world) {
        Command command = world.one.Make(Op::kCreateCq);
        const uint64_t at = Take(world.one, 128);
        command.args.cq = {world.one.umem, 0, at, at + 64, 0, 0};
        return command;
      },
      [](CrampedWorld& world) {
        Command command = world.one.Make(Op::kCreateQp);
        const uint64_t at = Take(world.one, 256);
        command.args.qp = {world.one.pdn,
                           world.cq.cqn,
                           world.cq.cqn,
                           world.one.umem,
                           at,
                           at,
                           at + 128,
                           0,
                           0,
                           4,
                           0,
                           0,
                           1};
        return command;
      },
      [](CrampedWorld& world) { return PublishAs(world.one); },
  };
  EngineOptions prefetches;
  prefetches.prefetch_depth = 8;
  for (const EngineOptions& options : {EngineOptions{}, prefetches}) {
    for (const auto& making : makings) {
      SCOPED_TRACE(&making - makings);
      CostsItsClientAlone(Executing(making), options);
      if (HasFailure()) return;
    }
  }
}

// The other client asks for a service that was being published when memory ran out.
TEST(EngineMemoryExhaustion, AServiceIsPublishedWhollyOrNotAtAll) {
  for (const bool again : {false, true}) {
    ForEachFailingAllocation({}, [&](Shortage& shortage) {
      CrampedWorld world;
      const Command publish = PublishAs(world.one);
      if (again) world.one.Must(publish);
      Reply reply;
      shortage.Here([&] { world.one.Try(publish, &reply).IgnoreError(); });
      const uint32_t qpn = world.other.Qp(world.other_cq, world.other_cq).qpn;
      const Status status = world.other.Try(ConnectTo("one", world.other, qpn), &reply);
      const bool whole = status.ok() && reply.result.connect.private_length == 100;
      EXPECT_TRUE(whole || (!again && status.code() == Code::kNotFound)) << status.ToString();
      return whole && world.evictions.count == 0;
    });
  }
}

TEST(EngineMemoryExhaustion, AServiceThatIsAskedForCostsTheAskerAlone) {
  CostsItsClientAlone(Executing([](CrampedWorld& world) {
    world.other.Must(PublishAs(world.other, 0));
    return ConnectTo("other", world.one, world.one.Qp(world.cq, world.cq).qpn);
  }));
}

// These two commands come with descriptors and not through Execute. Their callers get
// std::bad_alloc.
TEST(EngineMemoryExhaustion, MemoryAndChannelsCostTheirClientAlone) {
  const auto memory = [](CrampedWorld& world) {
    return world.engine
        .RegisterUmem(world.one.id(), {reinterpret_cast<uint64_t>(world.from), 0, 4096},
                      {world.from, 4096, nullptr})
        .status();
  };
  CostsItsClientAlone([&](CrampedWorld&) { return memory; }, {}, /*throws=*/true);
  const auto channel = [](CrampedWorld& prepared) -> Act {
    const uint64_t at = Take(prepared.one, 128);
    return [args = CreateCqArgs{prepared.one.umem, 0, at, at + 64, 0, 1}](CrampedWorld& world) {
      return world.engine.CreateEventCq(world.one.id(), args, [] {}).status();
    };
  };
  CostsItsClientAlone(channel, {}, /*throws=*/true);
}

TEST(EngineMemoryExhaustion, AClientThatIsNotLetInLeavesNothing) {
  const auto page = std::make_unique<UarPage>();
  for (const std::string host : {"one", "a-host-that-nobody-has-attached-to"}) {
    for (const ClientNumber number : {0, 7}) {
      const auto open = [&](CrampedWorld& world) {
        OpenReply reply;
        return world.engine.OpenContext(host, page.get(), &reply, number).status();
      };
      CostsItsClientAlone([&](CrampedWorld&) { return open; }, {}, /*throws=*/true);
    }
  }
}

// With the same allocation failing for more hosts than there may be.
TEST(EngineMemoryExhaustion, HostsOfClientsThatAreNotLetInTakeNoPlace) {
  const auto page = std::make_unique<UarPage>();
  bool opened = false;
  for (size_t number = 0; !opened; ++number) {
    SCOPED_TRACE(number);
    CrampedWorld world;
    OpenReply reply;
    for (int i = 0; i < 300 && !opened; ++i) {
      const std::string host = "a-host-that-nobody-has-attached-to-" + std::to_string(i);
      const auto open = [&] { opened = world.engine.OpenContext(host, page.get(), &reply).ok(); };
      EXPECT_NE(Shortage(number, 1).Here(open), opened);
    }
    ExpectServed(world.engine, "next");
    if (HasFailure()) return;
  }
}

// Takes note of what is to be flushed.
struct NotedFlushes final : Flusher {
  std::vector<std::shared_ptr<FlushJob>> jobs;
  bool Flush(uint64_t, FileRange, std::shared_ptr<FlushJob> job) override {
    return !RanOutOfMemory([&] { jobs.push_back(std::move(job)); });
  }
  void Gone(uint64_t) override {}
  void Finish() {
    for (const auto& job : std::exchange(jobs, {})) job->left.fetch_sub(1);
  }
};

// The queue pair that serves the READ is neither stuck nor does it promise what was not flushed.
TEST(EngineMemoryExhaustion, AFlushThatCannotBeAskedForIsAFailedRead) {
  ForEachFailingAllocation({}, [](Shortage& shortage) {
    NotedFlushes disk;
    EngineOptions options;
    options.flusher = &disk;
    Engine engine(options);
    Client asker(engine, "asker"),
        owner(engine, "owner", rnic::Media::kFile, nullptr, 0, -1, /*waits_for_disk=*/true);
    TestCq cq = asker.Cq(), owner_cq = owner.Cq();
    TestQp qp = asker.Qp(cq, cq), owner_qp = owner.Qp(owner_cq, owner_cq);
    const uint64_t to = Take(owner, 64);
    for (const bool first : {true, false}) {
      for (auto [client, own] : {std::pair(&asker, &qp), std::pair(&owner, &owner_qp)}) {
        client->Modify(*own, QpState::kReset);
        client->Modify(*own, QpState::kInit, rnic::kRemoteWrite | rnic::kRemoteRead);
      }
      qp.next = 0;
      asker.Connect(qp, owner_qp);
      owner.Connect(owner_qp, qp);
      qp.Write(to, owner.rkey, asker.At(asker.memory, 8));
      qp.Read(to, owner.rkey, asker.At(asker.memory, 8), CqeMode::kAlways);
      qp.Ring();
      EXPECT_FALSE(first && shortage.Here([&] { engine.Run(100); }));
      RunAll(engine);
      disk.Finish();
      RunAll(engine);
      const auto done = cq.Poll();
      const bool fails = first && shortage.failed() != 0;
      EXPECT_TRUE(done && done->status == (fails ? rnic::WcStatus::kRemoteOperation
                                                 : rnic::WcStatus::kSuccess));
    }
    return shortage.failed() == 0;
  });
}

TEST(EngineMemoryExhaustion, ARequestCostsItsClientAlone) {
  CostsItsClientAlone([](CrampedWorld& prepared) -> Act {
    prepared.qp.Write(reinterpret_cast<uint64_t>(prepared.to), prepared.one.rkey,
                      prepared.one.At(prepared.from, 64 << 10));  // too long for one turn
    prepared.qp.Ring();
    return [](CrampedWorld& world) {
      for (int i = 0; i < 100; ++i) world.engine.Run(64);
      return Status();
    };
  });
}

// --- links

// Host a sends requests to host b in another engine. A bystander on each side sends requests over
// the same links. Memory runs out in the engine of a, or in b's.
struct CrampedLink {
  explicit CrampedLink(bool of_a) : at_a(of_a) {
    near_cq = near.Cq(), far_cq = far.Cq();
    near_qp = near.Qp(near_cq, near_cq), far_qp = far.Qp(far_cq, far_cq);
    near.Connect(near_qp, far_qp);
    far.Connect(far_qp, near_qp);
  }
  // As Linked::Run.
  void Run(Shortage& shortage, int rounds) {
    for (int i = 0; i < rounds; ++i) {
      for (Engine* const engine : {&l.a_engine, &l.b_engine}) {
        if ((engine == &l.a_engine) != at_a) {
          engine->Run(100);
        } else {
          EXPECT_FALSE(shortage.Here([&] { engine->Run(100); })) << "the daemon would have ended";
        }
      }
      l.network.DeliverAll();
    }
  }
  size_t evicted() const { return a_evictions.count + b_evictions.count; }
  void ExpectBystandersGoOn() {
    const uint64_t word = Take(far, 64);
    near_qp.Write(word, far.rkey, near.At(near.memory, 8), CqeMode::kAlways);
    near_qp.Read(word, far.rkey, near.At(near.memory, 8), CqeMode::kAlways);
    near_qp.Ring();
    completed += 2;
    for (int i = 0; i < 20 && near_cq.consumer < completed; ++i) {
      l.Pass(100);
      for (const auto& done : near_cq.PollAll())
        EXPECT_EQ(done.status, rnic::WcStatus::kSuccess) << rnic::WcStatusName(done.status);
    }
    EXPECT_EQ(near_cq.consumer, completed);
    EXPECT_FALSE(a_evictions.Has(near) || b_evictions.Has(far));
  }

  const bool at_a;
  Linked l;
  Evictions a_evictions{l.a_engine}, b_evictions{l.b_engine};
  Client near{l.a_engine, "a"}, far{l.b_engine, "b"};
  TestCq near_cq, far_cq;
  TestQp near_qp, far_qp;
  uint32_t completed = 0;
};

void RequestsOverALink(bool of_a) {
  for (const size_t count : {size_t{1}, kForGood}) {
    ForEachFailingAllocation({.count = count}, [&](Shortage& shortage) {
      CrampedLink world(of_a);
      Linked& l = world.l;
      std::byte* const counter = l.b->Allocate(8);
      l.b_qp.Receive(l.b->At(l.dst, 4096));
      l.a_qp.Send(l.a->At(l.src, 64), CqeMode::kAlways);
      l.a_qp.Write(l.Dst(), l.b->rkey, l.a->At(l.src, 100'000), CqeMode::kAlways);
      l.a_qp.Read(l.Dst(), l.b->rkey, l.a->At(l.back, 100'000), CqeMode::kAlways);
      l.a_qp.Add(reinterpret_cast<uint64_t>(counter), l.b->rkey, 1, l.a->At(l.back, 8),
                 CqeMode::kAlways);
      l.a_qp.Ring();
      world.Run(shortage, 40);
      // What was lost with a packet is asked for again, and runs once.
      std::vector<rnic::Completion> done;
      for (int i = 0; i < 100 && done.size() < 4; ++i) {
        l.Pass(100);
        for (const auto& each : l.a_cq.PollAll()) done.push_back(each);
      }
      EXPECT_TRUE(done.size() == 4 || world.a_evictions.Has(*l.a)) << done.size();
      const bool whole = world.evicted() == 0;
      if (whole) {
        ExpectAllGood(done, 4);
        EXPECT_EQ(l.Word(counter), 1u);
        EXPECT_EQ(l.Word(l.back), 0u);
      }
      world.ExpectBystandersGoOn();
      l.a->Close();
      l.b->Close();
      world.ExpectBystandersGoOn();
      return whole;
    });
    if (testing::Test::HasFailure()) return;
  }
}
TEST(EngineMemoryExhaustion, ARequestOverALinkCostsTheOneWhoAsks) { RequestsOverALink(true); }
TEST(EngineMemoryExhaustion, ARequestOverALinkCostsTheOneWhoIsAsked) { RequestsOverALink(false); }

TEST(EngineMemoryExhaustion, ARouteThatIsToldIsThere) {
  ForEachFailingAllocation({.harmed = 0}, [](Shortage& shortage) {
    Linked p;
    p.a_port->SetRoute("c", p.ab.id);
    EXPECT_FALSE(shortage.Here([&] { p.a_engine.Run(100); }));
    TestQp of_c = p.b_qp;
    const uint64_t prefix = htobe64(GidPrefix("c"));
    std::memcpy(of_c.gid.data(), &prefix, sizeof prefix);
    p.a->Modify(p.a_qp, QpState::kReset);
    p.a->Modify(p.a_qp, QpState::kInit, 0);
    EXPECT_OK(p.a->TryModify(p.a_qp, QpState::kReadyToReceive, 0, &of_c));
    return true;
  });
}

// What memory runs out for at b is asked for again.
void ServiceOverALink(bool of_a) {
  const auto scenario = [&](Shortage& shortage) {
    CrampedLink world(of_a);
    Linked& l = world.l;
    l.b->Must(PublishAs(*l.b));
    const Command connect = ConnectTo("b", *l.a, l.a_qp.qpn);
    Reply reply;
    Status status = Busy("");
    const auto ask = [&] { status = l.a->Try(connect, &reply); };
    for (int i = 0; i < 40 && status.code() == Code::kBusy; ++i) {
      if (of_a) {
        EXPECT_FALSE(shortage.Here(ask));
      } else {
        ask();
      }
      world.Run(shortage, 2);
      l.now += 100'000'000;
    }
    if (status.ok()) {
      EXPECT_EQ(reply.result.connect.private_length, 100u);
      EXPECT_NE(reply.result.connect.remote_qpn, 0u);
      // A key, a queue pair, the service, and one connection to it.
      EXPECT_THAT(l.b->Destroy(Op::kFreePd, l.b->pdn).message(), testing::HasSubstr(": 4 keys"));
    } else {
      EXPECT_TRUE(world.a_evictions.Has(*l.a) || world.b_evictions.Has(*l.b)) << status.ToString();
    }
    // Memory also runs out for the message that gives up the connection.
    Shortage all(0, kForGood);
    EXPECT_FALSE(all.Here([&] { l.a_engine.CloseContextPart(l.a->id(), ~size_t{0}); }));
    world.ExpectBystandersGoOn();
    return status.ok() && world.evicted() == 0;
  };
  EXPECT_GT(ForEachFailingAllocation({.harmed = of_a ? 1u : 0u}, scenario), 10u);
}
TEST(EngineMemoryExhaustion, AServiceOverALinkCostsTheOneWhoAsks) { ServiceOverALink(true); }
TEST(EngineMemoryExhaustion, AServiceOverALinkCostsTheOneWhoIsAsked) { ServiceOverALink(false); }

}  // namespace
}  // namespace hyperloop::softrnic
