// The daemon answers a message that is not a command of the protocol with an error, or closes the
// connection, and goes on.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <array>
#include <random>
#include <thread>

#include "integration/raw_client.h"
#include "integration/rnicd_fixture.h"
#include "softrnic/commands/commands.h"
#include "softrnic/commands/unix_socket.h"
#include "support/status_matchers.h"

namespace hyperloop::test {
namespace {

using softrnic::Command;
using softrnic::Op;
using softrnic::Reply;
using testing::HasSubstr;

class RnicdMalformedTest : public SharedRnicdTest {};

TEST_F(RnicdMalformedTest, WrongSizeMagicOrVersionIsExplainedAndClosed) {
  Command bad_magic = RawClient::Make(Op::kOpen);
  bad_magic.magic ^= 1;
  Command bad_version = RawClient::Make(Op::kOpen);
  bad_version.version = 77;
  std::array<char, 2000> zeros{};
  const struct {
    const void* data;
    size_t size;
    Code code;
    const char* word;
  } cases[] = {
      {"x", 1, Code::kInvalidArgument, "not a command"},
      {zeros.data(), sizeof(Command) - 1, Code::kInvalidArgument, "not a command"},
      {zeros.data(), sizeof(Command), Code::kInvalidArgument, "not a command"},
      {zeros.data(), 2000, Code::kInvalidArgument, "not a command"},
      {&bad_magic, sizeof bad_magic, Code::kInvalidArgument, "magic"},
      {&bad_version, sizeof bad_version, Code::kNotSupported, "version 77"},
  };
  for (const auto& c : cases) {
    RawClient client(socket_);
    ASSERT_TRUE(client.connected());
    ASSERT_TRUE(client.Send(c.data, c.size));
    const auto answer = client.Receive();
    EXPECT_FALSE(answer.closed);
    EXPECT_EQ(answer.code, c.code) << answer.text;
    EXPECT_THAT(answer.text, HasSubstr(c.word));
    EXPECT_TRUE(client.Receive().closed);
  }
}

TEST_F(RnicdMalformedTest, CommandsNeedAnAttachedClient) {
  RawClient client(socket_);
  for (uint16_t op = 0; op < 30; ++op) {
    if (op == static_cast<uint16_t>(Op::kOpen)) continue;
    EXPECT_NE(client.Call(RawClient::Make(static_cast<Op>(op))).code, Code::kOk) << op;
  }
  EXPECT_EQ(client.Attach().code, Code::kOk);
  EXPECT_EQ(client.Attach().code, Code::kAlreadyExists);
}

TEST_F(RnicdMalformedTest, HostNamesAreChecked) {
  for (const char* name : {"", "a/b", "a b", "\n", "h\x80"}) {
    RawClient client(socket_);
    Command open = RawClient::Make(Op::kOpen);
    std::strcpy(open.args.open.host, name);
    EXPECT_EQ(client.Call(open).code, Code::kInvalidArgument) << name;
  }
  RawClient client(socket_);
  Command open = RawClient::Make(Op::kOpen);
  std::memset(open.args.open.host, 'x', sizeof open.args.open.host);  // no terminator
  EXPECT_EQ(client.Call(open).code, Code::kInvalidArgument);
  EXPECT_EQ(client.Attach().code, Code::kOk) << "a refused open can be made good";
}

TEST_F(RnicdMalformedTest, OpenAfterARefusedOneHandsOutThePageTheDaemonServes) {
  RawClient client(socket_);
  ASSERT_EQ(client.Call(RawClient::Make(Op::kOpen)).code, Code::kInvalidArgument);
  const auto answer = client.Attach();
  ASSERT_EQ(answer.code, Code::kOk);
  ASSERT_EQ(answer.fds.size(), 2u);
  void* const map =
      mmap(nullptr, softrnic::kUarBytes, PROT_READ, MAP_SHARED, answer.fds[0].get(), 0);
  ASSERT_NE(map, MAP_FAILED);
  EXPECT_EQ(static_cast<const softrnic::UarPage*>(map)->header.engine_alive, 1u);
  munmap(map, softrnic::kUarBytes);
}

TEST_F(RnicdMalformedTest, DescriptorsAreCounted) {
  RawClient client(socket_);
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  ASSERT_EQ(client.Attach().code, Code::kOk);
  EXPECT_EQ(client.Call(RawClient::Make(Op::kRegisterUmem)).code, Code::kInvalidArgument);
  EXPECT_EQ(client.Call(RawClient::Make(Op::kRegisterUmem), {null.get(), null.get()}).code,
            Code::kInvalidArgument);
  EXPECT_EQ(client.Call(RawClient::Make(Op::kAllocPd), {null.get()}).code, Code::kInvalidArgument);
  EXPECT_EQ(client.Call(RawClient::Make(Op::kAllocPd)).code, Code::kOk);
}

// A device whose daemon gives no sensible answer counts as gone, though the connection still
// exists. Its owner has to close it, so that the daemon destroys its objects.
TEST(RnicdAnswerTest, DeviceWithoutAnAnswerIsNotAlive) {
  const std::string path =
      std::filesystem::temp_directory_path() / ("hyperloop-mute-" + std::to_string(getpid()));
  auto address = softrnic::UnixAddress(path);
  ASSERT_OK(address);
  const UniqueFd listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address->first), address->second), 0);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  bool closed = false;
  std::thread daemon([&] {
    const UniqueFd peer(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const UniqueFd page(memfd_create("test", MFD_CLOEXEC));
    EXPECT_EQ(ftruncate(page.get(), softrnic::kUarBytes), 0);
    softrnic::UarPage uar{};
    uar.header.engine_alive = 1;
    EXPECT_EQ(pwrite(page.get(), &uar, sizeof uar, 0), static_cast<ssize_t>(sizeof uar));
    std::vector<std::byte> buffer(sizeof(Command));
    EXPECT_OK(softrnic::ReceiveMessage(peer.get(), buffer, 0));
    Reply reply;
    const iovec good{&reply, sizeof reply}, bad{&reply, 1};
    const int fds[] = {page.get(), page.get()};
    EXPECT_OK(softrnic::SendMessage(peer.get(), {&good, 1}, fds, 0));
    EXPECT_OK(softrnic::ReceiveMessage(peer.get(), buffer, 0));
    EXPECT_OK(softrnic::SendMessage(peer.get(), {&bad, 1}, {}, 0));
    const auto end = softrnic::ReceiveMessage(peer.get(), buffer, 0);
    closed = end.ok() && end->bytes == 0;
  });
  {
    auto device = softrnic::OpenDaemonDevice({path, "host"});
    EXPECT_OK(device);
    if (device.ok()) {
      EXPECT_TRUE((*device)->alive());
      EXPECT_THAT((*device)->QueryCounters(), StatusIs(Code::kInternal));
      EXPECT_FALSE((*device)->alive());
    }
  }
  daemon.join();
  EXPECT_TRUE(closed) << "its destruction closes the connection";
  unlink(path.c_str());
}

