// Runs random operations over files on a disk that finishes its flushes at any time and in any
// order, with links that break. Whatever a READ covers must be durable when it is acknowledged,
// each operation must run once and in its order, and all must end.
//
// A failure prints its seed; HYPERLOOP_SEED=<seed> repeats just that run, HYPERLOOP_SEEDS=<n> runs
// n seeds instead of the default number.
#include <cstdlib>
#include <deque>
#include <map>
#include <random>
#include <vector>

#include "softrnic/engine/flusher.h"
#include "softrnic/engine/testing/adversarial_schedule.h"
#include "softrnic/engine/testing/engine_test_util.h"
#include "softrnic/engine/testing/memory_network.h"
#include "support/status_matchers.h"

namespace hyperloop::softrnic {
namespace {

using rnic::Media;
using rnic::WcStatus;

uint64_t Load(const std::byte* at) {
  uint64_t value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}
void Store(std::byte* at, uint64_t value) { std::memcpy(at, &value, sizeof(value)); }

// A flush makes durable what the memory held when the flush was asked for. The words in it only
// grow.
class RandomDisk : public Flusher {
 public:
  bool Flush(uint64_t, FileRange range, std::shared_ptr<FlushJob> job) override {
    // Only words that the range covers wholly count.
    std::byte* const first = range.begin + (8 - reinterpret_cast<uintptr_t>(range.begin) % 8) % 8;
    Task task{first, {}, std::move(job)};
    for (const std::byte* at = first; at + 8 <= range.end; at += 8) task.words.push_back(Load(at));
    tasks_.push_back(std::move(task));
    return true;
  }
  void Gone(uint64_t) override {}
  size_t waiting() const { return tasks_.size(); }
  void Finish(size_t i, bool ok) {
    const Task task = std::move(tasks_[i]);
    tasks_.erase(tasks_.begin() + static_cast<std::ptrdiff_t>(i));
    if (ok) {
      for (size_t w = 0; w < task.words.size(); ++w) {
        uint64_t& durable = durable_[task.first + 8 * w];
        durable = std::max(durable, task.words[w]);
      }
    }
    if (!ok) task.job->failed = true;
    task.job->left.fetch_sub(1);
  }
  uint64_t durable(const std::byte* at) const {
    const auto found = durable_.find(at);
    return found != durable_.end() ? found->second : 0;
  }

