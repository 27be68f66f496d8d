// Measures how one client affects another's latency, through a running hyperloop-rnicd:
//   attack_benchmark SOCKET [ATTACK]…
// For each attack a quiet client makes 8 B loopback WRITEs, alone and beside another process that
// attacks, in bursts with pauses in which that process gets the processor. Prints percentiles in
// nanoseconds and the ratio of the two p99. Give the daemon a --spin-us longer than the pauses and
// the last processor (its default), and this program the right to SCHED_FIFO; otherwise it measures
// the kernel's scheduler too.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include "hyperloop/core/softrnic.h"

namespace hyperloop::softrnic {
namespace {

constexpr int kRounds = 5;
constexpr int kBursts = 60;
constexpr int kOpsPerBurst = 20;
constexpr uint32_t kAllAccess =
    rnic::kLocalWrite | rnic::kRemoteWrite | rnic::kRemoteRead | rnic::kRemoteAtomic;

// A client with memory of a file that may be sparse, and queue pairs connected to themselves.
struct Party {
  std::unique_ptr<rnic::Device> device;
  std::unique_ptr<rnic::ProtectionDomain> pd;
  std::byte* memory = nullptr;
  std::unique_ptr<rnic::MemoryRegion> mr;
  std::unique_ptr<rnic::CompletionQueue> cq;
  std::vector<std::unique_ptr<rnic::QueuePair>> qps;

  Status Open(const std::string& socket, const char* host, size_t bytes,
              rnic::Media media = rnic::Media::kRam) {
    HL_ASSIGN_OR_RETURN(device, OpenDaemonDevice({socket, host}));
    HL_ASSIGN_OR_RETURN(pd, device->AllocatePd());
    const int fd = memfd_create(host, MFD_ALLOW_SEALING | MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0)
      return FromErrno(errno, "memory for the benchmark");
    void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) return FromErrno(errno, "mapping memory for the benchmark");
    memory = static_cast<std::byte*>(at);
    HL_ASSIGN_OR_RETURN(mr, pd->Register(memory, bytes, kAllAccess, {fd, 0, media}));
    HL_ASSIGN_OR_RETURN(cq, device->CreateCq({.depth = 1024, .ignore_overrun = true}));
    return {};
  }
  Status AddQueuePairs(int number, uint32_t blocks, uint32_t receives = 0, bool connect = true) {
    for (int i = 0; i < number; ++i) {
      HL_ASSIGN_OR_RETURN(auto qp, pd->CreateQueuePair({.send_cq = cq.get(),
                                                        .recv_cq = cq.get(),
                                                        .send_wqebbs = blocks,
                                                        .recv_wqes = receives,
                                                        .cross_channel = true,
                                                        .managed_send = true}));
      if (connect) HL_RETURN_IF_ERROR(qp->Connect(qp->address()));
      qps.push_back(std::move(qp));
    }
    return {};
  }
  rnic::Sge At(size_t offset, uint32_t length) const {
    return {mr->addr() + offset, length, mr->lkey()};
  }
};

// One attack, in a process of its own: Prepare once, Arm before each round.
struct Attack {
  Party party;
  virtual ~Attack() = default;
  virtual Status Prepare(const std::string& socket) = 0;
  virtual Status Arm() { return {}; }
  // Called repeatedly while the round lasts; false: the attack has nothing to do.
  virtual bool Go() { return false; }

