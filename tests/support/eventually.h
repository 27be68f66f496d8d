// Eventually: waits for something that happens on another thread or in another process.
#pragma once

#include <chrono>
#include <thread>

namespace hyperloop::test {

// Waits until `condition` holds. False when it does not for so long that something hangs.
template <class Condition>
bool Eventually(Condition condition) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

}  // namespace hyperloop::test
