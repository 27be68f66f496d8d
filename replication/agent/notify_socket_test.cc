#include "agent/notify_socket.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "support/child_process.h"
#include "support/status_matchers.h"

namespace hyperloop::agent {
namespace {

constexpr uid_t kNobody = 65534;

int Send(const std::string& name, std::string_view text) {
  const UniqueFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  std::ranges::copy(name.substr(1), to.sun_path + 1);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  return sendto(fd.get(), text.data(), text.size(), 0, reinterpret_cast<const sockaddr*>(&to),
                size) == static_cast<ssize_t>(text.size())
             ? 0
             : 1;
}

TEST(NotifySocketTest, HearsThatTheServiceIsReady) {
  const auto socket = NotifySocket::Make();
  ASSERT_OK(socket);
  EXPECT_FALSE(socket->Hears(getpgrp()));
  ASSERT_EQ(Send(socket->name(), "STATUS=READY=1"), 0);
  EXPECT_FALSE(socket->Hears(getpgrp()));
  ASSERT_EQ(Send(socket->name(), "STATUS=well\nREADY=1\n"), 0);
  EXPECT_TRUE(socket->Hears(getpgrp()));
  EXPECT_FALSE(socket->Hears(getpgrp())) << "it was said once";
}

// Another user is believed only in the service's process group.
TEST(NotifySocketTest, DoesNotBelieveStrangers) {
  if (geteuid() != 0) GTEST_SKIP() << "only root becomes another user";
  const auto socket = NotifySocket::Make();
  ASSERT_OK(socket);
  // The sender lives until the socket was read: then its process group is known.
  const auto send = [&](bool expected) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    UniqueFd go(ends[0]), done(ends[1]);
    test::ChildProcess sender = test::ChildProcess::Fork([&] {
      done.Reset(-1);
      if (setpgid(0, 0) != 0 || setuid(kNobody) != 0) return 1;
      const int sent = Send(socket->name(), "READY=1");
      char byte = 0;
      static_cast<void>(!read(go.get(), &byte, 1));
      return sent;
    });
    pollfd heard{socket->fd(), POLLIN, 0};
    EXPECT_EQ(poll(&heard, 1, 300'000), 1);
    EXPECT_EQ(socket->Hears(expected ? sender.pid() : getpgrp()), expected);
    done.Reset(-1);
    EXPECT_EQ(sender.Wait(), 0);
  };
  send(false);
  send(true);
}

}  // namespace
}  // namespace hyperloop::agent
