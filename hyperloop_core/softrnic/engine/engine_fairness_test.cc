// Tests what one client may take from the others (turns, objects, tables), and what happens to it
// when memory runs out.
#include <gmock/gmock.h>
#include <sys/mman.h>

#include "softrnic/engine/testing/engine_test_util.h"
#include "support/status_matchers.h"

namespace hyperloop::softrnic {
namespace {

using testing::HasSubstr;

// A queue pair connected to itself.
TestQp Loopback(Client& client, const TestCq& cq, QpSpec spec = {}) {
  spec.has_rq = false;
  TestQp qp = client.Qp(cq, cq, spec);
  client.Connect(qp, qp);
  return qp;
}

// Steps of the engine, as the daemon drives it, from the doorbell of one NOP to its completion.
size_t StepsToNop(Engine& engine, TestQp& qp, TestCq& cq, size_t budget = 64) {
  qp.Nop(CqeMode::kAlways);
  qp.Ring();
  size_t steps = 0;
  while (!cq.Poll().has_value()) {
    const size_t done = engine.Run(budget);
    if (done == 0) return ~size_t{0};
    steps += done;
  }
  return steps;
}

TEST(EngineFairness, AnotherClientsManyQueuePairsCostOneTurn) {
  Engine engine{EngineOptions{}};
  Client busy(engine, "busy"), quiet(engine, "quiet");
  TestCq busy_cq = busy.Cq(), cq = quiet.Cq();
  TestQp qp = Loopback(quiet, cq);
  for (int i = 0; i < 200; ++i) {
    TestQp one = Loopback(busy, busy_cq);
    for (int n = 0; n < 64; ++n) one.Nop();
    one.Ring();
  }
  engine.Run(64);
  EXPECT_LE(StepsToNop(engine, qp, cq), 128u);
  EXPECT_LE(StepsToNop(engine, qp, cq), 128u) << "also when its last turn is not long ago";
  RunAll(engine);
  EXPECT_EQ(busy.Counter("nops"), 200u * 64);
}

TEST(EngineFairness, AnotherClientsLongTransfersCostOneTurn) {
  Engine engine{EngineOptions{}};
  Client busy(engine, "busy"), quiet(engine, "quiet");
  TestCq busy_cq = busy.Cq(), cq = quiet.Cq();
  TestQp qp = Loopback(quiet, cq);
  std::byte* const from = busy.Allocate(256 << 10);
  std::byte* const to = busy.Allocate(256 << 10);
  for (int i = 0; i < 50; ++i) {
    TestQp one = Loopback(busy, busy_cq, {.log_sq = 3});
    one.Write(reinterpret_cast<uint64_t>(to), busy.rkey, busy.At(from, 256 << 10));
    one.Ring();
  }
  engine.Run(1);
  const uint64_t before = busy.Counter("bytes_sent");
  ASSERT_NE(StepsToNop(engine, qp, cq, 2), ~size_t{0});
  EXPECT_LE(busy.Counter("bytes_sent") - before, 64u << 10);
}

// Each CQE of `cq` looks at all of these WAITs.
void WaitOnItManyTimes(Engine& engine, Client& client, const TestCq& cq) {
  for (int i = 0; i < 200; ++i) {
    TestQp waits = Loopback(client, cq, {.log_sq = 1, .flags = kQpMaster});
    waits.Wait(cq, 1000);
    waits.Ring();
  }
  RunAll(engine);
}

TEST(EngineFairness, AnotherClientsManyWaitsCostOneTurn) {
  Engine engine{EngineOptions{}};
  Client busy(engine, "busy"), quiet(engine, "quiet");
  TestCq busy_cq = busy.Cq(), cq = quiet.Cq();
  TestQp qp = Loopback(quiet, cq);
  WaitOnItManyTimes(engine, busy, busy_cq);
  TestQp completes = Loopback(busy, busy_cq);
  for (int n = 0; n < 60; ++n) completes.Nop(CqeMode::kAlways);
  completes.Ring();
  EXPECT_LE(StepsToNop(engine, qp, cq, 16), 64u);
  EXPECT_LE(busy.Counter("nops"), 4u);
}

// An event costs the engine a system call, over whichever of the client's connections.
TEST(EngineFairness, AnotherClientsManyEventsCostOneTurn) {
  Engine engine{EngineOptions{}};
  Client quiet(engine, "quiet");
  TestCq cq = quiet.Cq();
  TestQp qp = Loopback(quiet, cq);
  std::vector<std::unique_ptr<Client>> busy;
  constexpr uint32_t kChannels = 200;
  uint32_t events = 0;
  for (uint32_t i = 0; i < kChannels; ++i) {
    if (i % 10 == 0)
      busy.push_back(std::make_unique<Client>(engine, "busy", rnic::Media::kRam, nullptr, 7));
    Client& client = *busy.back();
    CreateCqArgs args{};
    args.umem = client.umem;
    args.events = 1;
    args.ring_addr = reinterpret_cast<uint64_t>(client.Allocate(64));
    args.dbrec_addr = reinterpret_cast<uint64_t>(client.Allocate(64));
    const auto channel = engine.CreateEventCq(client.id(), args, [&events] { ++events; });
    ASSERT_OK(channel);
    // Behind the producer, so the event is due at once.
    __atomic_store_n(&client.uar()->registers[channel->arm_index], 1ull << 63 | ArmValue(1, false),
                     __ATOMIC_RELEASE);
    __atomic_fetch_or(&client.uar()->header.summary[channel->arm_index / 64],
                      1ull << (channel->arm_index % 64), __ATOMIC_SEQ_CST);
  }
  qp.Nop(CqeMode::kAlways);
  qp.Ring();
  engine.Run(64);
  EXPECT_TRUE(cq.Poll().has_value());
  EXPECT_LE(events, 12u);
  while (engine.DoorbellPending()) engine.Run(64);
  EXPECT_EQ(events, kChannels);
}

// Doorbells that start nothing are rung again while they are collected.
TEST(EngineFairness, ARunEndsThoughAClientRingsForNothingAgainAndAgain) {
  Engine engine{EngineOptions{}};
  Client client(engine, "a");
  TestCq cq = client.Cq();
  const TestQp idle = client.Qp(cq, cq, {.has_rq = false});
  constexpr uint32_t kEndless = 100'000;
  uint32_t collections = 0;
  UarPage* const page = client.uar();
  CreateCqArgs args{};
  args.umem = client.umem;
  args.events = 1;
  args.ring_addr = reinterpret_cast<uint64_t>(client.Allocate(64));
  args.dbrec_addr = reinterpret_cast<uint64_t>(client.Allocate(64));
  const auto ring_all = [&] {
    __atomic_fetch_or(&page->header.summary[0], ~uint64_t{0}, __ATOMIC_SEQ_CST);
  };
  const auto channel = engine.CreateEventCq(client.id(), args, [&] {
    if (++collections < kEndless) ring_all();
  });
  ASSERT_OK(channel);
  // Behind the producer, so that each collection makes an event.
  __atomic_store_n(&page->registers[channel->arm_index], 1ull << 63 | ArmValue(1, false),
                   __ATOMIC_RELEASE);
  idle.Ring();
  ring_all();
  EXPECT_GT(engine.Run(64), 0u);
  EXPECT_LE(collections, 64u);
  EXPECT_TRUE(engine.DoorbellPending()) << "the engine comes back to them";
}

// A CQ of `client` with room for few CQEs whose first one makes an event.
TestCq ArmedCq(Engine& engine, Client& client, std::function<void()> event) {
  TestCq cq;
  CreateCqArgs args{};
  args.umem = client.umem;
  args.events = 1;
  cq.depth = 1;
  cq.ring = reinterpret_cast<mlx5_cqe64*>(client.Allocate(64));
  cq.dbrec = client.Allocate(64);
  args.ring_addr = reinterpret_cast<uint64_t>(cq.ring);
  args.dbrec_addr = reinterpret_cast<uint64_t>(cq.dbrec);
  const auto reply = engine.CreateEventCq(client.id(), args, std::move(event));
  EXPECT_OK(reply);
  if (!reply.ok()) return cq;
  cq.cqn = reply->cqn;
  __atomic_store_n(&client.uar()->registers[reply->arm_index], 1ull << 63 | ArmValue(0, false),
                   __ATOMIC_RELEASE);
  __atomic_fetch_or(&client.uar()->header.summary[reply->arm_index / 64],
                    1ull << (reply->arm_index % 64), __ATOMIC_SEQ_CST);
  return cq;
}

TEST(EngineFairness, AnEventOfACompletionCountsAsSeveralSteps) {
  Engine engine{EngineOptions{}};
  Client client(engine, "a");
  uint32_t events = 0;
  for (int i = 0; i < 32; ++i) {
    TestQp qp = Loopback(client, ArmedCq(engine, client, [&events] { ++events; }), {.log_sq = 1});
    qp.Nop(CqeMode::kAlways);
    qp.Ring();
  }
  engine.Run(16);
  EXPECT_LE(events, 2u);
  RunAll(engine);
  EXPECT_EQ(events, 32u);
}

// Another client's doorbell is seen in the middle of a long run also if the run flushes.
TEST(EngineFairness, FlushesCountAsWork) {
  Engine engine{EngineOptions{}};
  Client busy(engine, "busy"), quiet(engine, "quiet");
  TestCq busy_cq = busy.Cq();
  uint64_t flushed = 0;
  TestQp qp = Loopback(quiet, ArmedCq(engine, quiet, [&] { flushed = busy.Counter("error_cqes"); }),
                       {.log_sq = 1});
  TestQp broken =
      Loopback(busy, ArmedCq(engine, busy, [&qp] { qp.Nop(CqeMode::kAlways), qp.Ring(); }));
  TestQp others = Loopback(busy, busy_cq);
  broken.Nop(CqeMode::kAlways);
  broken.Ring();
  others.Write(0, 0xdead, busy.At(busy.memory, 8));
  for (int n = 0; n < 60; ++n) others.Nop();
  others.Ring();
  engine.Run(1000);
  EXPECT_GT(flushed, 0u);
  EXPECT_LE(flushed, 20u);
}

// A queue pair in ERROR makes a completion for each of its requests.
TEST(EngineFairness, AnotherClientsFlushesOntoManyWaitsCostOneTurn) {
  Engine engine{EngineOptions{}};
  Client busy(engine, "busy"), quiet(engine, "quiet");
  TestCq busy_cq = busy.Cq(10), cq = quiet.Cq();
  TestQp qp = Loopback(quiet, cq);
  WaitOnItManyTimes(engine, busy, busy_cq);
  TestQp broken = Loopback(busy, busy_cq);
  broken.Write(0, 0xdead, busy.At(busy.memory, 8));
  for (int n = 0; n < 60; ++n) broken.Nop(CqeMode::kAlways);
  broken.Ring();
  engine.Run(1);
  const uint64_t before = busy.Counter("error_cqes");
  EXPECT_NE(StepsToNop(engine, qp, cq), ~size_t{0});
  EXPECT_LE(busy.Counter("error_cqes") - before, 4u);
}

TEST(EngineFairness, LongTransfersOfTwoClientsMoveSideBySide) {
  Engine engine{EngineOptions{}};
  Client a(engine, "a"), b(engine, "b");
  for (Client* each : {&a, &b}) {
    std::byte* const from = each->Allocate(256 << 10);
    std::byte* const to = each->Allocate(256 << 10);
    TestQp qp = Loopback(*each, each->Cq());
    qp.Write(reinterpret_cast<uint64_t>(to), each->rkey, each->At(from, 256 << 10));
    qp.Ring();
  }
  engine.Run(16);
  EXPECT_GT(a.Counter("bytes_sent"), 0u);
  EXPECT_EQ(a.Counter("bytes_sent"), b.Counter("bytes_sent"));
}

TEST(EngineFairness, ContextsOfOneClientShareItsTurnsAndItsLimits) {
  EngineOptions options;
  options.limits.queue_pairs = 3;
  Engine engine{options};
  Client a(engine, "a", rnic::Media::kRam, nullptr, 7),
      b(engine, "b", rnic::Media::kRam, nullptr, 7);
  Client other(engine, "other", rnic::Media::kRam, nullptr, 8);
  TestCq a_cq = a.Cq(), b_cq = b.Cq(), other_cq = other.Cq();
  std::vector<TestQp> busy = {Loopback(a, a_cq), Loopback(a, a_cq), Loopback(b, b_cq)};
  TestQp quiet = Loopback(other, other_cq);
  for (TestQp& qp : busy) {
    for (int n = 0; n < 60; ++n) qp.Nop();
    qp.Ring();
  }
  engine.Run(16);
  EXPECT_LE(StepsToNop(engine, quiet, other_cq), 64u) << "one turn of the two, and its own";
  // The two contexts of one client together get as many turns as the one of the other client.
  RunAll(engine);
  for (TestQp* qp : {&busy[0], &busy[2], &quiet}) {
    for (int n = 0; n < 60; ++n) qp->Nop();
    qp->Ring();
  }
  const uint64_t before = other.Counter("nops");
  engine.Run(64);
  EXPECT_EQ(other.Counter("nops") - before, 32u);
  Command command = b.Make(Op::kCreateQp);
  const auto at = reinterpret_cast<uint64_t>(b.Allocate(256));
  command.args.qp = {b.pdn, b_cq.cqn, b_cq.cqn, b.umem, at, at, at + 128, 0, 0, 4, 0, 0, 1};
  Reply reply;
  const Status refused = b.Try(command, &reply);
  EXPECT_THAT(refused, StatusIs(Code::kNoSpace));
  EXPECT_THAT(refused.message(), HasSubstr("3 queue pairs"));
  EXPECT_THAT(refused.message(), HasSubstr("--client-queue-pairs"));
  a.Close();
  EXPECT_OK(b.Try(command, &reply)) << "what its other context held is free again";
}

TEST(EngineFairness, EveryLimitIsRefusedByName) {
  EngineOptions options;
  options.limits.completion_queues = 2;
  options.limits.memory_keys = 2;
  options.limits.mappings = 2;
  Engine engine{options};
  Client a(engine, "a");
  a.Cq(), a.Cq();
  Reply reply;
  Command command = a.Make(Op::kCreateCq);
  const auto at = reinterpret_cast<uint64_t>(a.Allocate(128));
  command.args.cq = {a.umem, 0, at, at + 64, 0, 0};
  EXPECT_THAT(a.Try(command, &reply).message(), HasSubstr("--client-completion-queues"));
  a.Key(a.memory, 64, 0);
  command = a.Make(Op::kCreateMkey);
  command.args.mkey = {a.pdn, a.umem, reinterpret_cast<uint64_t>(a.memory), 64, 0, 0};
  EXPECT_THAT(a.Try(command, &reply).message(), HasSubstr("--client-memory-keys"));
  const auto piece = [&] {
    return engine.RegisterUmem(a.id(), {reinterpret_cast<uint64_t>(a.memory), 0, 4096},
                               {a.memory, 4096, nullptr});
  };
  ASSERT_OK(piece());
  EXPECT_THAT(piece().status().message(), HasSubstr("--client-mappings"));
}

// What one process can map is bounded. A client could use all of it for sparse memory.
TEST(EngineFairness, MappedBytesAreBoundedForEachClientAndInAll) {
  EngineOptions options;
  constexpr uint64_t kHalf = Client::kArena / 2;
  options.limits.mapped_bytes = 3 * kHalf;  // each client's arena, and as much as half of it
  options.limits.all_mapped_bytes = 5 * kHalf;
  Engine engine{options};
  Client a(engine, "a", rnic::Media::kRam, nullptr, 7);
  Client b(engine, "b", rnic::Media::kRam, nullptr, 8);
  const auto piece = [&](Client& client, uint64_t size) {
    return engine.RegisterUmem(client.id(), {reinterpret_cast<uint64_t>(client.memory), 0, size},
                               {client.memory, size, nullptr});
  };
  EXPECT_THAT(piece(a, kHalf + 64).status().message(), HasSubstr("--client-mapped-gib"));
  const auto most = piece(a, kHalf);
  ASSERT_OK(most);
  EXPECT_THAT(piece(a, 64).status(), StatusIs(Code::kNoSpace));
  EXPECT_THAT(piece(b, 64).status().message(), HasSubstr("the device has"));
  Command command = a.Make(Op::kFreeUmem);
  command.args.id.id = most->id;
  Reply reply;
  ASSERT_OK(a.Try(command, &reply));
  EXPECT_OK(piece(b, kHalf)) << "what was freed counts no longer";
}

// The kernel bounds how many mappings the daemon may have, whichever client they are for.
TEST(EngineFairness, MappingsOfAllClientsTogetherAreBounded) {
  EngineOptions options;
  options.limits.all_mappings = 3;
  Engine engine{options};
  // Each has one mapping, its arena.
  Client a(engine, "a", rnic::Media::kRam, nullptr, 7);
  Client b(engine, "b", rnic::Media::kRam, nullptr, 8);
  const auto piece = [&](Client& client) {
    return engine.RegisterUmem(client.id(), {reinterpret_cast<uint64_t>(client.memory), 0, 4096},
                               {client.memory, 4096, nullptr});
  };
  const auto last = piece(a);
  ASSERT_OK(last);
  const Status refused = piece(b).status();
  EXPECT_THAT(refused, StatusIs(Code::kNoSpace));
  EXPECT_THAT(refused.message(), HasSubstr("the device has 3 pieces"));
  EXPECT_THAT(refused.message(), HasSubstr("vm.max_map_count"));
  Command command = a.Make(Op::kFreeUmem);
  command.args.id.id = last->id;
  Reply reply;
  ASSERT_OK(a.Try(command, &reply));
  EXPECT_OK(piece(b)) << "what was freed counts no longer";
}

// A client could register 64 sparse pieces of 1 GiB with a queue in each, which would take 1 GiB of
// tables.
TEST(EngineFairness, TablesOfQueuesAreBounded) {
  Engine engine{EngineOptions{}};
  Client a(engine, "a");
  constexpr uint64_t kPiece = 1ull << 30;
  void* const sparse = mmap(nullptr, kPiece, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(sparse, MAP_FAILED);
  auto* const base = static_cast<std::byte*>(sparse);
  const auto at = reinterpret_cast<uint64_t>(base);
  Status status;
  int pieces = 0;
  for (; pieces < 64 && status.ok(); ++pieces) {
    const auto umem = engine.RegisterUmem(a.id(), {at, 0, kPiece}, {base, kPiece, nullptr});
    ASSERT_OK(umem);
    Command command = a.Make(Op::kCreateCq);
    command.args.cq = {umem->id, 0, at, at + 64, 0, 0};
    Reply reply;
    status = a.Try(command, &reply);
  }
  EXPECT_EQ(pieces, 4) << "of 64 MiB of tables three and a bit";
  EXPECT_THAT(status, StatusIs(Code::kNoSpace));
  EXPECT_THAT(status.message(), HasSubstr("--client-table-mib"));
  a.Close();
  munmap(sparse, kPiece);
}

// The objects of a client that goes are destroyed a part at a time, and the others run in between.
TEST(EngineFairness, AClientGoesInParts) {
  Pair p;
  TestCq cq = p.a.Cq();
  for (int i = 0; i < 20; ++i) Loopback(p.a, cq);
  for (int i = 0; i < 20; ++i) p.a.Key(p.a.memory, 64, 0);
  TestCq b_cq = p.b.Cq();
  TestQp qp = Loopback(p.b, b_cq);
  int parts = 1;
  for (; !p.engine.CloseContextPart(p.a.id(), 4); ++parts)
    ASSERT_NE(StepsToNop(p.engine, qp, b_cq), ~size_t{0});
  EXPECT_GT(parts, 10);
  EXPECT_TRUE(p.engine.CloseContextPart(p.a.id(), 4)) << "nothing is left";
}

// Queue pairs in error and those that wait for a receive are looked at a few each turn, and none is
// forgotten.
TEST(EngineFairness, ManyBrokenAndWaitingQueuePairsAreAllServed) {
  Pair p;
  std::vector<TestQp> broken, waiting, targets;
  for (int i = 0; i < 60; ++i) {
    TestQp qp = p.a.Qp(p.a_cq, p.a_recv, {.log_sq = 2, .log_rq = 2});
    p.a.Modify(qp, QpState::kError);
    broken.push_back(qp);
    TestQp from = p.a.Qp(p.a_cq, p.a_recv, {.log_sq = 2, .log_rq = 2});
    TestQp to = p.b.Qp(p.b_cq, p.b_recv, {.log_sq = 2, .log_rq = 2});
    p.a.Connect(from, to);
    p.b.Connect(to, from);
    from.Send(p.a.At(p.src, 8));
    from.Ring();
    waiting.push_back(from), targets.push_back(to);
  }
  p.Run();
  EXPECT_TRUE(p.engine.RetryPending());
  for (int i = 0; i < 60; ++i) {
    broken[static_cast<size_t>(i)].Receive(p.a.At(p.src, 8));
    targets[static_cast<size_t>(i)].Receive(p.b.At(p.dst, 8));
  }
  p.engine.Run(1000);
  EXPECT_LT(p.a.Counter("error_cqes"), 60u) << "a few in one turn";
  EXPECT_LT(p.a.Counter("sends"), 60u) << "a few in one turn";
  for (int i = 0; i < 20; ++i) p.Run();
  EXPECT_EQ(p.a.Counter("error_cqes"), 60u);
  EXPECT_EQ(p.a.Counter("sends"), 60u);
  EXPECT_FALSE(p.engine.RetryPending());
}

}  // namespace
}  // namespace hyperloop::softrnic
