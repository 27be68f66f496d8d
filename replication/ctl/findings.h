// What doctor and agent check find: good, worth a note, or bad, each a sentence; and the files of a
// host that both judge.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hyperloop::ctl {

enum class Verdict : uint8_t { kGood, kNote, kBad };

struct Finding {
  Verdict verdict = Verdict::kGood;
  std::string text;
};

// Prints them. False: one is bad.
bool ShowFindings(const std::vector<Finding>& findings);

// The files of a host that is one of several (docs/operations.md, Hosts alike).
std::vector<Finding> NodeFiles(const std::string& folder);

}  // namespace hyperloop::ctl
