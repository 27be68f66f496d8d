// Data transfer: every opcode of an ordinary RC queue pair moves the right bytes and completes the
// right way.
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "conformance/fixture.h"

namespace hyperloop::test {
namespace {

using rnic::Opcode;
using rnic::WcOpcode;
using rnic::WcStatus;

class DataTest : public ConformanceTest {};

TEST_P(DataTest, SendScattersOverReceiveInOrder) {
  ASSERT_NO_FATAL_FAILURE(OpenPair({.recv_max_sge = 4}));
  a_.Fill(0, 100, 3);
  PostReceive(b_, 77, {b_.sge(1000, 1), b_.sge(2001, 30), b_.sge(3000, 200)});
  const std::array sges = {a_.sge(0, 60), a_.sge(60, 40)};
  const auto sent = Run(a_, {.id = 5, .opcode = Opcode::kSend, .sges = sges});
  EXPECT_EQ(sent.status, WcStatus::kSuccess);
  EXPECT_EQ(sent.id, 5u);
  EXPECT_EQ(sent.qpn, a_.qp->qpn());
  EXPECT_EQ(sent.opcode, WcOpcode::kSendSide);
  const auto got = AwaitOne(*b_.recv_cq);
  EXPECT_EQ(got.status, WcStatus::kSuccess);
  EXPECT_EQ(got.id, 77u);
  EXPECT_EQ(got.opcode, WcOpcode::kReceive);
  EXPECT_EQ(got.byte_length, 100u);
  EXPECT_EQ(got.qpn, b_.qp->qpn());
  EXPECT_EQ(std::memcmp(b_.at(1000), a_.at(0), 1), 0);
  EXPECT_EQ(std::memcmp(b_.at(2001), a_.at(1), 30), 0);
  EXPECT_EQ(std::memcmp(b_.at(3000), a_.at(31), 69), 0);
  EXPECT_EQ(b_.at(3000)[69], std::byte{0}) << "nothing behind the payload is touched";
}

TEST_P(DataTest, SendWithImmediate) {
  ASSERT_NO_FATAL_FAILURE(OpenPair());
  a_.Fill(0, 8, 1);
  PostReceive(b_, 1, {b_.sge(0, 8)});
  const std::array sges = {a_.sge(0, 8)};
  EXPECT_EQ(Run(a_, {.opcode = Opcode::kSendImm, .sges = sges, .imm = 0x12345678}).status,
            WcStatus::kSuccess);
  const auto got = AwaitOne(*b_.recv_cq);
  EXPECT_EQ(got.opcode, WcOpcode::kReceiveImm);
  EXPECT_EQ(got.imm, 0x12345678u);
  EXPECT_EQ(std::memcmp(b_.at(0), a_.at(0), 8), 0);
}

TEST_P(DataTest, WriteGathersAndMakesNoReceive) {
  ASSERT_NO_FATAL_FAILURE(OpenPair());
  a_.Fill(0, 4096, 9);
  PostReceive(b_, 1, {b_.sge(8192, 8)});
  const std::array sges = {a_.sge(10, 100), a_.sge(500, 1), a_.sge(1000, 3000)};
  EXPECT_EQ(Run(a_, {.opcode = Opcode::kWrite,
                     .sges = sges,
                     .remote_addr = b_.addr(333),
                     .rkey = b_.mr->rkey()})
                .status,
            WcStatus::kSuccess);
  EXPECT_EQ(std::memcmp(b_.at(333), a_.at(10), 100), 0);
  EXPECT_EQ(std::memcmp(b_.at(433), a_.at(500), 1), 0);
  EXPECT_EQ(std::memcmp(b_.at(434), a_.at(1000), 3000), 0);
  EXPECT_EQ(b_.at(3434)[0], std::byte{0});
  EXPECT_EQ(CountNow(*b_.recv_cq), 0u);
}

TEST_P(DataTest, WriteWithImmediateConsumesReceive) {
  ASSERT_NO_FATAL_FAILURE(OpenPair());
  a_.Fill(0, 64, 2);
  PostReceive(b_, 42, {b_.sge(0, 1)});
  const std::array sges = {a_.sge(0, 64)};
  EXPECT_EQ(Run(a_, {.opcode = Opcode::kWriteImm,
                     .sges = sges,
                     .remote_addr = b_.addr(512),
                     .rkey = b_.mr->rkey(),
                     .imm = 7})
                .status,
            WcStatus::kSuccess);
  const auto got = AwaitOne(*b_.recv_cq);
  EXPECT_EQ(got.opcode, WcOpcode::kReceiveWriteImm);
  EXPECT_EQ(got.id, 42u);
  EXPECT_EQ(got.imm, 7u);
  EXPECT_EQ(got.byte_length, 64u);
  EXPECT_EQ(std::memcmp(b_.at(512), a_.at(0), 64), 0);
  EXPECT_EQ(b_.at(0)[0], std::byte{0}) << "the receive's memory is not written";
}

TEST_P(DataTest, ReadScatters) {
  ASSERT_NO_FATAL_FAILURE(OpenPair());
  b_.Fill(0, 1000, 5);
  const std::array sges = {a_.sge(1, 3), a_.sge(100, 500)};
  EXPECT_EQ(Run(a_, {.opcode = Opcode::kRead,
                     .sges = sges,
                     .remote_addr = b_.addr(17),
                     .rkey = b_.mr->rkey()})
                .status,
            WcStatus::kSuccess);
  EXPECT_EQ(std::memcmp(a_.at(1), b_.at(17), 3), 0);
  EXPECT_EQ(std::memcmp(a_.at(100), b_.at(20), 500), 0);
}

TEST_P(DataTest, CompareSwapAndFetchAdd) {
  ASSERT_NO_FATAL_FAILURE(OpenPair());
  b_.word(64) = 100;
  const std::array old = {a_.sge(0, 8)};
  rnic::SendRequest cas{.opcode = Opcode::kCompareSwap,
                        .sges = old,
                        .remote_addr = b_.addr(64),
                        .rkey = b_.mr->rkey(),
                        .compare_or_add = 100,
                        .swap = 0x1122334455667788};
  EXPECT_EQ(Run(a_, cas).status, WcStatus::kSuccess);
  EXPECT_EQ(a_.word(0), 100u);
  EXPECT_EQ(b_.word(64), 0x1122334455667788u) << "in the host's byte order";
  EXPECT_EQ(Run(a_, cas).status, WcStatus::kSuccess);
  EXPECT_EQ(a_.word(0), 0x1122334455667788u) << "a CAS that does not match returns the value";
  EXPECT_EQ(b_.word(64), 0x1122334455667788u) << "and changes nothing";
  EXPECT_EQ(Run(a_, {.opcode = Opcode::kFetchAdd,
                     .sges = old,
                     .remote_addr = b_.addr(64),
                     .rkey = b_.mr->rkey(),
                     .compare_or_add = 0x11})
                .status,
            WcStatus::kSuccess);
  EXPECT_EQ(a_.word(0), 0x1122334455667788u);
  EXPECT_EQ(b_.word(64), 0x1122334455667799u);
}

TEST_P(DataTest, LoopbackQueuePair) {
  ASSERT_NO_FATAL_FAILURE(Open("a", &a_));
  ASSERT_OK(a_.qp->Connect(a_.qp->address()));
  a_.Fill(0, 256, 4);
  const std::array sges = {a_.sge(0, 256)};
  EXPECT_EQ(Run(a_, {.opcode = Opcode::kWrite,
                     .sges = sges,
                     .remote_addr = a_.addr(8192),
                     .rkey = a_.mr->rkey()})
                .status,
            WcStatus::kSuccess);
  EXPECT_EQ(std::memcmp(a_.at(0), a_.at(8192), 256), 0);
  PostReceive(a_, 6, {a_.sge(16384, 256)});
  EXPECT_EQ(Run(a_, {.opcode = Opcode::kSend, .sges = sges}).status, WcStatus::kSuccess);
  EXPECT_EQ(AwaitOne(*a_.recv_cq).id, 6u);
  EXPECT_EQ(std::memcmp(a_.at(0), a_.at(16384), 256), 0);
}

TEST_P(DataTest, UnsignaledRequestsCompleteSilentlyAndInOrder) {
  ASSERT_NO_FATAL_FAILURE(OpenPair());
  std::vector<rnic::Sge> sges;
  std::vector<rnic::SendRequest> batch;
  sges.reserve(10);
  for (uint64_t i = 0; i < 10; ++i) {
    a_.word(i * 8) = i + 1;
    sges.push_back(a_.sge(i * 8, 8));
    batch.push_back({.id = i,
                     .opcode = Opcode::kWrite,
                     .signaled = i == 9,
                     .sges = {&sges.back(), 1},
                     .remote_addr = b_.addr(0),
                     .rkey = b_.mr->rkey()});
  }
  ASSERT_OK(a_.qp->Post(batch));
  EXPECT_EQ(AwaitOne(*a_.send_cq).id, 9u);
  EXPECT_EQ(b_.word(0), 10u) << "the last write wins";
  EXPECT_EQ(CountNow(*a_.send_cq), 0u);
}

TEST_P(DataTest, FencedSendCarriesWhatTheReadBrought) {
  ASSERT_NO_FATAL_FAILURE(OpenPair());
  PostReceive(b_, 1, {b_.sge(4096, 64)});
  b_.Fill(0, 64, 11);
  const std::array sge = {a_.sge(0, 64)};
  const std::array batch = {
      rnic::SendRequest{
          .opcode = Opcode::kRead, .sges = sge, .remote_addr = b_.addr(0), .rkey = b_.mr->rkey()},
      rnic::SendRequest{.opcode = Opcode::kSend, .signaled = true, .fence = true, .sges = sge}};
  ASSERT_OK(a_.qp->Post(batch));
  EXPECT_EQ(AwaitOne(*a_.send_cq).status, WcStatus::kSuccess);
  EXPECT_EQ(AwaitOne(*b_.recv_cq).status, WcStatus::kSuccess);
  EXPECT_EQ(std::memcmp(b_.at(0), b_.at(4096), 64), 0);
}

TEST_P(DataTest, SendWaitsForReceive) {
  ASSERT_NO_FATAL_FAILURE(OpenPair());
  a_.Fill(0, 32, 8);
  const std::array sges = {a_.sge(0, 32)};
  const rnic::SendRequest send{.id = 3, .opcode = Opcode::kSend, .signaled = true, .sges = sges};
  ASSERT_OK(a_.qp->Post({&send, 1}));
  EXPECT_EQ(CountNow(*a_.send_cq), 0u);
  PostReceive(b_, 4, {b_.sge(0, 32)});
  const auto sent = AwaitOne(*a_.send_cq);
  EXPECT_EQ(sent.status, WcStatus::kSuccess);
  EXPECT_EQ(sent.id, 3u);
  EXPECT_EQ(AwaitOne(*b_.recv_cq).id, 4u);
  EXPECT_EQ(std::memcmp(b_.at(0), a_.at(0), 32), 0);
}

TEST_P(DataTest, MemoryOfAFileIsReachable) {
  ASSERT_NO_FATAL_FAILURE(OpenPair());
  char path[] = "/tmp/hyperloop-conformance-XXXXXX";
  const int named = mkstemp(path);
  ASSERT_GE(named, 0);
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  ASSERT_EQ(ftruncate(named, static_cast<off_t>(3 * page)), 0);
  void* map =
      mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_SHARED, named, static_cast<off_t>(page));
  ASSERT_NE(map, MAP_FAILED);
  auto mr = b_.pd->Register(map, 2 * page, Endpoint::kAllAccess,
                            {.fd = named, .fd_offset = page, .media = rnic::Media::kFile});
  unlink(path);
  close(named);
  ASSERT_OK(mr);
  a_.Fill(0, 300, 1);
  const std::array sges = {a_.sge(0, 300)};
  EXPECT_EQ(Run(a_, {.opcode = Opcode::kWrite,
                     .sges = sges,
                     .remote_addr = (*mr)->addr() + page - 100,
                     .rkey = (*mr)->rkey()})
                .status,
            WcStatus::kSuccess);
  const std::array back = {a_.sge(1000, 1)};
  EXPECT_EQ(Run(a_, {.opcode = Opcode::kRead,
                     .sges = back,
                     .remote_addr = (*mr)->addr(),
                     .rkey = (*mr)->rkey()})
                .status,
            WcStatus::kSuccess)
      << "the flush of file memory";
  EXPECT_EQ(std::memcmp(static_cast<std::byte*>(map) + page - 100, a_.at(0), 300), 0);
  mr->reset();
  munmap(map, 2 * page);
}

INSTANTIATE_TEST_SUITE_P(Providers, DataTest, testing::ValuesIn(Providers()),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace hyperloop::test
