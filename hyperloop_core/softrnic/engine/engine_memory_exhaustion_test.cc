// Memory runs out at each allocation in turn, in each command and in each request. Either that one
// allocation fails, or all that follow fail too. Only the client that asked may be evicted, and
// what it had is given back.
#include <gtest/gtest.h>
#include <malloc.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <new>

#include "softrnic/engine/flusher.h"
#include "softrnic/engine/testing/engine_link_fixture.h"
#include "support/status_matchers.h"

namespace {

// What operator new does. This program has one thread.
struct {
  bool armed = false;
  bool for_good = false;  // what follows the allocation that fails, fails too
  size_t left = 0;        // allocations that succeed
  size_t failed = 0;
  long living = 0;
} memory;

bool Fails() {
  if (!memory.armed) return false;
  if (memory.left != 0) {
    --memory.left;
    return false;
  }
  if (memory.failed != 0 && !memory.for_good) return false;
  ++memory.failed;
  return true;
}

}  // namespace

void* operator new(size_t size) {
  void* const at = Fails() ? nullptr : std::malloc(size);
  if (at == nullptr) throw std::bad_alloc();
  ++memory.living;
  return at;
}
void operator delete(void* at) noexcept {
  if (at == nullptr) return;
  --memory.living;
  // Freed memory is overwritten, so that its use does not pass unnoticed. The asm statement keeps
  // the compiler from dropping that.
  std::memset(at, 0xdd, malloc_usable_size(at));
  asm volatile("" : : "r"(at) : "memory");
  std::free(at);
}
void operator delete(void* at, size_t) noexcept { operator delete(at); }

namespace hyperloop::softrnic {
namespace {

// While it lives, operator new fails where SetFailure says.
class Armed {
 public:
  Armed() { memory.armed = true; }
  ~Armed() { memory.armed = false; }
  Armed(const Armed&) = delete;
  Armed& operator=(const Armed&) = delete;
};
void SetFailure(size_t number, bool for_good) {
  memory.left = number;
  memory.failed = 0;
  memory.for_good = for_good;
}

// The contexts that an engine has evicted.
struct Evictions {
  std::array<ContextId, 16> list{};
  size_t count = 0;

