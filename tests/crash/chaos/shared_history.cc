#include "crash/chaos/shared_history.h"

#include <algorithm>

namespace hyperloop::chaos {
namespace {

// The operations of the writer's threads that count: reads without an answer do not.
void AddOperations(const Progress& progress,
                   std::vector<RegisterOperation> (&histories)[kSharedKeys]) {
  const uint32_t count = std::min(progress.shared_count.load(), kMaxShared);
  for (uint32_t i = 0; i < count; ++i) {
    const SharedOperation& operation = progress.shared[i];
    const uint64_t begin = operation.begin, end = operation.end;
    if (begin == 0 || (end == 0 && !operation.write)) continue;
    histories[operation.key].push_back(
        {operation.write, operation.value, begin, end == 0 ? kNever : end});
  }
}

}  // namespace

void SharedHistory::Add(const Content& content, Progress& progress) {
  for (uint64_t key = 0; key < kSharedKeys; ++key) {
    const auto found = content.find({0, SharedKey(key)});
    const uint64_t begin = progress.clock.fetch_add(2) + 1;
    found_[key].push_back({false, found == content.end() ? 0 : found->second, begin, begin + 1});
  }
}

std::string SharedHistory::WhyNotLinearizable(const Progress& progress) {
  std::vector<RegisterOperation> histories[kSharedKeys];
  AddOperations(progress, histories);
  judged_ = 0;
  for (uint64_t key = 0; key < kSharedKeys; ++key) {
    histories[key].insert(histories[key].end(), found_[key].begin(), found_[key].end());
    judged_ += histories[key].size();
    const std::string wrong = chaos::WhyNotLinearizable(histories[key]);
    if (!wrong.empty()) return SharedKey(key) + " is not linearizable: " + wrong;
  }
  return "";
}

}  // namespace hyperloop::chaos
