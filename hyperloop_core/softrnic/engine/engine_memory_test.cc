// Tests media that need a flush, files that shrink, counters, and commands with wrong arguments.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <map>
#include <memory>
#include <random>

#include "softrnic/engine/engine_impl.h"
#include "softrnic/engine/testing/adversarial_schedule.h"
#include "softrnic/engine/testing/engine_test_util.h"
#include "support/status_matchers.h"

namespace hyperloop::softrnic {
namespace {

using rnic::Media;
using rnic::WcStatus;

// The numbers are few and crowded, so that entries lie far from their places and around the table's
// end.
TEST(EngineKeys, TheTableHasWhatWasInsertedAndNotErased) {
  std::mt19937 random(7);
  RkeyTable table;
  std::map<uint32_t, std::unique_ptr<MemoryKey>> model;
  for (int step = 0; step < 20'000; ++step) {
    const uint32_t rkey = 1 + (random() % 3 << 16 | (0x3ffe8 + random() % 48) % 0x10000);
    const auto found = model.find(rkey);
    ASSERT_EQ(table.Find(rkey), found != model.end() ? found->second.get() : nullptr) << step;
    if (found != model.end()) {
      table.Erase(found->second.get());
      model.erase(found);
    } else if (step / 100 % 2 == 0 || random() % 4 == 0) {
      auto key = std::make_unique<MemoryKey>();
      key->rkey = rkey;
      table.Insert(key.get());
      model.emplace(rkey, std::move(key));
    }
    for (const auto& [number, key] : model) ASSERT_EQ(table.Find(number), key.get()) << step;
  }
}

// A file of `size` bytes and a shared mapping of it. The destructor removes both.
struct MappedFile {
  explicit MappedFile(size_t size) : length(size) {
    fd = memfd_create("engine_test", MFD_CLOEXEC);
    EXPECT_EQ(0, ftruncate(fd, static_cast<off_t>(size)));
    data = static_cast<std::byte*>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    EXPECT_NE(data, MAP_FAILED);
  }
  ~MappedFile() {
    munmap(data, length);
    close(fd);
  }
  size_t length;
  int fd;
  std::byte* data;
};

struct MediaPair {
  explicit MediaPair(Media media, EngineOptions options = {})
      : file(Client::kArena),
        engine(options),
        a(engine, "a"),
        b(engine, "b", media, file.data, 0, file.fd),
        a_cq(a.Cq()),
        b_cq(b.Cq()),
        a_qp(a.Qp(a_cq, a_cq)),
        b_qp(b.Qp(b_cq, b_cq)) {
    a.Connect(a_qp, b_qp);
    b.Connect(b_qp, a_qp);
    src = a.Allocate(4096), dst = b.Allocate(65536);
  }
  uint64_t FlushesAfter(const std::function<void()>& post) {
    const uint64_t before = b.Counter("media_flushes");
    post();
    a_qp.Ring();
    RunAll(engine);
    EXPECT_TRUE(a_cq.PollAll().empty());
    return b.Counter("media_flushes") - before;
  }
  void Write(size_t offset, size_t n) {
    a_qp.Write(reinterpret_cast<uint64_t>(dst + offset), b.rkey, a.At(src, n));
  }
  void Read(size_t n) {
    const Sge sge = a.At(src, n);
    a_qp.Put([&](void* w) {
      return rnic::EncodeRead(w, a_qp.Control(), reinterpret_cast<uint64_t>(dst), b.rkey,
                              std::span(&sge, n == 0 ? 0 : 1));
    });
  }
  MappedFile file;
  Engine engine;
  Client a, b;
  TestCq a_cq, b_cq;
  TestQp a_qp, b_qp;
  std::byte* src;
  std::byte* dst;
};

TEST(EngineMedia, ReadFlushesWhatThisQueuePairWrote) {
  for (const Media media : {Media::kFile, Media::kPmem}) {
    MediaPair p(media);
    EXPECT_EQ(p.FlushesAfter([&] { p.Write(0, 100); }), 0u);
    EXPECT_EQ(p.FlushesAfter([&] { p.Read(0); }), 0u) << "a READ of nothing flushes nothing";
    EXPECT_EQ(p.FlushesAfter([&] { p.Read(1); }), 1u);
    EXPECT_EQ(p.FlushesAfter([&] { p.Read(1); }), 0u) << "already durable";
    EXPECT_EQ(p.FlushesAfter([&] {
      p.Write(0, 100);
      p.Write(100, 100);  // touches the first: one range
      p.Write(8192, 8);
      p.a_qp.Add(reinterpret_cast<uint64_t>(p.dst + 16384), p.b.rkey, 1, p.a.At(p.src, 8));
      p.Read(1);
    }),
              3u);
    EXPECT_EQ(p.FlushesAfter([&] {
      p.b_qp.Receive(p.b.At(p.dst, 64));
      p.a_qp.Send(p.a.At(p.src, 64));
      p.Read(1);
    }),
              1u)
        << "received bytes too";
  }
}

// Every line of a range is flushed. A range that covered memory that nobody wrote could take very
// long to flush.
TEST(EngineMedia, ScatteredWritesToPmemFlushWhatTheyWroteAndNoMore) {
  MediaPair p(Media::kPmem);
  const uint64_t before = p.b.Counter("media_flushed_bytes");
  p.FlushesAfter([&] {
    for (size_t i = 0; i < 60; ++i) p.Write(i * 1000, 8);
    p.Read(8);
  });
  EXPECT_EQ(p.b.Counter("media_flushed_bytes") - before, 60u * 8);
}

// A READ flushes little, however much was written before it.
TEST(EngineMedia, AReadHasLittlePmemToFlush) {
  MediaPair p(Media::kPmem);
  p.FlushesAfter([&] {
    for (size_t i = 0; i < 16; ++i) p.Write(4096 * i, 4096);
  });
  const uint64_t before = p.b.Counter("media_flushed_bytes");
  EXPECT_GE(before, 48u << 10);
  p.FlushesAfter([&] { p.Read(8); });
  EXPECT_EQ(p.b.Counter("media_flushed_bytes"), 64u << 10) << "each byte once";
  EXPECT_LE(p.b.Counter("media_flushed_bytes") - before, 16u << 10);
}

TEST(EngineMedia, ManyScatteredWritesStayBounded) {
  MediaPair p(Media::kFile);
  const uint64_t flushes = p.FlushesAfter([&] {
    for (size_t i = 0; i < 60; ++i) p.Write(i * 1000, 8);
    p.Read(8);
  });
  EXPECT_GE(flushes, 1u);
  EXPECT_LE(flushes, 16u);
}

TEST(EngineMedia, AnotherQueuePairsReadOrRamFlushesNothing) {
  MediaPair p(Media::kFile);
  TestQp a2 = p.a.Qp(p.a_cq, p.a_cq), b2 = p.b.Qp(p.b_cq, p.b_cq);
  p.a.Connect(a2, b2);
  p.b.Connect(b2, a2);
  EXPECT_EQ(p.FlushesAfter([&] {
    p.Write(0, 8);
    a2.Read(reinterpret_cast<uint64_t>(p.dst), p.b.rkey, p.a.At(p.src, 8));
    a2.Ring();
  }),
            0u);
  MediaPair ram(Media::kRam);
  EXPECT_EQ(ram.FlushesAfter([&] {
    ram.Write(0, 8);
    ram.Read(8);
  }),
            0u);
}

Engine* g_engine = nullptr;

// While it lives, `engine` handles the bus errors of this process.
class OnBusErrors {
 public:
  explicit OnBusErrors(Engine* engine) {
    g_engine = engine;
    struct sigaction action {};
    action.sa_sigaction = [](int, siginfo_t* info, void*) {
      if (!g_engine->HandleFault(info->si_addr)) _exit(99);
    };
    action.sa_flags = SA_SIGINFO;
    EXPECT_EQ(0, sigaction(SIGBUS, &action, &old_));
  }
  ~OnBusErrors() { sigaction(SIGBUS, &old_, nullptr); }