 private:
  struct Task {
    const std::byte* first;
    std::vector<uint64_t> words;
    std::shared_ptr<FlushJob> job;
  };
  std::deque<Task> tasks_;
  std::map<const std::byte*, uint64_t> durable_;
};

constexpr size_t kSlots = 40;       // more than the ranges that a queue pair remembers
constexpr size_t kSlotBytes = 192;  // so far apart that they stay ranges of their own
constexpr size_t kLong = 40'000;    // moves in parts
constexpr size_t kMostUnderWay = 12;

// A queue pair of one host, connected to another host's or to itself, and what it works on.
struct Lane {
  struct Op {
    uint16_t index = 0;
    bool signaled = false;
    bool read = false;
    bool is_long = false;
    bool extra = false;         // it uses the key that is replaced now and then
    std::byte* sink = nullptr;  // of a READ or atomic
    size_t bytes = 0;
    bool known = false;
    uint64_t answer = 0;                            // what it must bring, if `known`
    std::map<const std::byte*, uint64_t> promised;  // of a READ: durable when it is acknowledged
  };
  bool loopback = false;
  Client* from = nullptr;
  Client* to = nullptr;
  TestCq cq, far_cq, recv;
  TestQp near, far;
  std::byte *slots = nullptr, *counter = nullptr, *far_long = nullptr, *far_own = nullptr;
  std::byte *sources = nullptr, *sinks = nullptr, *near_long = nullptr, *long_sink = nullptr,
            *note = nullptr;
  size_t next_source = 0;
  bool long_under_way = false, far_reads = false;
  uint64_t far_read_value = 0;
  std::deque<Op> under_way;
  std::deque<std::byte*> owed;                   // receives that are not posted yet
  uint64_t count = 0;                            // in `counter`, once what is under way has run
  std::map<const std::byte*, uint64_t> written;  // in this life of the queue pair
};

enum class Mode { kAtOnce, kRandomSteps, kLinked, kLinkedRandomSteps };

class DiskRun {
 public:
  DiskRun(uint64_t seed, Mode mode)
      : linked_(mode == Mode::kLinked || mode == Mode::kLinkedRandomSteps), random_(seed) {
    EngineOptions options;
    options.flusher = &disk_;
    options.now_ns = [this] { return now_; };
    options.test.seed = seed;
    if (mode == Mode::kRandomSteps || mode == Mode::kLinkedRandomSteps) {
      options.test.steps = RandomSteps;
      options.test.defer_delivery = true;
      options.test.retransmit = Pick(2) == 0;
    }
    engines_.push_back(std::make_unique<Engine>(options));
    if (linked_) {
      engines_.push_back(std::make_unique<Engine>(options));
      auto* const a = network_.AddPort();
      auto* const b = network_.AddPort();
      const LinkId ab = network_.Connect(a, b).id, ba = network_.Connect(b, a).id;
      engines_[0]->AttachPort(a);
      engines_[1]->AttachPort(b);
      EXPECT_OK(engines_[0]->AddRoute("b", ab));
      EXPECT_OK(engines_[1]->AddRoute("a", ba));
    }
    a_ = std::make_unique<Client>(*engines_.front(), "a");
    b_ = std::make_unique<Client>(*engines_.back(), "b", Media::kFile, nullptr, 0, -1,
                                  /*waits_for_disk=*/true);
    fails_ = Pick(4) == 0;
    rarely_read_ = Pick(3) == 0;
    for (int i = 0; i < 3; ++i) AddLane(i == 2);
  }

  // Runs the test. Returns what went wrong; empty: nothing.
  std::string Execute() {
    for (int i = 0; i < 1500 && wrong_.empty(); ++i) {
      Step();
      if (Pick(60) == 0) Finish();
      if (Pick(150) == 0) Restart(lanes_[Pick(lanes_.size())]);
      if (Pick(100) == 0) ReplaceKey();
    }
    Finish();
    return wrong_;
  }
  uint64_t reads() const { return reads_; }

 private:
  uint64_t Pick(uint64_t below) { return random_() % below; }