  // Fills every ring with the requests that `request` makes from (queue pair, number), then starts
  // them all.
  template <class F>
  Status Post(uint32_t each, F&& request) {
    for (size_t i = 0; i < party.qps.size(); ++i) {
      rnic::QueuePair& qp = *party.qps[i];
      qp.Retire(static_cast<uint16_t>(posted_ - 1));
      for (uint32_t n = 0; n < each; ++n) {
        rnic::Sge sge;
        rnic::SendRequest one = request(i, n, &sge);
        if (sge.length != 0) one.sges = {&sge, 1};
        HL_RETURN_IF_ERROR(qp.Post({&one, 1}));
      }
    }
    posted_ += each;
    for (auto& qp : party.qps) HL_RETURN_IF_ERROR(qp->RingDoorbell(static_cast<uint16_t>(posted_)));
    return {};
  }
  uint32_t posted_ = 0;
};

struct QueuePairs : Attack {
  Status Prepare(const std::string& socket) override {
    HL_RETURN_IF_ERROR(party.Open(socket, "attacker", 4096));
    return party.AddQueuePairs(500, 1024);
  }
  Status Arm() override {
    return Post(1000, [](size_t, uint32_t, rnic::Sge*) { return rnic::SendRequest{}; });
  }
};

struct LongWrites : Attack {
  explicit LongWrites(size_t shift) : shift_(shift) {}
  Status Prepare(const std::string& socket) override {
    HL_RETURN_IF_ERROR(party.Open(socket, "attacker", 4 << 20));
    return party.AddQueuePairs(16, 64);
  }
  Status Arm() override {
    return Post(32, [this](size_t, uint32_t, rnic::Sge* sge) {
      *sge = party.At(0, 1 << 20);
      return rnic::SendRequest{.opcode = rnic::Opcode::kWrite,
                               .remote_addr = party.mr->addr() + shift_,
                               .rkey = party.mr->rkey()};
    });
  }
  const size_t shift_;
};

struct Broken : Attack {
  Status Prepare(const std::string& socket) override {
    HL_RETURN_IF_ERROR(party.Open(socket, "attacker", 4096));
    HL_RETURN_IF_ERROR(party.AddQueuePairs(500, 64, 16));
    // A request that names no key puts each queue pair into ERROR.
    return Post(1, [](size_t, uint32_t, rnic::Sge* sge) {
      *sge = {0, 8, 0};
      return rnic::SendRequest{.opcode = rnic::Opcode::kWrite};
    });
  }
};

struct Waiting : Attack {
  Status Prepare(const std::string& socket) override {
    HL_RETURN_IF_ERROR(party.Open(socket, "attacker", 4096));
    HL_RETURN_IF_ERROR(party.AddQueuePairs(500, 64, 16));
    return Post(1, [this](size_t, uint32_t, rnic::Sge* sge) {
      *sge = party.At(0, 8);
      return rnic::SendRequest{.opcode = rnic::Opcode::kSend};
    });
  }
};

struct ScatteredPmem : Attack {
  static constexpr uint64_t kBytes = 1ull << 30;
  Status Prepare(const std::string& socket) override {
    HL_RETURN_IF_ERROR(party.Open(socket, "attacker", kBytes, rnic::Media::kPmem));
    return party.AddQueuePairs(64, 1024);
  }
  Status Arm() override {
    return Post(990, [this](size_t i, uint32_t n, rnic::Sge* sge) {
      *sge = party.At(0, 8);
      const uint64_t page = (n * 7919ull + i) % 256;
      rnic::SendRequest one{.opcode = n % 30 == 29 ? rnic::Opcode::kRead : rnic::Opcode::kWrite,
                            .remote_addr = party.mr->addr() + page * (kBytes / 256),
                            .rkey = party.mr->rkey()};
      return one;
    });
  }
};

// Arms channels whose events are due at once, again and again.
struct Events : Attack {
  Status Prepare(const std::string& socket) override {
    HL_RETURN_IF_ERROR(party.Open(socket, "attacker", 4096));
    for (int i = 0; i < 250; ++i) {
      HL_ASSIGN_OR_RETURN(auto cq, party.device->CreateCq({.depth = 16, .events = true}));
      HL_ASSIGN_OR_RETURN(auto qp, party.pd->CreateQueuePair(
                                       {.send_cq = cq.get(), .recv_cq = cq.get(), .recv_wqes = 0}));
      HL_RETURN_IF_ERROR(qp->Connect(qp->address()));
      const rnic::Sge from = party.At(0, 8);
      const rnic::SendRequest request{.opcode = rnic::Opcode::kWrite,
                                      .signaled = true,
                                      .sges = {&from, 1},
                                      .remote_addr = party.mr->addr() + 2048,
                                      .rkey = party.mr->rkey()};
      HL_RETURN_IF_ERROR(qp->Post({&request, 1}));
      channels_.push_back(std::move(cq));
      party.qps.push_back(std::move(qp));
    }
    return {};
  }
  ~Events() override { party.qps.clear(); }
  bool Go() override {
    for (auto& each : channels_)
      if (!each->RequestNotify(false).ok()) return false;
    return true;
  }
  std::vector<std::unique_ptr<rnic::CompletionQueue>> channels_;
};

// Each completion looks at all WAITs on its queue.
struct Waits : Attack {
  Status Prepare(const std::string& socket) override {
    HL_RETURN_IF_ERROR(party.Open(socket, "attacker", 4096));
    HL_RETURN_IF_ERROR(party.AddQueuePairs(400, 64));
    const rnic::SendRequest wait{
        .opcode = rnic::Opcode::kWait, .object = party.cq->cqn(), .index = 0x700000};
    for (auto& qp : party.qps) {
      HL_RETURN_IF_ERROR(qp->Post({&wait, 1}));
      HL_RETURN_IF_ERROR(qp->RingDoorbell(1));
    }
    party.qps.swap(waiting_);
    return party.AddQueuePairs(10, 1024);
  }
  ~Waits() override { waiting_.clear(); }
  Status Arm() override {
    return Post(1000,
                [](size_t, uint32_t, rnic::Sge*) { return rnic::SendRequest{.signaled = true}; });
  }
  std::vector<std::unique_ptr<rnic::QueuePair>> waiting_;
};

// Makes and destroys the objects that cost the engine most.
struct Commands : Attack {
  Status Prepare(const std::string& socket) override {
    return party.Open(socket, "attacker", 4096);
  }
  bool Go() override {
    auto cq = party.device->CreateCq({.depth = 1 << 20, .ignore_overrun = true});
    return cq.ok() && party.device->QueryCounters().ok();
  }
};

std::unique_ptr<Attack> Make(const std::string& name) {
  if (name == "queue-pairs") return std::make_unique<QueuePairs>();
  if (name == "long-writes") return std::make_unique<LongWrites>(2 << 20);
  if (name == "overlapping-writes") return std::make_unique<LongWrites>(4096);
  if (name == "queue-pairs-in-error") return std::make_unique<Broken>();
  if (name == "receives-missing") return std::make_unique<Waiting>();
  if (name == "scattered-pmem") return std::make_unique<ScatteredPmem>();
  if (name == "events") return std::make_unique<Events>();
  if (name == "waits") return std::make_unique<Waits>();
  if (name == "commands") return std::make_unique<Commands>();
  return nullptr;
}
constexpr const char* kAttacks[] = {"queue-pairs",
                                    "long-writes",
                                    "overlapping-writes",
                                    "queue-pairs-in-error",
                                    "receives-missing",
                                    "scattered-pmem",
                                    "events",
                                    "waits",
                                    "commands"};

// The attacker's process. A byte that the quiet client sends through the pipe begins or ends a
// round; the answer comes when that is done.
[[noreturn]] void RunAttack(const std::string& socket, const std::string& name, int from, int to) {
  const auto attack = Make(name);
  char byte = 0;
  const auto answer = [&](const Status& status) {
    if (!status.ok()) std::fprintf(stderr, "%s: %s\n", name.c_str(), status.ToString().c_str());
    byte = status.ok() ? 1 : 0;
    if (write(to, &byte, 1) != 1 || byte == 0) _exit(1);
  };
  answer(attack->Prepare(socket));
  const sched_param normal{};
  sched_setscheduler(0, SCHED_OTHER, &normal);  // the quiet one goes first
  for (;;) {
    if (read(from, &byte, 1) != 1) _exit(0);
    answer(attack->Arm());
    fcntl(from, F_SETFL, O_NONBLOCK);
    ssize_t got;
    while ((got = read(from, &byte, 1)) < 0)
      if (!attack->Go()) usleep(1000);
    if (got != 1) _exit(0);
    fcntl(from, F_SETFL, 0);
    answer({});
  }
}

class Attacker {
 public:
  Attacker(const std::string& socket, const std::string& name) {
    int there[2], back[2];
    if (pipe(there) != 0 || pipe(back) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) {
      close(there[1]), close(back[0]);
      RunAttack(socket, name, there[0], back[1]);
    }
    close(there[0]), close(back[1]);
    to_ = there[1], from_ = back[0];
  }
  ~Attacker() {
    close(to_), close(from_);
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  bool Await() const {
    char byte = 0;
    return read(from_, &byte, 1) == 1 && byte == 1;
  }
  bool Tell() const {
    const char byte = 1;
    return write(to_, &byte, 1) == 1 && Await();
  }

 private:
  pid_t pid_ = -1;
  int to_ = -1, from_ = -1;
};

class Quiet {
 public:
  Status Open(const std::string& socket) {
    HL_RETURN_IF_ERROR(party_.Open(socket, "quiet", 4096));
    HL_ASSIGN_OR_RETURN(cq_, party_.device->CreateCq({}));
    HL_ASSIGN_OR_RETURN(qp_, party_.pd->CreateQueuePair(
                                 {.send_cq = cq_.get(), .recv_cq = cq_.get(), .recv_wqes = 0}));
    return qp_->Connect(qp_->address());
  }
  Status Round(std::vector<uint64_t>* times) {
    for (int burst = 0; burst < kBursts; ++burst) {
      usleep(100);
      for (int i = 0; i < kOpsPerBurst; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        HL_RETURN_IF_ERROR(One());
        times->push_back(static_cast<uint64_t>((std::chrono::steady_clock::now() - begin).count()));
      }
    }
    return {};
  }

