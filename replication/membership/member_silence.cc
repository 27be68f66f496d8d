#include "membership/member_silence.h"

#include <utility>

namespace hyperloop {
namespace {

// A replica that runs answers at once, but for a request that reads its whole region.
constexpr std::chrono::seconds kSuspectAfter{3};

}  // namespace

MemberSilence::MemberSilence(std::chrono::milliseconds timeout, FailureRules rules)
    : timeout_(timeout), rules_(std::move(rules)) {}

MemberSilence::Judgement MemberSilence::Judge(const Configuration& configuration,
                                              const std::vector<std::string>& unanswered,
                                              Clock::time_point now) {
  Judgement out;
  std::map<std::string, Silence> before = std::exchange(silences_, {});
  for (const std::string& address : unanswered) {
    const auto known = before.find(address);
    Silence silence = known == before.end() ? Silence{now} : known->second;
    if (!silence.suspected && now - silence.since >= kSuspectAfter) {
      silence.suspected = true;
      out.suspected.push_back(address);
    }
    if (silence.suspected) out.all_suspected.push_back(address);
    if (now - silence.since >= timeout_) out.to_leave_out.push_back(address);
    silences_[address] = silence;
    before.erase(address);
  }
  for (const auto& [address, silence] : before)
    if (silence.suspected) out.answering.push_back(address);
  const bool all_others_answer = out.to_leave_out.size() == unanswered.size();
  const size_t left = configuration.replicas.size() - out.to_leave_out.size();
  if (timeout_.count() == 0 || !all_others_answer || left < LeastReplicas(configuration, rules_))
    out.to_leave_out.clear();
  return out;
}

}  // namespace hyperloop