  void AddLane(bool loopback) {
    Lane& l = lanes_.emplace_back();
    const QpSpec spec{.ack_timeout_ms = linked_ ? 64u : 0u,
                      .link_timeout_ms = fails_ ? 20'000u : 1'000'000u};
    l.loopback = loopback;
    l.to = b_.get();
    l.from = loopback ? l.to : a_.get();
    l.cq = l.from->Cq(), l.recv = l.to->Cq();
    if (loopback) {
      l.near = l.from->Qp(l.cq, l.recv, spec);
      l.from->Connect(l.near, l.near);
    } else {
      l.far_cq = l.to->Cq();
      l.near = l.from->Qp(l.cq, l.cq, spec);
      l.far = l.to->Qp(l.far_cq, l.recv, spec);
      l.from->Connect(l.near, l.far);
      l.to->Connect(l.far, l.near);
    }
    l.slots = l.to->Allocate(kSlots * kSlotBytes), l.counter = l.to->Allocate(8);
    l.far_long = l.to->Allocate(kLong), l.far_own = l.to->Allocate(8);
    l.sources = l.from->Allocate(64 * 8), l.sinks = l.from->Allocate(64 * 8);
    l.near_long = l.from->Allocate(kLong), l.long_sink = l.from->Allocate(kLong);
    l.note = l.from->Allocate(8);
  }
  TestQp& Receiver(Lane& l) { return l.loopback ? l.near : l.far; }
  static uint64_t At(const std::byte* at) { return reinterpret_cast<uint64_t>(at); }

  // --- what may happen

  void Step() {
    Lane& l = lanes_[Pick(lanes_.size())];
    switch (Pick(8)) {
      case 0:
      case 1:
        Post(l);
        break;
      case 2:
        if (disk_.waiting() != 0) disk_.Finish(Pick(disk_.waiting()), !fails_ || Pick(8) != 0);
        break;
      case 3:
        if (Pick(4) == 0) now_ += 1'000'000 * (1 + Pick(Pick(4) == 0 ? 800 : 20));
        break;
      case 4:
        if (!linked_) break;
        if (MemoryNetwork::Link& link = *network_.links()[Pick(2)]; !link.up) {
          network_.Open(link);
        } else if (Pick(12) == 0) {
          network_.Reset(link);
        } else {
          network_.Deliver(link, Pick(2) == 0, 1 + Pick(Pick(2) == 0 ? 100'000 : 200));
        }
        break;
      case 5:
        PostReceives(l);
        break;
      default:
        engines_[Pick(engines_.size())]->Run(1 + Pick(8));
    }
    Look(l);
  }

  void Post(Lane& l) {
    if (l.under_way.size() >= kMostUnderWay) return;
    Lane::Op op;
    op.index = l.near.next;
    op.signaled = Pick(2) == 0;
    const auto mode = [&op] { return op.signaled ? CqeMode::kAlways : CqeMode::kOnError; };
    const size_t word = l.next_source++ % 64 * 8;
    std::byte* const slot = l.slots + Pick(kSlots) * kSlotBytes;
    switch (const uint64_t what = Pick(rarely_read_ && Pick(8) != 0 ? 6 : 8)) {
      case 0:
      case 1: {
        Store(l.sources + word, ++number_);
        op.extra = extra_rkey_ != 0 && Pick(3) == 0;
        extra_under_way_ += op.extra;
        l.near.Write(At(slot), op.extra ? extra_rkey_ : l.to->rkey, l.from->At(l.sources + word, 8),
                     mode());
        l.written[slot] = number_;
        break;
      }
      case 2:
        if (l.long_under_way) return;
        op.is_long = l.long_under_way = true;
        ++number_;
        for (size_t i = 0; i < kLong; i += 8) Store(l.near_long + i, number_);
        l.near.Write(At(l.far_long), l.to->rkey, l.from->At(l.near_long, kLong), mode());
        l.written[l.far_long] = number_;
        break;
      case 3:
        op.sink = l.sinks + word, op.bytes = 8, op.known = true, op.answer = l.count;
        l.near.Add(At(l.counter), l.to->rkey, 1, l.from->At(op.sink, 8), mode());
        l.written[l.counter] = ++l.count;
        break;
      case 4:
        Store(l.sources + word, ++number_);
        l.owed.push_back(slot);
        l.near.Send(l.from->At(l.sources + word, 8), mode());
        l.written[slot] = number_;
        if (Pick(4) != 0) PostReceives(l);
        break;
      case 5:
        PostFar(l);
        return;
      default:
        if (what == 6 && !l.long_under_way) {
          op.is_long = l.long_under_way = true;
          PostRead(l, op, l.far_long, l.long_sink, kLong);
        } else {
          PostRead(l, op, slot, l.sinks + word, 8);
        }
    }
    l.under_way.push_back(std::move(op));
    l.near.Ring();
  }
  // Posts a READ that brings what was last written at `what` to `sink`.
  static void PostRead(Lane& l, Lane::Op& op, const std::byte* what, std::byte* sink,
                       size_t bytes) {
    op.signaled = op.read = true;
    op.promised = l.written;
    op.sink = sink, op.bytes = bytes;
    const auto found = l.written.find(what);
    op.known = found != l.written.end();
    if (op.known) op.answer = found->second;
    l.near.Read(At(what), l.to->rkey, l.from->At(sink, bytes), CqeMode::kAlways);
  }
  // The other end READs too, and its answers are written to its disk by the same queue pair.
  void PostFar(Lane& l) {
    if (l.loopback || l.far_reads) return;
    l.far_reads = true;
    Store(l.note, l.far_read_value = ++number_);
    l.far.Read(At(l.note), l.from->rkey, l.to->At(l.far_own, 8), CqeMode::kAlways);
    l.far.Ring();
  }
  void PostReceives(Lane& l) {
    for (; !l.owed.empty(); l.owed.pop_front()) Receiver(l).Receive(l.to->At(l.owed.front(), 8));
  }
  // Makes another key over the same memory. The next READ must still flush what came by the old
  // one.
  void ReplaceKey() {
    if (extra_under_way_ != 0) return;
    if (extra_rkey_ != 0) {
      EXPECT_OK(b_->Destroy(Op::kDestroyMkey, extra_lkey_));
      EXPECT_OK(b_->Destroy(Op::kFreeUmem, extra_umem_));
    }
    const auto reply = engines_.back()->RegisterUmem(
        b_->id(), {At(b_->memory), 0, Client::kArena},
        {b_->memory, Client::kArena, std::shared_ptr<void>(), -1, 0, true});
    ASSERT_OK(reply);
    extra_umem_ = reply->id;
    std::swap(b_->umem, extra_umem_);
    const auto key = b_->Key(b_->memory, Client::kArena, 0xf, Media::kFile);
    std::swap(b_->umem, extra_umem_);
    extra_rkey_ = key.rkey, extra_lkey_ = key.lkey;
  }
  // Resets both ends. Nothing of their old life may run any more.
  void Restart(Lane& l) {
    l.from->Modify(l.near, QpState::kReset);
    if (!l.loopback) l.to->Modify(l.far, QpState::kReset);
    for (TestQp* const qp : {&l.near, &l.far}) {
      if (qp->client == nullptr) continue;
      qp->client->Modify(*qp, QpState::kInit, 0xf);
      qp->next = qp->next_recv = 0;
      qp->SetReceiveCounter(0);
    }
    l.from->Connect(l.near, l.loopback ? l.near : l.far);
    if (!l.loopback) l.to->Connect(l.far, l.near);
    for (TestCq* const cq : {&l.cq, &l.far_cq, &l.recv}) {
      if (cq->ring == nullptr) continue;
      cq->PollAll();
      cq->Release();
    }
    for (const Lane::Op& op : l.under_way) extra_under_way_ -= op.extra;
    l.under_way.clear();
    l.owed.clear();
    l.written.clear();
    l.count = Load(l.counter);
    l.long_under_way = l.far_reads = false;
  }

  // --- what must be

  void Look(Lane& l) {
    for (const auto& c : l.cq.PollAll()) {
      l.cq.Release();
      if (c.status != WcStatus::kSuccess) {
        // The peer of a queue pair in error may only find that nobody answers. A queue pair that is
        // connected to itself is flushed.
        if (!fails_ || (c.status != WcStatus::kRemoteOperation &&
                        c.status != WcStatus::kRetryExceeded && c.status != WcStatus::kFlushed))
          wrong_ = "an operation failed with status " + std::to_string(static_cast<int>(c.status));
        return Restart(l);
      }
      while (!l.under_way.empty()) {
        const Lane::Op op = std::move(l.under_way.front());
        l.under_way.pop_front();
        Ended(l, op);
        if (op.index == c.wqe_counter) break;
        if (op.signaled) wrong_ = "a completion is missing";
      }
    }
    if (l.recv.ring != nullptr) l.recv.PollAll(), l.recv.Release();
    if (l.loopback) return;
    for (const auto& c : l.far_cq.PollAll()) {
      l.far_cq.Release();
      if (c.status != WcStatus::kSuccess) {
        if (!fails_) wrong_ = "the other end's READ failed";
        return Restart(l);
      }
      l.far_reads = false;
      if (Load(l.far_own) != l.far_read_value) wrong_ = "the other end read something else";
      l.written[l.far_own] = l.far_read_value;
    }
  }
  void Ended(Lane& l, const Lane::Op& op) {
    if (op.is_long) l.long_under_way = false;
    extra_under_way_ -= op.extra;
    if (op.known && Load(op.sink) != op.answer)
      wrong_ = "an answer is " + std::to_string(Load(op.sink)) + " instead of " +
               std::to_string(op.answer);
    for (size_t i = 8; op.known && i < op.bytes; i += 8)
      if (Load(op.sink + i) != op.answer) wrong_ = "a long READ brought two things";
    if (!op.read) return;
    ++reads_;
    for (const auto& [at, value] : op.promised) {
      const size_t bytes = at == l.far_long ? kLong : 8;
      for (size_t i = 0; i < bytes; i += 8)
        if (disk_.durable(at + i) < value)
          wrong_ = "a READ is acknowledged, and byte " + std::to_string(at + i - l.to->memory) +
                   " before it is not durable";
    }
  }
  // Runs until everything has ended.
  void Finish() {
    for (int i = 0; i < 20'000 && wrong_.empty(); ++i) {
      bool busy = disk_.waiting() != 0;
      if (linked_) {
        for (auto& link : network_.links())
          if (!link->up) network_.Open(*link);
        if (Pick(2) == 0) network_.DeliverAll();
      }
      for (auto& engine : engines_) engine->Run(50);
      if (disk_.waiting() != 0 && Pick(3) == 0) disk_.Finish(Pick(disk_.waiting()), true);
      if (Pick(20) == 0) now_ += 100'000'000;
      for (Lane& l : lanes_) {
        PostReceives(l);
        if (!l.under_way.empty() && !l.under_way.back().signaled) {
          Lane::Op nop;
          nop.index = l.near.next, nop.signaled = true;
          l.near.Nop(CqeMode::kAlways);
          l.near.Ring();
          l.under_way.push_back(nop);
        }
        Look(l);
        busy |= !l.under_way.empty() || l.far_reads;
      }
      if (!busy) return;
    }
    if (wrong_.empty()) wrong_ = "it does not come to an end";
  }

  const bool linked_;
  bool fails_ = false;        // some flushes fail
  bool rarely_read_ = false;  // a READ has more to flush than a queue pair remembers
  std::mt19937_64 random_;
  uint64_t now_ = 1'000'000'000;
  RandomDisk disk_;
  MemoryNetwork network_;
  std::vector<std::unique_ptr<Engine>> engines_;
  std::unique_ptr<Client> a_, b_;
  std::deque<Lane> lanes_;
  uint64_t number_ = 0, reads_ = 0;
  uint32_t extra_umem_ = 0, extra_rkey_ = 0, extra_lkey_ = 0;
  size_t extra_under_way_ = 0;
  std::string wrong_;
};

std::string NameOf(const ::testing::TestParamInfo<Mode>& mode) {
  constexpr const char* kNames[] = {"at_once", "random_steps", "linked", "linked_random_steps"};
  return kNames[static_cast<size_t>(mode.param)];
}

class EngineDiskRandom : public ::testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, EngineDiskRandom,
                         ::testing::Values(Mode::kAtOnce, Mode::kRandomSteps, Mode::kLinked,
                                           Mode::kLinkedRandomSteps),
                         NameOf);

TEST_P(EngineDiskRandom, WhatAReadCoversIsDurableWhenItIsAcknowledged) {
  uint64_t first = 1, count = 12, reads = 0;
  if (const char* const many = std::getenv("HYPERLOOP_SEEDS"))
    count = std::strtoull(many, nullptr, 0);
  if (const char* const one = std::getenv("HYPERLOOP_SEED"))
    first = std::strtoull(one, nullptr, 0), count = 1;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    DiskRun run(seed, GetParam());
    ASSERT_EQ(run.Execute(), "") << "seed " << seed;
    reads += run.reads();
  }
  EXPECT_GT(reads, 20 * count);
}

}  // namespace
}  // namespace hyperloop::softrnic
