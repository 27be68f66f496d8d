// MemberSilence: since when members of a group answer no request.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "membership/configuration.h"
#include "membership/standing.h"

namespace hyperloop {

// Not thread safe.
class MemberSilence {
 public:
  using Clock = std::chrono::steady_clock;

  // All by address.
  struct Judgement {
    std::vector<std::string> suspected;      // since this round: they have been silent for a while
    std::vector<std::string> all_suspected;  // since this round, or an earlier one
    std::vector<std::string> answering;      // were suspected, and have answered in this round
    std::vector<std::string> to_leave_out;
  };

  // `timeout`: StoreOptions::heartbeat_timeout; 0: nobody is left out.
  MemberSilence(std::chrono::milliseconds timeout, FailureRules rules);
  // Judges a round of questions that began at `now`. `unanswered`: the members of `configuration`
  // that did not answer. Those that have been silent for the timeout are to be left out, but only
  // at a time when all others answer, and if the rules let these go on: otherwise a group that
  // commits by its RNICs would stop.
  Judgement Judge(const Configuration& configuration, const std::vector<std::string>& unanswered,
                  Clock::time_point now);
  void Forget() { silences_.clear(); }

 private:
  struct Silence {
    Clock::time_point since{};  // the first round without an answer
    bool suspected = false;
  };

  const std::chrono::milliseconds timeout_;
  const FailureRules rules_;
  std::map<std::string, Silence> silences_;
};

}  // namespace hyperloop
