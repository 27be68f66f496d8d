// Measures the closed-loop cost of group operations, with all nodes in one process. It serves to
// profile the datapath alone; hyperloop-bench measures the whole product.
//
// The engine runs in one of three places. "thread": on a thread of its own. "one": in turn with the
// primary on the primary's thread, which is steadier on a busy machine and gives the sum of both
// sides' work, without the way between two cores. A socket: in the hyperloop-rnicd there.
//
//   group_benchmark [group_size [operations [thread | one | /path/of/rnicd.sock]]]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "group/chain_fixture.h"

namespace {

using hyperloop::Chain;
using hyperloop::Operation;
using Clock = std::chrono::steady_clock;

struct Case {
  const char* name;
  uint64_t size;
  uint32_t window;
  bool copy;
};

uint64_t Total(Chain& chain, uint32_t group_size, const char* name) {
  uint64_t sum = 0;
  const auto add = [&](Chain::Node& node) {
    if (auto counters = node.device->QueryCounters(); counters.ok()) sum += (*counters)[name];
  };
  add(chain.primary());
  for (uint32_t i = 0; i < group_size; ++i) add(chain.replica(i));
  return sum;
}

int Run(const Case& c, uint32_t group_size, uint64_t operations, const std::string& engine) {
  auto made = Chain::Create({.group_size = group_size,
                             .window = c.window,
                             .region_size = 1 << 22,
                             .daemon_socket = engine[0] == '/' ? engine : std::string(),
                             .threaded = engine == "thread",
                             .spin_us = 1000});
  if (!made.ok()) {
    std::fprintf(stderr, "%s\n", made.status().ToString().c_str());
    return 1;
  }
  Chain& chain = **made;
  hyperloop::Group& group = chain.group();
  std::vector<uint32_t> nanoseconds;
  nanoseconds.reserve(operations);
  const uint64_t places = (1 << 21) / c.size, warm = operations / 10;
  uint64_t wqes = 0;
  Clock::time_point begin;
  for (uint64_t n = 0; n < warm + operations; ++n) {
    if (n == warm) {
      if (!group.WaitAll().ok()) return 1;
      wqes = Total(chain, group_size, "wqes_executed");
      begin = Clock::now();
    }
    Operation op;
    op.write = {c.size * (n % places), c.size};
    if (c.copy && n > 0)
      op.copy = {c.size * ((n - 1) % places), (1 << 21) + c.size * (n % places), c.size};
    op.flush = true;
    const Clock::time_point start = Clock::now();
    const auto ticket = group.Submit(op);
    if (!ticket.ok()) return 1;
    if (c.window == 1) {
      if (!group.Wait(*ticket).ok()) return 1;
      if (n >= warm) nanoseconds.push_back(static_cast<uint32_t>((Clock::now() - start).count()));
    }
  }
  if (!group.WaitAll().ok()) return 1;
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  wqes = Total(chain, group_size, "wqes_executed") - wqes;
  std::printf("%-34s %8.0f op/s  %5.1f WQEs/op", c.name, static_cast<double>(operations) / seconds,
              static_cast<double>(wqes) / static_cast<double>(operations));
  if (!nanoseconds.empty()) {
    std::sort(nanoseconds.begin(), nanoseconds.end());
    const auto at = [&](double q) {
      return nanoseconds[static_cast<size_t>(q * static_cast<double>(nanoseconds.size() - 1))];
    };
    std::printf("  p50 %u p95 %u p99 %u p99.9 %u ns", at(.5), at(.95), at(.99), at(.999));
  }
  std::printf("\n");
  std::fflush(stdout);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const uint32_t group_size = argc > 1 ? static_cast<uint32_t>(std::atoi(argv[1])) : 3;
  const uint64_t operations = argc > 2 ? std::strtoull(argv[2], nullptr, 0) : 200'000;
  const std::string engine = argc > 3 ? argv[3] : "thread";
  for (const Case& c : {Case{"gWRITE+flush 128 B, window 1", 128, 1, false},
                        Case{"gWRITE+flush 1 KB, window 1", 1024, 1, false},
                        Case{"gWRITE+flush+copy 1 KB, window 1", 1024, 1, true},
                        Case{"gWRITE+flush 128 B, window 64", 128, 64, false},
                        Case{"gWRITE+flush+copy 1 KB, window 64", 1024, 64, true}}) {
    if (const int failed = Run(c, group_size, operations, engine)) return failed;
  }
  return 0;
}