 private:
  struct sigaction old_ {};
};

// Makes another key of host b over a part of its memory. `umem`: which registration; 0: the first.
Status NewKey(MediaPair& p, size_t offset, size_t length, Reply* reply, uint32_t umem = 0) {
  Command command = p.b.Make(Op::kCreateMkey);
  command.args.mkey = {.pdn = p.b.pdn,
                       .umem = umem != 0 ? umem : p.b.umem,
                       .addr = reinterpret_cast<uint64_t>(p.b.memory + offset),
                       .length = length,
                       .access = 0xf,
                       .media = static_cast<uint32_t>(Media::kFile)};
  return p.b.Try(command, reply);
}

TEST(EngineTruncation, ShrunkFileIsAProtectionErrorAndTheEngineGoesOn) {
  MediaPair p(Media::kRam);
  const OnBusErrors handler(&p.engine);
  const size_t kept = static_cast<size_t>(p.dst - p.b.memory) / 4096 * 4096 + 8192;
  ASSERT_EQ(0, ftruncate(p.file.fd, static_cast<off_t>(kept)));
  p.a_qp.Write(reinterpret_cast<uint64_t>(p.b.memory + Client::kArena - 100), p.b.rkey,
               p.a.At(p.src, 64));
  p.a_qp.Ring();
  RunAll(p.engine);
  EXPECT_EQ(p.a_cq.PollAll().at(0).status, WcStatus::kRemoteAccess);
  // The key stays bad, for reads and from new queue pairs too; other clients do not notice.
  TestQp a2 = p.a.Qp(p.a_cq, p.a_cq), b2 = p.b.Qp(p.b_cq, p.b_cq);
  p.a.Connect(a2, b2);
  p.b.Connect(b2, a2);
  a2.Read(reinterpret_cast<uint64_t>(p.dst), p.b.rkey, p.a.At(p.src, 8));
  a2.Ring();
  RunAll(p.engine);
  EXPECT_EQ(p.a_cq.PollAll().at(0).status, WcStatus::kRemoteAccess);
  TestQp self = p.a.Qp(p.a_cq, p.a_cq);
  p.a.Connect(self, self);
  self.Write(reinterpret_cast<uint64_t>(p.src), p.a.rkey, p.a.At(p.src, 8), CqeMode::kAlways);
  self.Ring();
  RunAll(p.engine);
  EXPECT_EQ(p.a_cq.PollAll().at(0).status, WcStatus::kSuccess);
  int elsewhere = 0;
  EXPECT_FALSE(p.engine.HandleFault(&elsewhere));
}

// A new key must not reach the page that took the place of the file's page: what is written there
// is never in the file, even after a flush.
TEST(EngineTruncation, NoNewKeyReachesWhatTheFileLost) {
  MediaPair p(Media::kFile);
  const OnBusErrors handler(&p.engine);
  constexpr size_t kPage = 4096;
  constexpr size_t kKept = Client::kArena / 2;  // a multiple of the page
  const auto twice =
      p.engine.RegisterUmem(p.b.id(), {reinterpret_cast<uint64_t>(p.b.memory), 0, Client::kArena},
                            {p.b.memory, Client::kArena, nullptr});
  ASSERT_OK(twice);
  Reply old;
  ASSERT_OK(NewKey(p, kKept + 4 * kPage, 64, &old, twice->id));
  ASSERT_EQ(0, ftruncate(p.file.fd, static_cast<off_t>(kKept)));
  const auto write = [&](size_t offset, uint32_t rkey) {
    TestQp a = p.a.Qp(p.a_cq, p.a_cq), b = p.b.Qp(p.b_cq, p.b_cq);
    p.a.Connect(a, b);
    p.b.Connect(b, a);
    a.Write(reinterpret_cast<uint64_t>(p.b.memory + offset), rkey, p.a.At(p.src, 64),
            CqeMode::kAlways);
    a.Ring();
    RunAll(p.engine);
    return p.a_cq.PollAll().at(0).status;
  };
  Reply reply;
  for (const size_t lost : {kKept + 4 * kPage, kKept + 2 * kPage}) {
    ASSERT_OK(NewKey(p, lost, 64, &reply)) << "nobody knows yet";
    EXPECT_EQ(write(lost, reply.result.mkey.rkey), WcStatus::kRemoteAccess);
  }
  EXPECT_EQ(write(kKept + 4 * kPage, old.result.mkey.rkey), WcStatus::kRemoteAccess)
      << "by another registration of the same memory";

  const Status refused = NewKey(p, kKept + 4 * kPage, 64, &reply);
  EXPECT_THAT(refused, StatusIs(Code::kProtection));
  EXPECT_NE(refused.message().find("truncated"), std::string::npos) << refused.ToString();
  EXPECT_THAT(NewKey(p, kKept + 4 * kPage, 64, &reply, twice->id), StatusIs(Code::kProtection))
      << "the other one's, too";
  EXPECT_THAT(NewKey(p, kKept + 5 * kPage - 1, kPage, &reply), StatusIs(Code::kProtection))
      << "its last byte";
  EXPECT_THAT(NewKey(p, kKept + 2 * kPage - 8, 9, &reply), StatusIs(Code::kProtection))
      << "its first byte";
  EXPECT_THAT(NewKey(p, kKept + 3 * kPage, 8, &reply), StatusIs(Code::kProtection))
      << "a page in between";
  EXPECT_THAT(NewKey(p, 0, Client::kArena, &reply), StatusIs(Code::kProtection)) << "all";
  // What the file still has is served as ever.
  ASSERT_OK(NewKey(p, kKept - kPage, kPage, &reply));
  EXPECT_EQ(write(kKept - kPage, reply.result.mkey.rkey), WcStatus::kSuccess);
}

TEST(EngineTruncation, ShrunkSourceFailsTheRequester) {
  MediaPair p(Media::kRam);
  const OnBusErrors handler(&p.engine);
  std::byte* const last = p.b.memory + Client::kArena - 4096;
  ASSERT_EQ(0, ftruncate(p.file.fd, static_cast<off_t>(Client::kArena - 4096)));
  p.b_qp.Write(reinterpret_cast<uint64_t>(p.src), p.a.rkey, p.b.At(last, 64));
  p.b_qp.Ring();
  RunAll(p.engine);
  EXPECT_EQ(p.b_cq.PollAll().at(0).status, WcStatus::kLocalProtection);
}

// Each fault takes one more mapping of the process. A client that causes many faults is evicted,
// and the others go on.
TEST(EngineTruncation, ManyFaultsEndTheClient) {
  EngineOptions options;
  options.limits.faults = 3;
  MediaPair p(Media::kRam, options);
  const OnBusErrors handler(&p.engine);
  std::string why;
  ContextId evicted = kNoContext;
  p.engine.SetEvict([&](ContextId context, const std::string& reason) {
    evicted = context;
    why = reason;
  });
  ASSERT_EQ(0, ftruncate(p.file.fd, static_cast<off_t>(Client::kArena / 2)));
  for (size_t i = 1; evicted == kNoContext; ++i) {
    ASSERT_LT(i, 6u);
    const size_t at = Client::kArena - i * 8 * 4096;
    Reply reply;
    ASSERT_OK(NewKey(p, at, 64, &reply));
    TestQp a = p.a.Qp(p.a_cq, p.a_cq), b = p.b.Qp(p.b_cq, p.b_cq);
    p.a.Connect(a, b);
    p.b.Connect(b, a);
    a.Write(reinterpret_cast<uint64_t>(p.b.memory + at), reply.result.mkey.rkey, p.a.At(p.src, 8));
    a.Ring();
    RunAll(p.engine);
    EXPECT_EQ(p.a_cq.PollAll().at(0).status, WcStatus::kRemoteAccess);
  }
  EXPECT_EQ(evicted, p.b.id());
  EXPECT_NE(why.find("--client-faults"), std::string::npos) << why;
  Reply reply;
  EXPECT_THAT(p.b.Try(p.b.Make(Op::kAllocPd), &reply), StatusIs(Code::kAborted));
  EXPECT_OK(p.a.Try(p.a.Make(Op::kAllocPd), &reply));
}

// A queue pair of `a` that writes to the page of `b` at `offset`, which b's file lost, under a key
// of its own.
TestQp WriteToLostPage(Client& a, const TestCq& a_cq, Client& b, const TestCq& b_cq,
                       size_t offset) {
  TestQp from = a.Qp(a_cq, a_cq, {.log_sq = 1, .has_rq = false});
  TestQp to = b.Qp(b_cq, b_cq, {.log_sq = 1, .has_rq = false});
  a.Connect(from, to);
  b.Connect(to, from);
  const uint32_t rkey = b.Key(b.memory + offset, 64, 0xf).rkey;
  from.Write(reinterpret_cast<uint64_t>(b.memory + offset), rkey, a.At(a.memory, 8));
  return from;
}

// A fault costs a signal, a mapping, and a look at all memory, so others have their turns in
// between.
TEST(EngineTruncation, AFaultCountsAsManySteps) {
  MediaPair p(Media::kRam);
  const OnBusErrors handler(&p.engine);
  std::vector<TestQp> writers;
  for (size_t i = 1; i <= 20; ++i)
    writers.push_back(WriteToLostPage(p.a, p.a_cq, p.b, p.b_cq, Client::kArena - i * 4096));
  ASSERT_EQ(0, ftruncate(p.file.fd, static_cast<off_t>(Client::kArena / 2)));
  for (const TestQp& each : writers) each.Ring();
  p.engine.Run(64);
  EXPECT_EQ(p.a_cq.PollAll().size(), 1u);
  RunAll(p.engine);
  EXPECT_EQ(p.a_cq.PollAll().size(), 19u);
}

// A client gets no new faults by connecting again.
TEST(EngineTruncation, FaultsAreCountedAsLongAsTheClientIsKnown) {
  constexpr ClientNumber kNumber = 7;
  EngineOptions options;
  options.limits.faults = 3;
  Engine engine(options);
  const OnBusErrors handler(&engine);
  bool evicted = false;
  engine.SetEvict([&](ContextId, const char*) { evicted = true; });
  Client a(engine, "a");
  const TestCq a_cq = a.Cq();
  // A connection of the client in which `faults` faults happen.
  const auto connect = [&](size_t faults) {
    const MappedFile file(Client::kArena);
    Client b(engine, "b", Media::kRam, file.data, kNumber, file.fd);
    const TestCq b_cq = b.Cq();
    EXPECT_EQ(0, ftruncate(file.fd, static_cast<off_t>(Client::kArena / 2)));
    for (size_t i = 1; i <= faults; ++i) {
      WriteToLostPage(a, a_cq, b, b_cq, Client::kArena - i * 8 * 4096).Ring();
      RunAll(engine);
    }
  };
  connect(2);
  connect(1);
  EXPECT_FALSE(evicted);
  connect(1);
  EXPECT_TRUE(evicted);
  OpenReply reply;
  const Status refused = engine.OpenContext("b", a.uar(), &reply, kNumber).status();
  EXPECT_THAT(refused, StatusIs(Code::kAborted));
  EXPECT_NE(refused.message().find("--client-faults"), std::string::npos) << refused.ToString();
  engine.ForgetClient(kNumber);
  evicted = false;
  connect(3);
  EXPECT_FALSE(evicted);
}

TEST(EngineTruncation, RingsInALostFileEndTheClient) {
  MediaPair p(Media::kRam);
  const OnBusErrors handler(&p.engine);
  std::string why;
  p.engine.SetEvict([&](ContextId, const std::string& reason) { why = reason; });
  ASSERT_EQ(0, ftruncate(p.file.fd, 0));
  p.a_qp.Send(p.a.At(p.src, 8));  // the engine looks for b's receives
  p.a_qp.Ring();
  RunAll(p.engine);
  EXPECT_NE(why.find("queues"), std::string::npos) << why;
  EXPECT_THAT(p.b.TryModify(p.b_qp, QpState::kReset), StatusIs(Code::kAborted));
}

// A file that was cut within its last page causes no fault.
TEST(EngineTruncation, AFileCutInsideAPageFailsItsFlush) {
  MediaPair p(Media::kFile);
  const OnBusErrors handler(&p.engine);
  const auto end = static_cast<off_t>(p.dst - p.b.memory) + 100;
  p.Write(0, 64);
  p.Read(8);
  p.a_qp.Ring();
  RunAll(p.engine);
  EXPECT_TRUE(p.a_cq.PollAll().empty());
  ASSERT_EQ(0, ftruncate(p.file.fd, end));
  p.Write(96, 8);
  p.Read(8);
  p.a_qp.Ring();
  RunAll(p.engine);
  EXPECT_EQ(p.a_cq.PollAll().at(0).status, WcStatus::kRemoteOperation);
}

// --- counters

Status QueryCounters(Client& client, const std::string& host) {
  Command command = client.Make(Op::kQueryCounters);
  std::strcpy(command.args.counters.host, host.c_str());
  Reply reply;
  return client.Try(command, &reply);
}

TEST(EngineCounters, OutliveTheHostAndAreItsNames) {
  Engine engine{EngineOptions{}};
  Client looker(engine, "looker");
  // Attaches "a", which writes 8 bytes to itself.
  const auto write = [&] {
    Client a(engine, "a");
    const TestCq cq = a.Cq();
    TestQp from = a.Qp(cq, cq), to = a.Qp(cq, cq);
    a.Connect(from, to);
    a.Connect(to, from);
    from.Write(reinterpret_cast<uint64_t>(a.memory), a.rkey, a.At(a.memory, 8));
    from.Ring();
    RunAll(engine);
    EXPECT_EQ(looker.Counter("bytes_sent", "a"), a.Counter("bytes_sent"));
  };
  write();
  EXPECT_EQ(looker.Counter("bytes_sent", "a"), 8u);
  write();
  EXPECT_EQ(looker.Counter("bytes_sent", "a"), 16u);
  EXPECT_EQ(looker.Counter("bytes_sent"), 0u);
}

TEST(EngineCounters, OfAHostThatIsBeingClosedAreComplete) {
  Engine engine{EngineOptions{}};
  Client looker(engine, "looker"), a(engine, "a");
  const TestCq cq = a.Cq();
  for (int i = 0; i < 4; ++i) {
    TestQp from = a.Qp(cq, cq), to = a.Qp(cq, cq);
    a.Connect(from, to);
    a.Connect(to, from);
    from.Write(reinterpret_cast<uint64_t>(a.memory), a.rkey, a.At(a.memory, 8));
    from.Ring();
  }
  RunAll(engine);
  do EXPECT_EQ(looker.Counter("bytes_sent", "a"), 32u);
  while (engine.CloseContextPart(a.id(), 1));
  EXPECT_EQ(looker.Counter("bytes_sent", "a"), 32u);
}

TEST(EngineCounters, OfAnUnknownHostAreRefused) {
  Engine engine{EngineOptions{}};
  Client a(engine, "a");
  const Status unknown = QueryCounters(a, "b");
  EXPECT_THAT(unknown, StatusIs(Code::kNotFound));
  EXPECT_NE(unknown.message().find("no host b"), std::string::npos) << unknown.ToString();
  EXPECT_THAT(QueryCounters(a, "no/slash"), StatusIs(Code::kInvalidArgument));
  Command command = a.Make(Op::kQueryCounters);
  std::memset(command.args.counters.host, 'a', kNameBytes);  // no zero ends it
  Reply reply;
  EXPECT_THAT(a.Try(command, &reply), StatusIs(Code::kInvalidArgument));
  EXPECT_OK(QueryCounters(a, "a"));
}

TEST(EngineCounters, TheHostThatLeftFirstIsForgottenFirst) {
  constexpr int kKept = 1024;
  Engine engine{EngineOptions{}};
  Client looker(engine, "looker");  // is the oldest, but stays
  OpenReply reply;
  for (int i = 0; i < kKept; ++i) {
    const auto context = engine.OpenContext("h" + std::to_string(i), looker.uar(), &reply);
    ASSERT_OK(context);
    engine.CloseContext(*context);
  }
  EXPECT_THAT(QueryCounters(looker, "h0"), StatusIs(Code::kNotFound));
  EXPECT_OK(QueryCounters(looker, "h1"));
  EXPECT_OK(QueryCounters(looker, "h" + std::to_string(kKept - 1)));
  EXPECT_OK(QueryCounters(looker, "looker"));
}

// --- commands

TEST(EngineCommands, RefusalsNameTheCauseAndChangeNothing) {
  Pair p;
  Reply reply;
  const auto refused = [&](Command command, Code code) {
    const Status status = p.a.Try(command, &reply);
    EXPECT_THAT(status, StatusIs(code));
    EXPECT_FALSE(status.message().empty());
  };
  Command command = p.a.Make(Op::kCreateMkey);
  const auto base = reinterpret_cast<uint64_t>(p.a.memory);
  command.args.mkey = {p.a.pdn, p.a.umem, base + 1, Client::kArena, 0xf, 0};
  refused(command, Code::kInvalidArgument);
  command.args.mkey = {p.a.pdn, p.a.umem, base - 8, 16, 0xf, 0};
  refused(command, Code::kInvalidArgument);
  command.args.mkey = {p.a.pdn, p.a.umem, base + 8, ~0ull - 4, 0xf, 0};
  refused(command, Code::kInvalidArgument);
  command.args.mkey = {p.a.pdn, p.a.umem, base, 16, rnic::kRemoteWrite, 0};
  refused(command, Code::kInvalidArgument);
  command.args.mkey = {p.b.pdn, p.a.umem, base, 16, 0xf, 0};
  refused(command, Code::kNotFound);
  command.args.mkey = {p.a.pdn, p.a.umem, base, 16, 0xf, 3};
  refused(command, Code::kInvalidArgument);
  command = p.a.Make(Op::kCreateCq);
  command.args.cq = {p.a.umem, 30, base, base, 0, 0};
  refused(command, Code::kInvalidArgument);
  command.args.cq = {p.a.umem, 14, base + 64, base, 0, 0};
  refused(command, Code::kInvalidArgument);
  command.args.cq = {p.a.umem, 1, base + 32, base, 0, 0};
  refused(command, Code::kInvalidArgument);
  command = p.a.Make(Op::kDestroyQp);
  command.args.id.id = p.b_qp.qpn;
  refused(command, Code::kNotFound);
  command = p.a.Make(Op::kDestroyCq);
  command.args.id.id = p.a_cq.cqn;
  refused(command, Code::kBusy);
  command = p.a.Make(Op::kFreeUmem);
  command.args.id.id = p.a.umem;
  refused(command, Code::kBusy);
  command = p.a.Make(Op::kFreePd);
  command.args.id.id = p.a.pdn;
  refused(command, Code::kBusy);
  command = p.a.Make(static_cast<Op>(99));
  refused(command, Code::kInvalidArgument);
  command = p.a.Make(Op::kAllocPd);
  command.version = 9;
  refused(command, Code::kNotSupported);
  EXPECT_THAT(p.a.TryModify(p.a_qp, QpState::kInit), StatusIs(Code::kInvalidArgument))
      << "RTS to INIT";
  EXPECT_THAT(p.engine.OpenContext("no/slash", p.a.uar(), &reply.result.open).status(),
              StatusIs(Code::kInvalidArgument));
  p.a_qp.Write(p.Remote(p.dst), p.b.rkey, p.a.At(p.src, 8), CqeMode::kAlways);
  p.a_qp.Ring();
  p.Run();
  EXPECT_EQ(p.a_cq.PollAll().at(0).status, WcStatus::kSuccess);
}

TEST(EngineCommands, ObjectCountsAreLimited) {
  Engine engine{EngineOptions{}};
  Client a(engine, "a");
  TestCq cq = a.Cq();
  Command command = a.Make(Op::kCreateQp);
  const auto at = reinterpret_cast<uint64_t>(a.Allocate(256));
  command.args.qp = {a.pdn, cq.cqn, cq.cqn, a.umem, at, at, at + 128, 0, 0, 4, 0, 0, 1};
  Reply reply;
  std::vector<uint32_t> qpns;
  for (uint32_t i = 0; i < kMaxQpsPerContext; ++i) qpns.push_back(a.Must(command).result.qp.qpn);
  EXPECT_THAT(a.Try(command, &reply), StatusIs(Code::kNoSpace));
  EXPECT_OK(a.Destroy(Op::kDestroyQp, qpns[7]));
  const auto again = a.Must(command).result.qp;
  EXPECT_EQ(again.doorbell_index, 7u);
  EXPECT_NE(again.qpn, qpns[7]) << "a stale number must find nothing";
  command = a.Make(Op::kAllocPd);
  Status status;
  int pds = 0;
  while ((status = a.Try(command, &reply)).ok()) ASSERT_LT(++pds, 100000);
  EXPECT_THAT(status, StatusIs(Code::kNoSpace));
}

// A client whose commands and rings are noise, some of it plausible.
class NoisyPair {
 public:
  NoisyPair(const EngineOptions& options, std::mt19937_64& random)
      : p_(options, {.flags = 7}, {.flags = 7}), random_(random) {}

