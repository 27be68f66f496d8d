// The heartbeat word of a node: a primary that lives changes it every 100 ms, by RDMA or by
// messages. Others only compare two of its values to see life. For people the word is also the time
// of the last change, in microseconds since 1970, by the clock of whoever changed it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <string>

namespace hyperloop {

// The word that follows `last`. It is another one even if the clock stands still or goes back.
inline uint64_t NextHeartbeat(uint64_t last) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::max<uint64_t>(
      last + 1,
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(now).count()));
}

// "2026-11-20T18:26:34Z". Any word has a time, as it may come from a damaged node.
inline std::string HeartbeatTime(uint64_t word) {
  const auto seconds = static_cast<std::time_t>(word / 1'000'000);
  std::tm time{};
  gmtime_r(&seconds, &time);
  char text[64];
  return {text, std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &time)};
}

}  // namespace hyperloop