  void Watch(Engine& engine) {
    engine.SetEvict([this](ContextId context, const auto&) { list.at(count++) = context; });
  }
  bool Has(const Client& client) const {
    return std::find(list.begin(), list.begin() + count, client.id()) != list.begin() + count;
  }
};

TestQp Loopback(Client& client, const TestCq& cq) {
  TestQp qp = client.Qp(cq, cq, {.has_rq = false});
  client.Connect(qp, qp);
  return qp;
}

// A client that runs out of memory, and one whose requests go on.
struct World {
  explicit World(EngineOptions options = {}) : engine(options) {
    evictions.Watch(engine);
    cq = one.Cq();
    qp = Loopback(one, cq);
    other_cq = other.Cq();
    other_qp = Loopback(other, other_cq);
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
  Evictions evictions;
  Client one{engine, "one"}, other{engine, "other"};
  TestCq cq, other_cq;
  TestQp qp, other_qp;
  std::byte *from = nullptr, *to = nullptr;
};

// What happens while memory runs out. It returns a command's status.
using Act = std::function<Status(World&)>;

// Runs `act` again and again, each time in a new world: first with its first allocation failing,
// then with its second, and so on until none fails. `prepare` runs before memory runs out.
// `thrown`: `act` may throw std::bad_alloc, after which the test closes the context as a caller
// does.
void FailEachAllocation(const EngineOptions& options, const std::function<void(World&)>& prepare,
                        const Act& act, bool thrown = false) {
  for (const bool for_good : {false, true}) {
    bool ended = false;
    for (size_t number = 0; !ended; ++number) {
      SCOPED_TRACE("allocation " + std::to_string(number) + (for_good ? " and all behind it" : ""));
      ASSERT_LT(number, 1000u);
      const long living = memory.living;
      {
        World world(options);
        prepare(world);
        Status status;
        bool threw = false;
        SetFailure(number, for_good);
        try {
          const Armed armed;
          status = act(world);
        } catch (const std::bad_alloc&) {
          threw = true;
        }
        ended = memory.failed == 0;
        if (ended) {
          EXPECT_OK(status);
          EXPECT_FALSE(threw);
          EXPECT_EQ(world.evictions.count, 0u);
        } else if (threw) {
          EXPECT_TRUE(thrown || (for_good && world.evictions.Has(world.one)));
        } else {
          EXPECT_TRUE(world.evictions.Has(world.one)) << status.ToString();
          EXPECT_THAT(status, testing::AnyOf(IsOk(), StatusIs(Code::kNoSpace)));
        }
        world.ExpectOtherGoesOn();
        world.one.Close();
        world.ExpectOtherGoesOn();
        // Another client can have its host, and all names that it had.
        Client next(world.engine, "one");
        TestCq cq = next.Cq();
        TestQp qp = Loopback(next, cq);
        qp.Nop(CqeMode::kAlways);
        qp.Ring();
        RunAll(world.engine);
        EXPECT_TRUE(cq.Poll().has_value());
        if (testing::Test::HasFailure()) return;
      }
      EXPECT_EQ(memory.living, living) << "leaked, or freed twice";
      if (testing::Test::HasFailure()) return;
    }
  }
}

void Nothing(World&) {}

Status TryCommand(World& world, const Command& command) {
  Reply reply;
  return world.engine.Execute(world.one.id(), command, &reply, &world.one.text);
}

template <size_t N>
void SetName(char (&to)[N], const char* name) {
  std::strncpy(to, name, N - 1);
}

// A command that makes something: its name, and what sets it up.
struct Making {
  const char* name;
  std::function<void(World&, Command&)> fill;
};
const std::vector<Making>& Makings() {
  static const std::vector<Making> kMakings = {
      {"AllocPd", [](World&, Command& command) { command.op = Op::kAllocPd; }},
      {"CreateMkey",
       [](World& world, Command& command) {
         // The tables of keys are full.
         for (int i = 0; i < 29; ++i) world.one.Key(world.from, 8, 0);
         command.op = Op::kCreateMkey;
         command.args.mkey = {world.one.pdn,
                              world.one.umem,
                              reinterpret_cast<uint64_t>(world.from),
                              64,
                              rnic::kLocalWrite,
                              0};
       }},
      {"CreateCq",
       [](World& world, Command& command) {
         const auto at = reinterpret_cast<uint64_t>(world.one.Allocate(128));
         command.op = Op::kCreateCq;
         command.args.cq = {world.one.umem, 0, at, at + 64, 0, 0};
       }},
      {"CreateQp",
       [](World& world, Command& command) {
         const auto at = reinterpret_cast<uint64_t>(world.one.Allocate(256));
         command.op = Op::kCreateQp;
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
       }},
      {"Publish",
       [](World& world, Command& command) {
         command.op = Op::kPublish;
         SetName(command.args.publish.service, "a-service-with-a-long-name");
         command.args.publish.pdn = world.one.pdn;
         command.args.publish.private_length = 100;
       }},
  };
  return kMakings;
}

TEST(EngineMemoryExhaustion, ACommandThatMakesSomethingCostsItsClientAlone) {
  EngineOptions prefetches;
  prefetches.prefetch_depth = 8;
  for (const EngineOptions& options : {EngineOptions{}, prefetches}) {
    for (const Making& making : Makings()) {
      SCOPED_TRACE(making.name);
      Command command;
      const auto prepare = [&](World& world) {
        command = Command();
        making.fill(world, command);
      };
      FailEachAllocation(options, prepare,
                         [&](World& world) { return TryCommand(world, command); });
      if (HasFailure()) return;
    }
  }
}

// The other client asks for a service that was being published when memory ran out.
TEST(EngineMemoryExhaustion, AServiceIsPublishedWhollyOrNotAtAll) {
  for (const bool again : {false, true}) {
    for (size_t number = 0; number < 6; ++number) {
      World world;
      Command publish;
      publish.op = Op::kPublish;
      SetName(publish.args.publish.service, "a-service-with-a-long-name");
      publish.args.publish.pdn = world.one.pdn;
      publish.args.publish.private_length = 100;
      if (again) {
        ASSERT_OK(TryCommand(world, publish));
      }
      SetFailure(number, /*for_good=*/false);
      {
        const Armed armed;
        static_cast<void>(TryCommand(world, publish));
      }
      Command connect;
      connect.op = Op::kConnectService;
      SetName(connect.args.connect.host, "one");
      SetName(connect.args.connect.service, "a-service-with-a-long-name");
      connect.args.connect.qpn = world.other.Qp(world.other_cq, world.other_cq).qpn;
      world.other.Modify({.qpn = connect.args.connect.qpn}, QpState::kReset);
      Reply reply;
      const Status status = world.other.Try(connect, &reply);
      const bool whole = status.ok() && reply.result.connect.private_length == 100;
      EXPECT_TRUE(whole || (!again && status.code() == Code::kNotFound)) << status.ToString();
    }
  }
}

TEST(EngineMemoryExhaustion, AServiceThatIsAskedForCostsTheAskerAlone) {
  const auto command = std::make_shared<Command>();
  FailEachAllocation(
      {},
      [&](World& world) {
        Command publish;
        publish.op = Op::kPublish;
        SetName(publish.args.publish.service, "a-service-with-a-long-name");
        publish.args.publish.pdn = world.other.pdn;
        EXPECT_OK(world.other.Try(publish, std::make_unique<Reply>().get()));
        command->op = Op::kConnectService;
        SetName(command->args.connect.host, "other");
        SetName(command->args.connect.service, "a-service-with-a-long-name");
        command->args.connect.qpn = world.one.Qp(world.cq, world.cq).qpn;
        world.one.Modify({.qpn = command->args.connect.qpn}, QpState::kReset);
      },
      [&](World& world) { return TryCommand(world, *command); });
}

// These two commands come with descriptors and not through Execute. Their callers get
// std::bad_alloc.
TEST(EngineMemoryExhaustion, MemoryAndChannelsCostTheirClientAlone) {
  FailEachAllocation(
      {}, Nothing,
      [](World& world) {
        return world.engine
            .RegisterUmem(world.one.id(), {reinterpret_cast<uint64_t>(world.from), 0, 4096},
                          {world.from, 4096, nullptr})
            .status();
      },
      /*thrown=*/true);
  const auto args = std::make_shared<CreateCqArgs>();
  FailEachAllocation(
      {},
      [&](World& world) {
        const auto at = reinterpret_cast<uint64_t>(world.one.Allocate(128));
        *args = {world.one.umem, 0, at, at + 64, 0, 1};
      },
      [&](World& world) {
        return world.engine.CreateEventCq(world.one.id(), *args, [] {}).status();
      },
      /*thrown=*/true);
}

TEST(EngineMemoryExhaustion, AClientThatIsNotLetInLeavesNothing) {
  for (const std::string host : {"one", "a-host-that-nobody-has-attached-to"}) {
    const auto page = std::make_shared<UarPage>();
    const auto reply = std::make_shared<OpenReply>();
    FailEachAllocation(
        {}, Nothing,
        [&](World& world) {
          return world.engine.OpenContext(host, page.get(), reply.get()).status();
        },
        /*thrown=*/true);
    FailEachAllocation(
        {}, Nothing,
        [&](World& world) {
          return world.engine.OpenContext(host, page.get(), reply.get(), ClientNumber{7}).status();
        },
        /*thrown=*/true);
  }
}

// Takes note of what is to be flushed.
struct Disk final : Flusher {
  std::vector<std::shared_ptr<FlushJob>> jobs;
  bool Flush(uint64_t, FileRange, std::shared_ptr<FlushJob> job) override {
    try {
      jobs.push_back(std::move(job));
    } catch (const std::bad_alloc&) {
      return false;
    }
    return true;
  }
  void Gone(uint64_t) override {}
  void Finish() {
    for (const auto& job : std::exchange(jobs, {})) job->left.fetch_sub(1);
  }
};

TEST(EngineMemoryExhaustion, HostsOfClientsThatAreNotLetInTakeNoPlace) {
  for (size_t number = 1; number < 6; ++number) {
    SCOPED_TRACE(number);
    World world;
    const auto page = std::make_unique<UarPage>();
    OpenReply reply;
    bool failed = true;
    for (int i = 0; i < 300 && failed; ++i) {
      const std::string host = "a-host-that-nobody-has-attached-to-" + std::to_string(i);
      SetFailure(number, /*for_good=*/false);
      try {
        const Armed armed;
        EXPECT_OK(world.engine.OpenContext(host, page.get(), &reply));
      } catch (const std::bad_alloc&) {
      }
      failed = memory.failed != 0;
    }
    Client next(world.engine, "next");
  }
}

// The queue pair that serves the READ is neither stuck nor does it promise what was not flushed.
TEST(EngineMemoryExhaustion, AFlushThatCannotBeAskedForIsAFailedRead) {
  bool ended = false;
  for (size_t number = 0; !ended; ++number) {
    SCOPED_TRACE(number);
    Disk disk;
    EngineOptions options;
    options.flusher = &disk;
    Engine engine(options);
    Client asker(engine, "asker"),
        owner(engine, "owner", rnic::Media::kFile, nullptr, 0, -1, /*waits_for_disk=*/true);
    TestCq cq = asker.Cq(), owner_cq = owner.Cq();
    TestQp qp = asker.Qp(cq, cq), owner_qp = owner.Qp(owner_cq, owner_cq);
    std::byte* const to = owner.Allocate(64);
    for (const bool armed : {true, false}) {
      asker.Modify(qp, QpState::kReset);
      owner.Modify(owner_qp, QpState::kReset);
      qp.next = 0;
      constexpr uint32_t kAll = rnic::kRemoteWrite | rnic::kRemoteRead;
      asker.Modify(qp, QpState::kInit, kAll);
      owner.Modify(owner_qp, QpState::kInit, kAll);
      asker.Connect(qp, owner_qp);
      owner.Connect(owner_qp, qp);
      qp.Write(reinterpret_cast<uint64_t>(to), owner.rkey, asker.At(asker.memory, 8));
      qp.Read(reinterpret_cast<uint64_t>(to), owner.rkey, asker.At(asker.memory, 8),
              CqeMode::kAlways);
      qp.Ring();
      SetFailure(number, /*for_good=*/false);
      if (armed) {
        const Armed now;
        engine.Run(100);
      }
      const bool failed = memory.failed != 0;
      if (armed) ended = !failed;
      RunAll(engine);
      disk.Finish();
      RunAll(engine);
      const auto done = cq.Poll();
      ASSERT_TRUE(done.has_value());
      EXPECT_EQ(done->status, failed ? rnic::WcStatus::kRemoteOperation : rnic::WcStatus::kSuccess);
    }
  }
}

TEST(EngineMemoryExhaustion, ARequestCostsItsClientAlone) {
  FailEachAllocation(
      {},
      [](World& world) {  // too long for one turn
        world.qp.Write(reinterpret_cast<uint64_t>(world.to), world.one.rkey,
                       world.one.At(world.from, 64 << 10));
        world.qp.Ring();
      },
      [](World& world) {
        for (int i = 0; i < 100; ++i) world.engine.Run(64);
        return Status();
      });
}

// --- links

// Host a sends requests to host b in another engine. A bystander on each side sends requests over
// the same links.
struct LinkedWorld {
  LinkedWorld() {
    a_evictions.Watch(linked.a_engine), b_evictions.Watch(linked.b_engine);
    near_cq = near.Cq(), far_cq = far.Cq();
    near_qp = near.Qp(near_cq, near_cq), far_qp = far.Qp(far_cq, far_cq);
    near.Connect(near_qp, far_qp);
    far.Connect(far_qp, near_qp);
  }
  // As Linked::Run, with memory running out in the engine of `a`, or in b's.
  void RunArmed(bool of_a, int rounds = 40) {
    for (int i = 0; i < rounds; ++i) {
      for (Engine* const engine : {&linked.a_engine, &linked.b_engine}) {
        if ((engine == &linked.a_engine) == of_a) {
          const Armed armed;
          engine->Run(100);
        } else {
          engine->Run(100);
        }
      }
      linked.network.DeliverAll();
    }
  }
  void ExpectBystandersGoOn() {
    std::byte* const word = far.Allocate(64);
    near_qp.Write(reinterpret_cast<uint64_t>(word), far.rkey, near.At(near.memory, 8),
                  CqeMode::kAlways);
    near_qp.Read(reinterpret_cast<uint64_t>(word), far.rkey, near.At(near.memory, 8),
                 CqeMode::kAlways);
    near_qp.Ring();
    for (int i = 0; i < 20 && near_cq.consumer < completed + 2; ++i) {
      linked.Pass(100);
      for (const auto& done : near_cq.PollAll())
        EXPECT_EQ(done.status, rnic::WcStatus::kSuccess) << rnic::WcStatusName(done.status);
    }
    completed += 2;
    EXPECT_EQ(near_cq.consumer, completed);
    EXPECT_FALSE(a_evictions.Has(near) || b_evictions.Has(far));
  }