  void Round() {
    TryCommand();
    for (TestQp* qp : {&p_.a_qp, &p_.b_qp}) {
      for (int n = 0; n < 4; ++n) FillSlot(*qp);
      if (qp->rq != nullptr) {
        for (size_t at = 0; at < 16 * 64; at += 4)
          qp->rq[at] = static_cast<std::byte>(random_() % 4 == 0 ? random_() : 0);
      }
      qp->SetReceiveCounter(static_cast<uint32_t>(random_()));
      qp->Ring(static_cast<uint16_t>(random_() % 8 == 0 ? random_() : qp->next));
    }
    for (int n = 0; n < 200 && p_.engine.Run(16) != 0; ++n) {
    }
    BringToWork(p_.a, p_.a_qp, p_.b_qp);
    BringToWork(p_.b, p_.b_qp, p_.a_qp);
  }

 private:
  // Its arguments are small numbers, valid numbers and noise.
  void TryCommand() {
    Command command = p_.a.Make(static_cast<Op>(random_() % 18));
    const auto memory = reinterpret_cast<uint64_t>(p_.a.memory);
    for (size_t at = 0; at < 64; at += 4) {
      const uint32_t values[] = {static_cast<uint32_t>(random_() % 8),
                                 static_cast<uint32_t>(random_()),
                                 p_.a.umem,
                                 p_.a.pdn,
                                 p_.a_cq.cqn,
                                 p_.b_qp.qpn,
                                 static_cast<uint32_t>(memory),
                                 static_cast<uint32_t>(memory >> 32)};
      const uint32_t value = values[random_() % 8];
      std::memcpy(command.args.raw + at, &value, 4);
    }
    Reply reply;
    p_.a.Try(command, &reply).IgnoreError();
  }
  // Fills the next slot of the ring with noise behind a plausible header.
  void FillSlot(TestQp& qp) {
    std::byte* const block = qp.sq + (qp.next % qp.sq_wqebbs) * 64;
    for (size_t at = 16; at < 64; ++at) {
      if (random_() % 3 == 0) block[at] = static_cast<std::byte>(random_());
    }
    const uint8_t opcodes[] = {0,  8,  9,  10,   11,   15,
                               16, 17, 18, 0x16, 0x17, static_cast<uint8_t>(random_())};
    const uint64_t head = htobe64(static_cast<uint64_t>(qp.next) << 40 |
                                  static_cast<uint64_t>(opcodes[random_() % 12]) << 32 |
                                  qp.qpn << 8 | (1 + random_() % 5));
    std::memcpy(block, &head, 8);
    const Sge near = (&qp == &p_.a_qp ? p_.a : p_.b).At(p_.src, 1 + random_() % 64);
    if (random_() % 2 != 0) {
      const uint32_t words[] = {htobe32(near.length), htobe32(near.lkey),
                                htobe32(static_cast<uint32_t>(near.addr >> 32)),
                                htobe32(static_cast<uint32_t>(near.addr))};
      std::memcpy(block + 32, words, 16);
    }
    ++qp.next;
  }
  static void BringToWork(Client& client, TestQp& qp, const TestQp& peer) {
    if (!client.TryModify(qp, QpState::kReset).ok()) return;
    client.TryModify(qp, QpState::kInit, 0xf).IgnoreError();
    client.TryModify(qp, QpState::kReadyToReceive, 0, &peer).IgnoreError();
    client.TryModify(qp, QpState::kReadyToSend).IgnoreError();
    qp.next = 0;
  }

  Pair p_;
  std::mt19937_64& random_;
};

TEST(EngineCommands, RandomCommandsAndRingsNeverCrash) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 30; ++round) {
    EngineOptions options;
    if (round % 3 == 1)
      options.test = {.steps = RandomSteps,
                      .fetch = EngineTestHooks::Fetch::kRandom,
                      .defer_delivery = true,
                      .seed = random()};
    if (round % 3 == 2) options.test = {.check_wqe_index = false, .check_qpn = false};
    NoisyPair pair(options, random);
    for (int i = 0; i < 400; ++i) pair.Round();
  }
}

}  // namespace
}  // namespace hyperloop::softrnic
