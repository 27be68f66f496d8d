#include "primary/asking.h"

#include <signal.h>

#include <algorithm>
#include <exception>
#include <system_error>
#include <thread>

#include "common/group_error.h"
#include "control/stop.h"
#include "hyperloop/core/mutex.h"

namespace hyperloop {
namespace {

using Clock = std::chrono::steady_clock;

// Signals are for the host program's own threads: those that are made meanwhile get none.
class WithoutSignals {
 public:
  WithoutSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~WithoutSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  WithoutSignals(const WithoutSignals&) = delete;
  WithoutSignals& operator=(const WithoutSignals&) = delete;

 private:
  sigset_t before_{};
};

class Threads {
 public:
  ~Threads() { Join(); }
  // False: no thread can be made.
  bool Start(std::function<void()> work) {
    const WithoutSignals without;
    try {
      threads_.emplace_back(std::move(work));
      return true;
    } catch (const std::system_error&) {
      return false;
    }
  }
  void Join() {
    for (std::thread& each : threads_) each.join();
    threads_.clear();
  }

 private:
  std::vector<std::thread> threads_;
};

// One question to several replicas, under way.
class Question {
 public:
  Question(std::span<ReplicaHandle* const> replicas, const AnswerTimes& times, const Uuid* owner)
      : replicas_(replicas),
        times_(times),
        owner_(owner),
        answers_(replicas.size()),
        stops_(replicas.size()) {}

  void Ask(size_t i) {
    ReplicaHandle& replica = *replicas_[i];
    replica.SetStop(stops_[i].fd());
    Result<control::HelloReplyT> answer = replica.Hello(times_.most, owner_);
    replica.SetStop(-1);
    const MutexLock lock(mutex_);
    if (answer.ok()) {
      ++answered_;
      const auto& absent = answer->absent_replicas;
      left_out_.insert(left_out_.end(), absent.begin(), absent.end());
    }
    answers_[i] = std::move(answer);
    ++ended_;
    moved_.notify_all();
  }

  // Ends the question to those that use up their time.
  void Watch() {
    MutexLock lock(mutex_);
    const auto all = [this]() HL_REQUIRES(mutex_) { return ended_ == replicas_.size(); };
    moved_.wait(mutex_, [&]() HL_REQUIRES(mutex_) { return all() || answered_ >= times_.enough; });
    const auto enough = Clock::now();
    for (const bool silent : {times_.silent <= times_.others, times_.silent > times_.others}) {
      const auto until = enough + (silent ? times_.silent : times_.others);
      if (moved_.wait_until(mutex_, until, all)) return;
      for (size_t i = 0; i < replicas_.size(); ++i)
        if (IsSilentLocked(*replicas_[i]) == silent) stops_[i].Set();
    }
    moved_.wait(mutex_, all);
  }

  // To be called once all calls have returned.
  std::vector<Result<control::HelloReplyT>> Take() {
    std::vector<Result<control::HelloReplyT>> out;
    for (size_t i = 0; i < replicas_.size(); ++i) {
      Result<control::HelloReplyT>& answer = *answers_[i];
      const bool had_no_time = stops_[i].set() && times_.others.count() == 0;
      if (!had_no_time) replicas_[i]->SetSilent(IsGroupError(answer.status().code()));
      out.push_back(std::move(answer));
    }
    return out;
  }

 private:
  bool IsSilentLocked(const ReplicaHandle& replica) const HL_REQUIRES(mutex_) {
    return replica.silent() || std::ranges::count(left_out_, replica.address()) != 0;
  }

  const std::span<ReplicaHandle* const> replicas_;
  const AnswerTimes times_;
  const Uuid* const owner_;

  Mutex mutex_;  // guards what follows
  ConditionVariable moved_;
  std::vector<std::optional<Result<control::HelloReplyT>>> answers_;
  std::vector<control::Stop> stops_;
  std::vector<std::string> left_out_ HL_GUARDED_BY(mutex_);  // as those that answered say
  size_t answered_ HL_GUARDED_BY(mutex_) = 0;
  size_t ended_ HL_GUARDED_BY(mutex_) = 0;
};

}  // namespace

void CallAtOnce(size_t count, const std::function<void(size_t)>& call) {
  if (count == 0) return;
  std::vector<std::exception_ptr> thrown(count);
  const auto guarded = [&](size_t i) {
    try {
      call(i);
    } catch (...) {
      thrown[i] = std::current_exception();
    }
  };
  Threads threads;
  std::vector<size_t> here;
  for (size_t i = 0; i + 1 < count; ++i)
    if (!threads.Start([&guarded, i] { guarded(i); })) here.push_back(i);
  here.push_back(count - 1);
  for (const size_t i : here) guarded(i);
  threads.Join();
  for (const std::exception_ptr& each : thrown)
    if (each != nullptr) std::rethrow_exception(each);
}

Status AllAtOnce(size_t count, const std::function<Status(size_t)>& call) {
  for (Status& each : AtOnce(count, call)) HL_RETURN_IF_ERROR(std::move(each));
  return {};
}

// A replica that runs answers at once. How long the others are waited for grows with
// connect_timeout, for networks and machines that are slow.
AnswerTimes LookTimes(const StoreOptions& options, bool bears_missing) {
  const auto most = options.connect_timeout;
  if (!bears_missing) return {most, most, most, SIZE_MAX};
  const auto asked =
      static_cast<size_t>(std::ranges::count_if(options.replicas, [&](const std::string& each) {
        return std::ranges::count(options.given_up, each) == 0;
      }));
  return {most, most / 10, most / 20, asked / 2 + 1};
}

std::vector<Result<control::HelloReplyT>> HelloAll(std::span<ReplicaHandle* const> replicas,
                                                   const AnswerTimes& times, const Uuid* owner) {
  Question question(replicas, times, owner);
  CallAtOnce(replicas.size() + 1,
             [&](size_t i) { i < replicas.size() ? question.Ask(i) : question.Watch(); });
  return question.Take();
}

}  // namespace hyperloop
