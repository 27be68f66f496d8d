// Messages of every size, empty ones included; as many pieces as the device takes; queues that run
// through all their indexes; atomics of several queue pairs.
#include <array>

#include "conformance/fixture.h"

namespace hyperloop::test {
namespace {

using rnic::Opcode;
using rnic::WcOpcode;
using rnic::WcStatus;

constexpr size_t kMiB = 1 << 20;

class SizeTest : public ConformanceTest {
 protected:
  // 1 MiB and some on either side, registered.
  struct Large {
    static constexpr size_t kBytes = kMiB + 8192;
    std::unique_ptr<rnic::Buffer> buffer;
    std::unique_ptr<rnic::MemoryRegion> mr;
    std::byte* at(size_t offset) { return buffer->data() + offset; }
    rnic::Sge sge(size_t offset, size_t length) {
      return {mr->addr() + offset, static_cast<uint32_t>(length), mr->lkey()};
    }
  };
  void Make(Endpoint& e, Large* large) {
    auto buffer = e.device->AllocateBuffer(Large::kBytes);
    ASSERT_OK(buffer);
    large->buffer = std::move(*buffer);
    auto mr = e.pd->Register(large->buffer->data(), Large::kBytes, Endpoint::kAllAccess, {});
    ASSERT_OK(mr);
    large->mr = std::move(*mr);
  }
};

TEST_P(SizeTest, EverySizeIsSentWrittenAndRead) {
  ASSERT_NO_FATAL_FAILURE(OpenPair());
  Large from, to;
  ASSERT_NO_FATAL_FAILURE(Make(a_, &from));
  ASSERT_NO_FATAL_FAILURE(Make(b_, &to));
  for (size_t i = 0; i < Large::kBytes; ++i)
    from.at(0)[i] = static_cast<std::byte>(i * 7 + i / 253);
  for (const size_t size :
       {size_t{1},     size_t{2},     size_t{3},     size_t{7},       size_t{8},
        size_t{9},     size_t{63},    size_t{64},    size_t{65},      size_t{255},
        size_t{1023},  size_t{1024},  size_t{1025},  size_t{4095},    size_t{4097},
        size_t{65535}, size_t{65536}, size_t{65537}, size_t{1000003}, kMiB}) {
    SCOPED_TRACE(size);
    const size_t skip = 1 + size % 61;  // odd addresses
    for (const Opcode opcode : {Opcode::kSend, Opcode::kWrite, Opcode::kRead}) {
      std::memset(to.at(0), 0x5a, Large::kBytes);
      if (opcode == Opcode::kSend) PostReceive(b_, size, {to.sge(skip, size)});
      if (opcode == Opcode::kRead) std::memcpy(to.at(skip), from.at(0), size);
      Large& target = opcode == Opcode::kRead ? from : to;
      const rnic::Sge sge = opcode == Opcode::kRead ? from.sge(4096, size) : from.sge(0, size);
      std::vector<std::byte> expected(from.at(0), from.at(0) + size);
      ASSERT_EQ(Run(a_, {.opcode = opcode,
                         .sges = {&sge, 1},
                         .remote_addr = to.mr->addr() + skip,
                         .rkey = to.mr->rkey()})
                    .status,
                WcStatus::kSuccess);
      const size_t place = opcode == Opcode::kRead ? 4096 : skip;
      EXPECT_EQ(std::memcmp(target.at(place), expected.data(), size), 0);
      if (opcode != Opcode::kRead) {
        EXPECT_EQ(to.at(skip - 1)[0], std::byte{0x5a});
        EXPECT_EQ(to.at(skip + size)[0], std::byte{0x5a});
      }
      if (opcode == Opcode::kSend) {
        EXPECT_EQ(AwaitOne(*b_.recv_cq).byte_length, size);
      }
    }
  }
}

TEST_P(SizeTest, EmptyMessagesNeedNoKey) {
  ASSERT_NO_FATAL_FAILURE(OpenPair());
  PostReceive(b_, 1, {b_.sge(0, 8)});
  PostReceive(b_, 2, {});
  PostReceive(b_, 3, {});
  EXPECT_EQ(Run(a_, {.opcode = Opcode::kSend}).status, WcStatus::kSuccess);
  EXPECT_EQ(Run(a_, {.opcode = Opcode::kSend}).status, WcStatus::kSuccess);
  EXPECT_EQ(Run(a_, {.opcode = Opcode::kWriteImm, .remote_addr = 1, .rkey = 2, .imm = 9}).status,
            WcStatus::kSuccess);
  EXPECT_EQ(Run(a_, {.opcode = Opcode::kWrite, .remote_addr = 1, .rkey = 2}).status,
            WcStatus::kSuccess);
  EXPECT_EQ(Run(a_, {.opcode = Opcode::kRead, .remote_addr = 1, .rkey = 2}).status,
            WcStatus::kSuccess);
  const auto got = Await(*b_.recv_cq, 3);
  ASSERT_EQ(got.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(got[i].id, i + 1);
    EXPECT_EQ(got[i].byte_length, 0u);
  }
  EXPECT_EQ(got[2].opcode, WcOpcode::kReceiveWriteImm);
  EXPECT_EQ(got[2].imm, 9u);
}

TEST_P(SizeTest, AsManyPiecesAsTheDeviceTakes) {
  ASSERT_NO_FATAL_FAILURE(Open("caps", &a_));
  const uint32_t pieces = std::min(a_.device->caps().max_sge, 16u);
  Close(&a_);
  ASSERT_NO_FATAL_FAILURE(OpenPair({.recv_max_sge = pieces}));
  a_.Fill(0, 4096, 5);
  b_.Fill(8192, 4096, 77);
  std::vector<rnic::Sge> gather, scatter;
  std::vector<std::byte> expected;
  for (uint32_t i = 0; i < pieces; ++i) {
    gather.push_back(a_.sge(100 * i, 1 + i));
    expected.insert(expected.end(), a_.at(100 * i), a_.at(100 * i) + 1 + i);
    scatter.push_back(b_.sge(100 * (pieces - i), pieces - i));  // other lengths, other order
  }
  PostReceive(b_, 1, scatter);
  ASSERT_EQ(Run(a_, {.opcode = Opcode::kSend, .sges = gather}).status, WcStatus::kSuccess);
  size_t done = 0;
  for (const rnic::Sge& sge : scatter) {
    EXPECT_EQ(std::memcmp(reinterpret_cast<void*>(sge.addr), expected.data() + done, sge.length),
              0);
    done += sge.length;
  }
  EXPECT_EQ(done, expected.size());
  for (auto& sge : gather) sge.addr += 8192;
  ASSERT_EQ(Run(a_, {.opcode = Opcode::kRead,
                     .sges = gather,
                     .remote_addr = b_.addr(8192),
                     .rkey = b_.mr->rkey()})
                .status,
            WcStatus::kSuccess);
  done = 0;
  for (const rnic::Sge& sge : gather) {
    EXPECT_EQ(std::memcmp(reinterpret_cast<void*>(sge.addr), b_.at(8192 + done), sge.length), 0);
    done += sge.length;
  }
}

// More work than a 16-bit index counts.
TEST_P(SizeTest, IndexesWrap) {
  ASSERT_NO_FATAL_FAILURE(OpenPair({.send_wqebbs = 256, .recv_wqes = 256}));
  constexpr uint64_t kBatch = 128, kBatches = 65536 / kBatch + 3;
  std::vector<rnic::Sge> sges(kBatch);
  std::vector<rnic::SendRequest> sends(kBatch);
  std::vector<rnic::ReceiveRequest> receives(kBatch);
  std::vector<rnic::Sge> into(kBatch);
  for (uint64_t batch = 0; batch < kBatches; ++batch) {
    for (uint64_t i = 0; i < kBatch; ++i) {
      a_.word(8 * i) = batch * kBatch + i;
      sges[i] = a_.sge(8 * i, 8);
      into[i] = b_.sge(8 * i, 8);
      receives[i] = {.id = batch + i, .sges = {&into[i], 1}};
      sends[i] = {.id = batch + i,
                  .opcode = Opcode::kSend,
                  .signaled = i + 1 == kBatch,
                  .sges = {&sges[i], 1}};
    }
    ASSERT_OK(b_.qp->PostReceive(receives));
    ASSERT_OK(a_.qp->Post(sends));
    const auto sent = AwaitOne(*a_.send_cq);
    ASSERT_EQ(sent.status, WcStatus::kSuccess) << batch;
    ASSERT_EQ(sent.id, batch + kBatch - 1);
    const auto got = Await(*b_.recv_cq, kBatch);
    ASSERT_EQ(got.size(), kBatch);
    for (uint64_t i = 0; i < kBatch; ++i) {
      ASSERT_EQ(got[i].id, batch + i);
      ASSERT_EQ(b_.word(8 * i), batch * kBatch + i);
    }
  }
}

TEST_P(SizeTest, AtomicsOfTwoQueuePairsAddUp) {
  ASSERT_NO_FATAL_FAILURE(OpenPair());
  Endpoint c;
  ASSERT_NO_FATAL_FAILURE(Open("c", &c));
  auto other = b_.pd->CreateQueuePair({.send_cq = b_.send_cq.get(), .recv_cq = b_.recv_cq.get()});
  ASSERT_OK(other);
  ASSERT_OK(c.qp->Connect((*other)->address()));
  ASSERT_OK((*other)->Connect(c.qp->address()));
  b_.word(0) = ~uint64_t{0} - 50;  // wraps on the way
  constexpr int kAdds = 32, kRounds = 10;
  uint64_t old_sum = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<rnic::Sge> olds;
    for (Endpoint* e : {&a_, &c}) {
      olds.clear();
      std::vector<rnic::SendRequest> adds;
      for (int i = 0; i < kAdds; ++i) olds.push_back(e->sge(static_cast<size_t>(8 * i), 8));
      for (int i = 0; i < kAdds; ++i) {
        adds.push_back({.opcode = Opcode::kFetchAdd,
                        .signaled = i + 1 == kAdds,
                        .sges = {&olds[static_cast<size_t>(i)], 1},
                        .remote_addr = b_.addr(0),
                        .rkey = b_.mr->rkey(),
                        .compare_or_add = 3});
      }
      ASSERT_OK(e->qp->Post(adds));
    }
    ASSERT_EQ(AwaitOne(*a_.send_cq).status, WcStatus::kSuccess);
    ASSERT_EQ(AwaitOne(*c.send_cq).status, WcStatus::kSuccess);
    for (Endpoint* e : {&a_, &c})
      for (size_t i = 0; i < kAdds; ++i) old_sum += e->word(8 * i);
  }
  constexpr uint64_t kAll = 2 * kAdds * kRounds, kStart = ~uint64_t{0} - 50;
  EXPECT_EQ(b_.word(0), kStart + 3 * kAll);
  EXPECT_EQ(old_sum, kAll * kStart + 3 * (kAll * (kAll - 1) / 2)) << "each sees another old value";
  (*other).reset();
}

INSTANTIATE_TEST_SUITE_P(Providers, SizeTest, testing::ValuesIn(Providers()),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace hyperloop::test
