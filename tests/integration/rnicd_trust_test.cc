// The daemon refuses a place where others could put a socket of their own, and a client hands
// nothing to another user's daemon.
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstring>
#include <fstream>

#include "integration/rnicd_fixture.h"
#include "support/status_matchers.h"

namespace hyperloop::test {
namespace {

constexpr uid_t kStranger = 65534;

class RnicdTrustTest : public RnicdTest {
 protected:
  // Exit status of a daemon that is to be refused.
  int StartRefused() {
    auto refused = ChildProcess::Spawn(DaemonArgs());
    EXPECT_EQ(refused.ReadLine(), "");
    return refused.Wait();
  }
};

TEST_F(RnicdTrustTest, ASocketIsNotMadeWhereOthersCouldReplaceIt) {
  ASSERT_EQ(chmod(folder_.c_str(), 0777), 0);
  EXPECT_EQ(StartRefused(), 1);
  EXPECT_FALSE(std::filesystem::exists(socket_));
  ASSERT_EQ(chmod(folder_.c_str(), 0700), 0);
  if (geteuid() == 0) {
    ASSERT_EQ(chown(folder_.c_str(), kStranger, kStranger), 0);
    EXPECT_EQ(StartRefused(), 1);
    ASSERT_EQ(chown(folder_.c_str(), 0, 0), 0);
  }
  ASSERT_EQ(chmod(folder_.c_str(), 01777), 0);
  ASSERT_NO_FATAL_FAILURE(StartDaemon()) << "a sticky directory will do";
}

TEST_F(RnicdTrustTest, AnotherUsersSocketIsLeftAlone) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to make what belongs to another user";
  ASSERT_NO_FATAL_FAILURE(StartDaemon());
  daemon_.Kill();  // its socket stays
  ASSERT_EQ(lchown(socket_.c_str(), kStranger, kStranger), 0);
  EXPECT_EQ(StartRefused(), 1);
  EXPECT_TRUE(std::filesystem::exists(socket_));
}

// A process of another user that listens at `path`, where everybody may connect. It exits with 0 if
// its first client closed without sending anything.
ChildProcess Impostor(const std::string& path, uid_t user) {
  return ChildProcess::Fork([path, user] {
    if (setgid(user) != 0 || setuid(user) != 0) return 2;
    const int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    if (bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
        chmod(path.c_str(), 0777) != 0 || listen(listener, 1) != 0) {
      return 3;
    }
    if (write(STDOUT_FILENO, "listens\n", 8) != 8) return 4;
    const int client = accept(listener, nullptr, nullptr);
    char byte;
    return recv(client, &byte, 1, 0) == 0 ? 0 : 1;
  });
}

TEST_F(RnicdTrustTest, AnotherUsersDaemonIsHandedNothing) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  ASSERT_EQ(chmod(folder_.c_str(), 01777), 0);
  auto impostor = Impostor(socket_, kStranger);
  ASSERT_EQ(impostor.ReadLine(), "listens");
  auto device = softrnic::OpenDaemonDevice({socket_, "h"});
  ASSERT_THAT(device, StatusIs(Code::kPermissionDenied));
  EXPECT_THAT(device, StatusIs(Code::kPermissionDenied,
                               testing::HasSubstr("user 65534 listens at " + socket_)));
  EXPECT_EQ(impostor.Wait(), 0) << "it was told something";
}

}  // namespace
}  // namespace hyperloop::test
