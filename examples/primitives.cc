// The group primitives from C++: a primary and two replicas, each an emulated host of one
// hyperloop-rnicd. In production each is a process of its own, and MemberInfo and PrimaryInfo
// travel by any channel. Here one process is all three, and only reads a replica's memory.
//
//   SOCKET=$(mktemp -d)/rnicd.sock
//   build/bin/hyperloop-rnicd --socket $SOCKET &
//   build/examples/primitives_cc $SOCKET
//
// Exit status 0 if every primitive did what HyperLoop specifies.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hyperloop/core/group.h"
#include "hyperloop/core/softrnic.h"

namespace {

using namespace hyperloop;  // NOLINT(google-build-using-namespace)

constexpr size_t kReplicas = 2;
constexpr size_t kRegionBytes = 64 << 10;
constexpr std::string_view kText = "written once, by the primary";

void Check(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}
template <class T>
T Must(Result<T> result) {
  Check(result.status());
  return std::move(result).value();
}
void Expect(bool holds, const char* what) {
  std::printf("  %-60s %s\n", what, holds ? "yes" : "NO");
  if (!holds) std::exit(1);
}

struct Node {
  std::unique_ptr<rnic::Device> device;
  std::unique_ptr<rnic::ProtectionDomain> pd;
  std::unique_ptr<rnic::Buffer> memory;
  std::unique_ptr<rnic::MemoryRegion> region;
  std::unique_ptr<Member> member;  // of a replica; goes first

  Node(const std::string& socket, const std::string& host)
      : device(Must(softrnic::OpenDaemonDevice({socket, host}))),
        pd(Must(device->AllocatePd())),
        memory(Must(device->AllocateBuffer(kRegionBytes))),
        region(Must(pd->Register(
            memory->data(), kRegionBytes,
            rnic::kLocalWrite | rnic::kRemoteWrite | rnic::kRemoteRead | rnic::kRemoteAtomic,
            {}))) {}
  uint64_t& word(size_t offset) { return *reinterpret_cast<uint64_t*>(memory->data() + offset); }
  std::string_view text(size_t offset, size_t size) const {
    return {reinterpret_cast<const char*>(memory->data()) + offset, size};
  }
};

// Here one process has the whole group.
struct Cluster {
  Node primary;
  std::vector<std::unique_ptr<Node>> replicas;
  std::unique_ptr<Group> group;  // goes first

  // Makes each node's end, then passes each node's info to the others.
  explicit Cluster(const std::string& socket) : primary(socket, "primary") {
    std::vector<MemberInfo> chain;
    for (uint32_t i = 0; i < kReplicas; ++i) {
      replicas.push_back(std::make_unique<Node>(socket, "replica" + std::to_string(i)));
      Node& node = *replicas.back();
      MemberOptions options;
      options.position = i;
      options.group_size = kReplicas;
      node.member = Must(Member::Create(*node.device, *node.pd, *node.region, options));
      chain.push_back(node.member->info());
    }
    group = Must(
        Group::Create(*primary.device, *primary.pd, *primary.region, GroupOptions{}, kReplicas));
    for (auto& node : replicas) Check(node->member->Connect(group->info(), chain));
    Check(group->Connect(chain));
    std::printf("a group of %zu replicas; from here on only their RNICs work\n", kReplicas);
  }
  bool HasTextEverywhere(size_t offset) const {
    return std::all_of(replicas.begin(), replicas.end(),
                       [&](auto& node) { return node->text(offset, kText.size()) == kText; });
  }
};

void WriteAndCopy(Cluster& cluster) {
  Group& group = *cluster.group;
  std::printf("gWRITE + gFLUSH of %zu bytes at offset 0\n", kText.size());
  std::memcpy(cluster.primary.memory->data(), kText.data(), kText.size());
  Check(group.Wait(Must(group.Write(0, kText.size(), /*flush=*/true))));
  Expect(cluster.HasTextEverywhere(0), "every replica has the primary's bytes");

  // Asynchronous: many under way, in order, one wait.
  std::printf("gMEMCPY from 0 to 4096, then on from there, ten times\n");
  for (uint64_t i = 0; i < 10; ++i)
    Must(group.MemCopy(i * 4096, (i + 1) * 4096, kText.size(), /*flush=*/false));
  Check(group.WaitAll());
  Expect(cluster.HasTextEverywhere(40960), "the bytes went all the way on every replica");
}

void AllPartsAtOnce(Cluster& cluster) {
  std::printf("one operation of all parts: write, copy, gCAS on replica 1, flush\n");
  cluster.primary.word(48 << 10) = 41;
  Operation all;
  all.write = {48 << 10, 8};
  all.copy = {0, 56 << 10, kText.size()};
  all.cas = {.present = true, .offset = 60 << 10, .expected = 0, .desired = 7, .execute_map = 0b10};
  all.flush = true;
  OperationResult result;
  Check(cluster.group->Wait(Must(cluster.group->Submit(all)), &result));
  Node& first = *cluster.replicas[0];
  Node& second = *cluster.replicas[1];
  Expect(first.word(48 << 10) == 41 && second.word(48 << 10) == 41, "written");
  Expect(cluster.HasTextEverywhere(56 << 10), "copied");
  Expect(first.word(60 << 10) == 0 && second.word(60 << 10) == 7,
         "changed where the execute map says");
  Expect(result.original[1] == 0, "the result map has what replica 1 found");
}

void FailToLock(Cluster& cluster) {
  std::printf("group lock at 60K: replica 1 holds 7, so 0 → 9 cannot be had\n");
  const Status locked = cluster.group->Lock(60 << 10, 0, 9);
  Expect(locked.code() == Code::kBusy, "refused");
  std::printf("  (\"%s\")\n", locked.message().c_str());
  Expect(cluster.replicas[0]->word(60 << 10) == 0, "and undone on replica 0");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s SOCKET-OF-HYPERLOOP-RNICD\n", argv[0]);
    return 2;
  }
  Cluster cluster(argv[1]);
  WriteAndCopy(cluster);
  AllPartsAtOnce(cluster);
  FailToLock(cluster);
  return 0;
}