 private:
  Status One() {
    const rnic::Sge from = party_.At(0, 8);
    const rnic::SendRequest request{.opcode = rnic::Opcode::kWrite,
                                    .signaled = true,
                                    .sges = {&from, 1},
                                    .remote_addr = party_.mr->addr() + 2048,
                                    .rkey = party_.mr->rkey()};
    HL_RETURN_IF_ERROR(qp_->Post({&request, 1}));
    rnic::Completion completion;
    for (;;) {
      HL_ASSIGN_OR_RETURN(const size_t n, cq_->Poll({&completion, 1}));
      if (n != 0) break;
    }
    return completion.status == rnic::WcStatus::kSuccess
               ? Status()
               : Aborted(std::string(rnic::WcStatusName(completion.status)));
  }
  Party party_;
  std::unique_ptr<rnic::CompletionQueue> cq_;
  std::unique_ptr<rnic::QueuePair> qp_;
};

struct Percentiles {
  uint64_t p50, p99, max;
};
Percentiles Of(std::vector<uint64_t> times) {
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times[times.size() * 99 / 100], times.back()};
}

Status Measure(const std::string& socket, const std::string& name) {
  Quiet quiet;
  HL_RETURN_IF_ERROR(quiet.Open(socket));
  std::vector<uint64_t> alone, beside;
  HL_RETURN_IF_ERROR(quiet.Round(&beside));  // warms up
  beside.clear();
  for (int i = 0; i < kRounds; ++i) HL_RETURN_IF_ERROR(quiet.Round(&alone));
  {
    const Attacker attacker(socket, name);
    if (!attacker.Await()) return Aborted("the attack " + name + " could not be prepared");
    for (int i = 0; i < kRounds; ++i) {
      if (!attacker.Tell()) return Aborted("the attack " + name + " failed");
      HL_RETURN_IF_ERROR(quiet.Round(&beside));
      if (!attacker.Tell()) return Aborted("the attack " + name + " failed");
    }
  }
  const Percentiles a = Of(alone), b = Of(beside);
  std::printf(
      "%-22s alone p50 %lu p99 %lu max %lu  beside it p50 %lu p99 %lu max %lu ns  p99 x %.1f\n",
      name.c_str(), a.p50, a.p99, a.max, b.p50, b.p99, b.max,
      static_cast<double>(b.p99) / static_cast<double>(a.p99));
  return {};
}

}  // namespace
}  // namespace hyperloop::softrnic