  Linked linked;
  Evictions a_evictions, b_evictions;
  Client near{linked.a_engine, "a"}, far{linked.b_engine, "b"};
  TestCq near_cq, far_cq;
  TestQp near_qp, far_qp;
  uint32_t completed = 0;
};

void FailEachAllocationOfLinks(bool of_a) {
  for (const bool for_good : {false, true}) {
    bool ended = false;
    for (size_t number = 0; !ended; ++number) {
      SCOPED_TRACE("allocation " + std::to_string(number) + (for_good ? " and all behind it" : ""));
      ASSERT_LT(number, 2000u);
      const long living = memory.living;
      {
        LinkedWorld world;
        Linked& l = world.linked;
        l.b_qp.Receive(l.b->At(l.dst, 4096));
        l.a_qp.Send(l.a->At(l.src, 64), CqeMode::kAlways);
        l.a_qp.Write(l.Dst(), l.b->rkey, l.a->At(l.src, 100'000), CqeMode::kAlways);
        l.a_qp.Read(l.Dst(), l.b->rkey, l.a->At(l.back, 100'000), CqeMode::kAlways);
        std::byte* const counter = l.b->Allocate(8);
        l.a_qp.Add(reinterpret_cast<uint64_t>(counter), l.b->rkey, 1, l.a->At(l.back, 8),
                   CqeMode::kAlways);
        l.a_qp.Ring();
        SetFailure(number, for_good);
        world.RunArmed(of_a);
        ended = memory.failed == 0;
        // What was lost with a packet is asked for again, and runs once.
        std::vector<rnic::Completion> done;
        for (int i = 0; i < 100 && done.size() < 4; ++i) {
          l.Pass(100);
          for (const auto& each : l.a_cq.PollAll()) done.push_back(each);
        }
        EXPECT_TRUE(done.size() == 4 || world.a_evictions.Has(*l.a)) << done.size();
        const size_t evicted = world.a_evictions.count + world.b_evictions.count;
        if (evicted == 0) {
          ExpectAllGood(done, 4);
          EXPECT_EQ(l.Word(counter), 1u);
          EXPECT_EQ(l.Word(l.back), 0u);
        }
        EXPECT_TRUE(!ended || evicted == 0);
        world.ExpectBystandersGoOn();
        l.a->Close();
        l.b->Close();
        world.ExpectBystandersGoOn();
        if (testing::Test::HasFailure()) return;
      }
      EXPECT_EQ(memory.living, living) << "leaked, or freed twice";
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(EngineMemoryExhaustion, ARequestOverALinkCostsTheOneWhoAsks) {
  FailEachAllocationOfLinks(/*of_a=*/true);
}
TEST(EngineMemoryExhaustion, ARequestOverALinkCostsTheOneWhoIsAsked) {
  FailEachAllocationOfLinks(/*of_a=*/false);
}

void FailEachAllocationOfAServiceOverALink(bool of_a) {
  bool ended = false;
  for (size_t number = 0; !ended; ++number) {
    SCOPED_TRACE("allocation " + std::to_string(number));
    ASSERT_LT(number, 1000u);
    const long living = memory.living;
    {
      LinkedWorld world;
      Linked& l = world.linked;
      Command publish;
      publish.op = Op::kPublish;
      SetName(publish.args.publish.service, "a-service-with-a-long-name");
      publish.args.publish.pdn = l.b->pdn;
      publish.args.publish.private_length = 100;
      l.b->Must(publish);
      Command connect;
      connect.op = Op::kConnectService;
      SetName(connect.args.connect.host, "b");
      SetName(connect.args.connect.service, "a-service-with-a-long-name");
      connect.args.connect.qpn = l.a_qp.qpn;
      l.a->Modify(l.a_qp, QpState::kReset);
      SetFailure(number, /*for_good=*/false);
      Reply reply;
      Status status = Busy("");
      for (int i = 0; i < 40 && status.code() == Code::kBusy; ++i) {
        if (of_a) {
          const Armed armed;
          status = l.a_engine.Execute(l.a->id(), connect, &reply, &l.a->text);
        } else {
          status = l.a_engine.Execute(l.a->id(), connect, &reply, &l.a->text);
        }
        world.RunArmed(of_a, /*rounds=*/2);
        l.now += 100'000'000;
      }
      ended = memory.failed == 0;
      if (status.ok()) {
        EXPECT_EQ(reply.result.connect.private_length, 100u);
        EXPECT_NE(reply.result.connect.remote_qpn, 0u);
        // A key, a queue pair, the service, and one connection to it.
        EXPECT_TRUE(l.b->Destroy(Op::kFreePd, l.b->pdn).message().find(": 4 keys") !=
                    std::string::npos)
            << l.b->Destroy(Op::kFreePd, l.b->pdn).message();
      } else {
        EXPECT_TRUE(world.a_evictions.Has(*l.a) || world.b_evictions.Has(*l.b))
            << status.ToString();
      }
      // Memory also runs out for the message that gives up the connection.
      SetFailure(0, /*for_good=*/true);
      {
        const Armed armed;
        l.a_engine.CloseContextPart(l.a->id(), ~size_t{0});
      }
      world.ExpectBystandersGoOn();
      if (testing::Test::HasFailure()) return;
    }
    EXPECT_EQ(memory.living, living) << "leaked, or freed twice";
    if (testing::Test::HasFailure()) return;
  }
}

TEST(EngineMemoryExhaustion, AServiceOverALinkCostsTheOneWhoAsks) {
  FailEachAllocationOfAServiceOverALink(/*of_a=*/true);
}
TEST(EngineMemoryExhaustion, AServiceOverALinkCostsTheOneWhoIsAsked) {
  FailEachAllocationOfAServiceOverALink(/*of_a=*/false);
}

}  // namespace
}  // namespace hyperloop::softrnic
