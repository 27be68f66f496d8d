// Measures round trips of raw verbs between two hosts: the cost of an RNIC's operations by
// themselves, and how it depends on the choice of operation.
//
// In a round trip the client posts `requests` work requests, the server answers with as many once
// it has seen the last of them, and the client waits for those. One thread serves both ends in
// turn, so that two processors are enough: one for the thread, one for the software RNIC. A reading
// round trip needs no server: the client writes, then reads the same bytes back.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>

#include "hyperloop/core/rnic.h"
#include "primitives/case.h"

namespace hyperloop::bench {

// What is posted, and how the other end notices:
enum class Verb {
  kWrite,       // WRITE; polls the last byte in memory
  kSend,        // SEND; a receive completes
  kWriteImm,    // WRITE with immediate; a receive completes
  kRead,        // WRITE, then READ of the same bytes; the READ completes
  kReadMemory,  // the same; polls the last byte that the READ brings
};
// "write", "send", "write-imm", "read", "read-memory".
Result<Verb> ParseVerb(std::string_view name);
std::string_view VerbName(Verb verb);

struct RawCase {
  Verb verb = Verb::kWrite;
  uint32_t size = 64;               // bytes of each request
  bool inline_data = false;         // the bytes travel in the request (READs have none)
  uint32_t signal_every = 1;        // each N-th request makes a completion at its sender
  uint32_t requests = 1;            // each way
  bool chained = false;             // posted in one call with one doorbell; else each by its own
  WaitMode wait = WaitMode::kPoll;  // kEvent: sleep until a completion; not where memory is polled
  uint64_t number = 100000;         // round trips
  uint64_t warmup = 10000;
  double max_seconds = 0;  // 0: no end
};

class RawVerbs {
 public:
  // Devices outlive it. kInvalidArgument: a combination that does not exist; kNotSupported: beyond
  // the device; both say which.
  static Result<std::unique_ptr<RawVerbs>> Create(rnic::Device& client, rnic::Device& server,
                                                  const RawCase& load,
                                                  const std::atomic<bool>& interrupted,
                                                  Progress progress);
  ~RawVerbs();
  // Includes the warm-up.
  Status Prepare();
  // kAborted: interrupted. kCorruption: the received bytes are not those that were sent.
  Result<Measurement> Run();

 private:
  class End;
  RawVerbs(const RawCase& load, const std::atomic<bool>& interrupted, Progress progress);
  Result<Measurement> Loop(uint64_t number, double seconds, bool report);
  Status RoundTrip();
  Status ReadRoundTrip();

  const RawCase case_;
  const std::atomic<bool>& interrupted_;
  const Progress progress_;
  uint64_t round_ = 0;
  std::unique_ptr<End> client_, server_;
};

}  // namespace hyperloop::bench