int main(int argc, char** argv) {
  using namespace hyperloop::softrnic;
  if (argc < 2) {
    std::fprintf(stderr, "usage: attack_benchmark SOCKET [ATTACK]...\nattacks:");
    for (const char* name : kAttacks) std::fprintf(stderr, " %s", name);
    std::fprintf(stderr, "\n");
    return 2;
  }
  // The daemon's data thread has the last processor; a process of SCHED_FIFO would keep it off.
  cpu_set_t others;
  sched_getaffinity(0, sizeof(others), &others);
  int last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(last, &others)) --last;
  CPU_CLR(last, &others);
  if (CPU_COUNT(&others) != 0) sched_setaffinity(0, sizeof(others), &others);
  const sched_param param{.sched_priority = 1};
  if (sched_setscheduler(0, SCHED_FIFO, &param) != 0)
    std::fprintf(stderr, "no right to SCHED_FIFO: the figures include the scheduler's doings\n");
  std::vector<std::string> names(argv + 2, argv + argc);
  if (names.empty()) names.assign(std::begin(kAttacks), std::end(kAttacks));
  for (const std::string& name : names) {
    if (Make(name) == nullptr) {
      std::fprintf(stderr, "no attack %s\n", name.c_str());
      return 2;
    }
    const hyperloop::Status status = Measure(argv[1], name);
    if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
    if (!status.ok()) return 1;
  }
  return 0;
}
