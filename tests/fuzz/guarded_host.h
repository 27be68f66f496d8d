// Clients of an engine whose registered memory lies between guards, for fuzz targets.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>

#include "fuzz/fuzz.h"
#include "softrnic/engine/testing/engine_test_util.h"

namespace hyperloop::fuzz {

using namespace softrnic;  // NOLINT(google-build-using-namespace)

// The fixture's own expectations end the process too.
inline void AbortOnFailedExpectation() { GTEST_FLAG_SET(break_on_failure, true); }

inline constexpr size_t kData = 40960;  // longer than a turn moves
inline constexpr size_t kGuard = 1024;
inline constexpr std::byte kGuardByte{0xa5};

struct Arena {
  alignas(4096) std::byte bytes[Client::kArena];
};
// Zeroed as far as it is used (a Host uses no more than 64 KiB), so that an input means the same
// every time.
inline std::byte* FreshArena(int client, size_t used = 64 << 10) {
  static auto* arenas = new Arena[4];
  std::memset(arenas[client].bytes, 0, used);
  return arenas[client].bytes;
}

// A client whose only keys are those of `data` and, if wished for, of its rings.
struct Host {
  // `media` is that of the data; a file waits for the engine's disk.
  Host(Engine& engine, int number, bool ring_key, bool master,
       rnic::Media media = rnic::Media::kRam)
      : client(engine, "h" + std::to_string(number), rnic::Media::kRam, FreshArena(number),
               /*number=*/0, /*fd=*/-1, /*waits_for_disk=*/media == rnic::Media::kFile),
        cq(client.Cq(4, /*ignore_overrun=*/true)),
        small_cq(client.Cq(2)) {
    // The key over the whole arena must not be there to be guessed.
    HL_FUZZ_CHECK(client.Destroy(Op::kDestroyMkey, client.lkey).ok(), "destroy");
    std::byte* const rings = client.Allocate(0);
    QpSpec spec;
    spec.log_sq = 4;
    spec.log_rq = 3;
    spec.flags = master ? kQpMaster | kQpSlaveSend : 0;
    spec.max_read_atomic = 2;
    for (TestQp& qp : qps) qp = client.Qp(cq, small_cq, spec);
    std::byte* const end = client.Allocate(0);
    before = client.Allocate(kGuard);
    data = client.Allocate(kData);
    after = client.Allocate(kGuard);
    std::memset(before, std::to_integer<int>(kGuardByte), kGuard);
    std::memset(after, std::to_integer<int>(kGuardByte), kGuard);
    keys[0] = client.Key(data, kData, 0xf, media);
    keys[1] = client.Key(data, kData / 2, rnic::kRemoteRead, media);
    keys[2] = ring_key ? client.Key(rings, static_cast<size_t>(end - rings), 0xf) : keys[0];
  }
  void CheckGuards() const {
    for (const std::byte* guard : {before, after})
      for (size_t i = 0; i < kGuard; ++i)
        HL_FUZZ_CHECK(guard[i] == kGuardByte, "a byte beside the registered range changed");
  }

  Client client;
  TestCq cq, small_cq;
  std::array<TestQp, 3> qps;  // 0, 1: to the other host; 2: to itself
  std::byte *data, *before, *after;
  std::array<CreateMkeyReply, 3> keys;
};

}  // namespace hyperloop::fuzz