// Attached; registers `fd` with `args`.
Code TryRegister(RawClient& client, int fd, softrnic::RegisterUmemArgs args) {
  Command command = RawClient::Make(Op::kRegisterUmem);
  command.args.umem = args;
  return client.Call(command, {fd}).code;
}

TEST_F(RnicdMalformedTest, MemoryIsChecked) {
  RawClient client(socket_);
  ASSERT_EQ(client.Attach().code, Code::kOk);
  const UniqueFd sealed(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(sealed.get(), 8192), 0);
  EXPECT_EQ(TryRegister(client, sealed.get(), {0x10000, 0, 8192}), Code::kPermissionDenied)
      << "not sealed yet";
  ASSERT_EQ(fcntl(sealed.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_EQ(TryRegister(client, sealed.get(), {0x10000, 0, 8192}), Code::kOk);
  const uint64_t huge = ~uint64_t{0};
  const softrnic::RegisterUmemArgs bad[] = {{0x10000, 0, 0},
                                            {0x10000, 0, 8193},
                                            {0x10000, 4096, 8192},
                                            {0x10000, 1, 4096},
                                            {0x10001, 0, 4096},
                                            {0x10000, 8192, 4096},
                                            {0x10000, 0, huge},
                                            {0x10000, huge & ~4095ull, 8192},
                                            {huge & ~4095ull, 0, 8192},
                                            {0x10000, 0, 1ull << 62}};
  for (const auto& args : bad) {
    EXPECT_EQ(TryRegister(client, sealed.get(), args), Code::kInvalidArgument)
        << args.client_addr << " " << args.fd_offset << " " << args.length;
  }
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  EXPECT_EQ(TryRegister(client, ends[0], {0x10000, 0, 4096}), Code::kInvalidArgument);
  close(ends[0]);
  close(ends[1]);
  const UniqueFd program(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(TryRegister(client, program.get(), {0x10000, 0, 4096}), Code::kPermissionDenied);
  // Making such a file needs no huge page; mapping it would.
  const UniqueFd pages(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
  if (pages && ftruncate(pages.get(), 32 << 20) == 0) {
    ASSERT_EQ(fcntl(pages.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
    Command command = RawClient::Make(Op::kRegisterUmem);
    command.args.umem = {0x4000000, 0, 32 << 20};
    const auto answer = client.Call(command, {pages.get()});
    EXPECT_EQ(answer.code, Code::kInvalidArgument);
    EXPECT_THAT(answer.text, HasSubstr("hugetlbfs"));
  }
  // A sparse file far larger than memory is mapped without being filled.
  const UniqueFd sparse(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(sparse.get(), int64_t{1} << 36), 0);
  ASSERT_EQ(fcntl(sparse.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_EQ(TryRegister(client, sparse.get(), {0x10000, 0, uint64_t{1} << 36}), Code::kOk);
}

TEST_F(RnicdMalformedTest, RandomBytesOfAnySize) {
  std::mt19937 random(1);
  std::vector<uint8_t> bytes(4096);
  for (int i = 0; i < 500; ++i) {
    RawClient client(socket_);
    ASSERT_TRUE(client.connected());
    for (auto& byte : bytes) byte = static_cast<uint8_t>(random());
    client.Send(bytes.data(), 1 + random() % bytes.size());
    if (i % 2 == 0) continue;  // closes without reading the answer
    EXPECT_NE(client.Receive().code, Code::kOk);
  }
}

TEST_F(RnicdMalformedTest, RandomFieldsOfEveryCommand) {
  std::mt19937_64 random(2);
  const uint64_t interesting[] = {0,    1,          2,          7,     31,        64,
                                  4096, 0x7fffffff, 0xffffffff, ~0ull, 1ull << 63};
  const UniqueFd memory(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(memory.get(), 1 << 20), 0);
  ASSERT_EQ(fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  for (int round = 0; round < 20; ++round) {
    RawClient client(socket_);
    ASSERT_EQ(client.Attach().code, Code::kOk);
    // Makes objects that the random numbers can hit.
    client.Call(RawClient::Make(Op::kAllocPd));
    ASSERT_EQ(TryRegister(client, memory.get(), {0x100000, 0, 1 << 20}), Code::kOk);
    for (int i = 0; i < 200; ++i) {
      Command command = RawClient::Make(static_cast<Op>(random() % 18));
      for (size_t at = 0; at + 4 <= sizeof command.args; at += 4) {
        uint64_t value = interesting[random() % std::size(interesting)];
        if (random() % 4 == 0) value = 0x100000 + random() % (1 << 20) / 64 * 64;
        if (random() % 8 == 0) value = random();
        std::memcpy(command.args.raw + at, &value, 4);
        if (random() % 2 == 0) at += 4;  // leaves the upper half of 8-byte fields zero
      }
      std::vector<int> fds;
      if (command.op == Op::kRegisterUmem) fds.push_back(memory.get());
      ASSERT_FALSE(client.Call(command, fds).closed) << "a refused command is no reason to close";
    }
  }
}

TEST_F(RnicdMalformedTest, SilentAndGreedyClientsHoldNobodyUp) {
  RawClient silent(socket_);
  ASSERT_TRUE(silent.connected());
  RawClient greedy(socket_);
  ASSERT_EQ(greedy.Attach().code, Code::kOk);
  const Command query = RawClient::Make(Op::kQueryCounters);
  // Answers that nobody reads fill the socket; the daemon closes it rather than wait.
  for (int i = 0; i < 5'000 && greedy.Send(&query, sizeof query); ++i) {
  }
  ExpectDaemonServes();
}

}  // namespace
}  // namespace hyperloop::test
