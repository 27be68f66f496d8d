// A TCP proxy inside a test. It is the network between two daemons, and can be slow, cut, healed,
// and reset at a chosen byte.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "hyperloop/core/unique_fd.h"

namespace hyperloop::test {

class TcpProxy {
 public:
  // Listens at a free port of the numeric IPv4 address `listen`.
  explicit TcpProxy(const std::string& listen = "127.0.0.1");
  ~TcpProxy();
  TcpProxy(const TcpProxy&) = delete;
  TcpProxy& operator=(const TcpProxy&) = delete;

  // "127.0.0.1:PORT".
  const std::string& address() const { return address_; }
  // Sets where connections go from now on; until then they are accepted and closed.
  void SetTarget(const std::string& address);

  // Each byte arrives this much later.
  void SetDelay(std::chrono::microseconds delay) { delay_us_ = delay.count(); }
  // While the proxy is cut no bytes move, and no connection reports that.
  void SetCut(bool cut) { cut_ = cut; }
  // All connections are reset once this many more bytes have passed, both directions together.
  void ResetAfter(uint64_t bytes);
  bool reset_pending() const { return reset_at_ != UINT64_MAX; }
  uint64_t resets() const { return resets_; }
  uint64_t accepted() const { return accepted_; }  // connections, so far
  uint64_t passed() const { return passed_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Chunk {
    Clock::time_point due;
    std::vector<char> bytes;
  };
  struct Way {
    std::deque<Chunk> chunks;
    bool ended = false;
  };
  struct Pair {
    int sockets[2] = {-1, -1};  // the caller's, the target's
    Way ways[2];                // from sockets[i] to the other
  };

  void Run();
  void Accept();
  bool Move(Pair& pair, int from, Clock::time_point now);
  void ResetAll();
  static void Reset(Pair& pair);

  std::string address_;
  UniqueFd listener_;
  std::mutex mutex_;
  std::string target_;
  std::vector<std::unique_ptr<Pair>> pairs_;
  std::atomic<int64_t> delay_us_{0};
  std::atomic<bool> cut_{false}, stop_{false};
  std::atomic<uint64_t> passed_{0}, reset_at_{UINT64_MAX}, resets_{0}, accepted_{0};
  std::thread thread_;
};

}  // namespace hyperloop::test
