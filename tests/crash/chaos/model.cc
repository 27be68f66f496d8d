#include "crash/chaos/model.h"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace hyperloop::chaos {

Content ReadDump(const std::string& path, std::string* torn) {
  Content content;
  std::ifstream in(path);
  uint32_t family = 0;
  std::string key;
  uint64_t number = 0;
  while (in >> family >> key >> number) {
    if (number == 0 && torn->empty()) *torn = std::string(kFamilies[family]) + "/" + key;
    content[{family, key}] = number;
  }
  return content;
}

void Model::Apply(uint32_t thread, uint64_t number, bool acknowledged) {
  const Operation operation = OperationOf(thread, number);
  const bool all =
      operation.kind == Operation::Kind::kBatch || operation.kind == Operation::Kind::kBatchDelete;
  const bool deletes =
      operation.kind == Operation::Kind::kDelete || operation.kind == Operation::Kind::kBatchDelete;
  for (uint32_t family = 0; family < kFamilies.size(); ++family) {
    if (!all && family != operation.family) continue;
    std::vector<uint64_t>& values = possible_[{family, operation.key}];
    if (acknowledged) {
      values.clear();
    } else if (values.empty()) {
      values.push_back(0);
    }
    values.push_back(deletes ? 0 : number);
  }
}

void Model::Follow(const Progress& progress) {
  for (uint32_t thread = 0; thread < kThreads; ++thread) {
    for (uint64_t& n = next_[thread]; n < kMaxNumber; ++n) {
      const Outcome outcome = progress.outcomes[thread][n].load();
      if (outcome == Outcome::kNone) break;
      const bool ok = outcome == Outcome::kAcknowledged;
      ++(ok ? acknowledged_ : undecided_);
      if (!only_sync_acknowledges_) {
        Apply(thread, n, ok);
        continue;
      }
      std::vector<std::pair<uint64_t, bool>>& unsynced = unsynced_[thread];
      unsynced.emplace_back(n, ok);
      if (!ok || !OperationOf(thread, n).sync) {
        Apply(thread, n, false);
        continue;
      }
      for (const auto& [number, returned] : unsynced) Apply(thread, number, returned);
      unsynced.clear();
    }
  }
}

std::string Model::Check(const Content& content) const {
  std::string wrong;
  uint64_t count = 0;
  const auto note = [&](const std::string& what) {
    if (count++ < 5) wrong += what + "; ";
  };
  for (const auto& [where, values] : possible_) {
    const auto found = content.find(where);
    const uint64_t number = found == content.end() ? 0 : found->second;
    const std::string name = std::string(kFamilies[where.first]) + "/" + where.second;
    if (std::find(values.begin(), values.end(), number) == values.end()) {
      std::ostringstream text;
      text << name << " has " << number << ", possible are";
      for (const uint64_t value : values) text << " " << value;
      note(text.str() + " (0: not there)");
    }
    if (where.second[0] != 'b' || where.first == 0) continue;
    const auto first = content.find({0, where.second});
    if (number != (first == content.end() ? 0 : first->second))
      note("the batch of " + where.second + " is there in part");
  }
  for (const auto& [where, number] : content) {
    if (where.second[0] != 's' && !possible_.contains(where))
      note(where.second + " was never written");
  }
  if (count == 0) return "";
  return std::to_string(count) + " keys are wrong: " + wrong;
}

void Model::Settle(const Content& content) {
  for (auto& unsynced : unsynced_) unsynced.clear();
  for (auto& [where, values] : possible_) {
    const auto found = content.find(where);
    values.assign(1, found == content.end() ? 0 : found->second);
  }
}

}  // namespace hyperloop::chaos
