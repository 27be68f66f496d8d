#include "ycsb/phases.h"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "hyperloop/core/mutex.h"

namespace hyperloop::ycsb {

using rocksdb::Status;

namespace {

// Threads that take numbers below `total` one after the other until all are taken, `max_seconds`
// are over (0: never), one thread fails, or `interrupted` is set.
class Crew {
 public:
  using Clock = ClientThread::Clock;
  using Step =
      std::function<Status(ClientThread& client, uint64_t number, Clock::time_point start)>;

  // `rate`: as of PhaseOptions.
  Crew(const char* phase, uint64_t total, double max_seconds, double rate,
       const std::atomic<bool>& interrupted)
      : phase_(phase),
        total_(total),
        max_seconds_(max_seconds),
        rate_(rate),
        interrupted_(interrupted) {}

  const char* phase() const { return phase_; }
  Status Work(std::vector<std::unique_ptr<ClientThread>>& clients, const Step& step,
              const Progress& progress) {
    constexpr auto kShowEvery = std::chrono::milliseconds(250);
    std::vector<std::jthread> threads;
    {
      const MutexLock lock(mutex_);
      running_ = clients.size();
    }
    began_ = Clock::now();
    const auto end = End();
    for (auto& client : clients)
      threads.emplace_back([this, &client, &step] { WorkAlone(*client, step); });
    MutexLock lock(mutex_);
    const auto all_ended = [this]() HL_REQUIRES(mutex_) { return running_ == 0; };
    while (!ended_.wait_until(mutex_, std::min(Clock::now() + kShowEvery, end), all_ended)) {
      if (Clock::now() >= end) break;
      progress(phase_, done(), total_);
    }
    stop_ = true;
    ended_.wait(mutex_, all_ended);
    progress(phase_, total_, total_);
    if (!failure_.ok()) return failure_;
    if (interrupted_) return Status::Aborted("interrupted");
    return Status::OK();
  }

 private:
  Clock::time_point End() const {
    if (max_seconds_ <= 0) return Clock::time_point::max();
    return began_ + std::chrono::nanoseconds(static_cast<int64_t>(max_seconds_ * 1e9));
  }
  uint64_t done() const { return std::min(next_.load(std::memory_order_relaxed), total_); }

  bool ending() const {
    return stop_.load(std::memory_order_relaxed) || interrupted_.load(std::memory_order_relaxed);
  }
  // Returns when operation `number` is to be issued, at that time or, where that is past, at once;
  // earlier if the phase ends.
  Clock::time_point AwaitStart(uint64_t number) const {
    if (rate_ <= 0) return Clock::now();
    constexpr auto kLookEvery = std::chrono::milliseconds(100);
    constexpr double kNever = 1e9;  // seconds that a Clock can still count
    const std::chrono::duration<double> after(
        std::min(static_cast<double>(number) / rate_, kNever));
    const auto start = began_ + std::chrono::duration_cast<Clock::duration>(after);
    for (auto now = Clock::now(); now < start && !ending(); now = Clock::now())
      std::this_thread::sleep_until(std::min(start, now + kLookEvery));
    return start;
  }

  void WorkAlone(ClientThread& client, const Step& step) {
    // The kernel may wake a sleeping thread 50 us late by default, which would be latency here.
    if (rate_ > 0) ::prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    Status status;
    while (status.ok() && !ending()) {
      const uint64_t number = next_.fetch_add(1, std::memory_order_relaxed);
      if (number >= total_) break;
      const Clock::time_point start = AwaitStart(number);
      if (ending()) break;
      status = step(client, number, start);
    }
    const MutexLock lock(mutex_);
    if (!status.ok()) {
      stop_ = true;
      if (failure_.ok()) failure_ = status;
    }
    if (--running_ == 0) ended_.notify_one();
  }

  const char* const phase_;
  const uint64_t total_;
  const double max_seconds_;
  const double rate_;
  const std::atomic<bool>& interrupted_;
  Clock::time_point began_;
  std::atomic<uint64_t> next_{0};
  std::atomic<bool> stop_{false};
  Mutex mutex_;
  ConditionVariable ended_;
  size_t running_ HL_GUARDED_BY(mutex_) = 0;
  Status failure_ HL_GUARDED_BY(mutex_);
};

Status RunCrew(Crew&& crew, std::vector<std::unique_ptr<ClientThread>> clients,
               const Crew::Step& step, const Progress& progress, PhaseReport* report) {
  const auto start = std::chrono::steady_clock::now();
  Status status = crew.Work(clients, step, progress);
  report->seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  report->name = crew.phase();
  report->operations = 0;
  for (const auto& client : clients) {
    for (size_t type = 0; type < kOperationTypes; ++type) {
      report->latencies[type].Merge(client->latencies()[type]);
      report->operations += client->latencies()[type].count();
    }
  }
  return status;
}

std::vector<std::unique_ptr<ClientThread>> MakeClients(rocksdb::DB& db, const PhaseOptions& options,
                                                       InsertSequence& inserts, uint64_t salt) {
  std::vector<std::unique_ptr<ClientThread>> clients;
  for (uint32_t i = 0; i < options.threads; ++i) {
    clients.push_back(std::make_unique<ClientThread>(db, options.sync, options.workload, inserts,
                                                     options.operations,
                                                     FnvHash(options.seed * 2 + salt) + i));
  }
  return clients;
}

}  // namespace

Status LoadPhase(rocksdb::DB& db, const PhaseOptions& options, const std::atomic<bool>& interrupted,
                 const Progress& progress, PhaseReport* report) {
  InsertSequence inserts(options.records);
  return RunCrew(
      Crew("load", options.records, 0, 0, interrupted), MakeClients(db, options, inserts, 0),
      [](ClientThread& client, uint64_t number, auto) { return client.Load(number); }, progress,
      report);
}

Status RunPhase(rocksdb::DB& db, const PhaseOptions& options, InsertSequence& inserts,
                const std::atomic<bool>& interrupted, const Progress& progress,
                PhaseReport* report) {
  std::string value;
  for (const uint64_t record : {uint64_t{0}, options.records - 1}) {
    Status status = db.Get(rocksdb::ReadOptions(), KeyOf(record), &value);
    if (status.IsNotFound()) {
      return Status::NotFound("the database holds fewer than " + std::to_string(options.records) +
                              " records: load them first, or give --records as they were loaded");
    }
    if (!status.ok()) return status;
  }
  return RunCrew(
      Crew("run", options.operations, options.max_seconds, options.rate, interrupted),
      MakeClients(db, options, inserts, 1),
      [](ClientThread& client, uint64_t, auto start) { return client.RunOne(start); }, progress,
      report);
}

}  // namespace hyperloop::ycsb
