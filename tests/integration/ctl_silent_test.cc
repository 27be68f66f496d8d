// hyperloopctl asks replicas that do not answer at the same time, not one after another.
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "hyperloop/replication/options.h"
#include "integration/ctl_run.h"

namespace hyperloop::test {
namespace {

// Two addresses of this machine at which connections are accepted and nothing is ever answered.
class TwoSilent {
 public:
  TwoSilent() : end_(::eventfd(0, EFD_CLOEXEC)), thread_([this] { Serve(); }) {}
  ~TwoSilent() {
    ::eventfd_write(end_, 1);
    thread_.join();
    for (const int fd : {end_, listen_[0].fd, listen_[1].fd}) ::close(fd);
  }
  std::vector<std::string> Addresses() const {
    std::vector<std::string> addresses;
    for (const Listener& each : listen_)
      addresses.push_back("127.0.0.1:" + std::to_string(each.port));
    return addresses;
  }
  // Whether one was asked while the other was still being asked, since the last call.
  bool WereAskedAtOnce() { return at_once_.exchange(false); }

 private:
  struct Listener {
    Listener() : fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      socklen_t size = sizeof address;
      auto* const any = reinterpret_cast<sockaddr*>(&address);
      EXPECT_EQ(::bind(fd, any, size), 0);
      EXPECT_EQ(::listen(fd, 16), 0);
      EXPECT_EQ(::getsockname(fd, any, &size), 0);
      port = ntohs(address.sin_port);
    }
    int fd;
    uint16_t port = 0;
  };

  // Whoever asks one after the other closes a connection before it makes the next one. So its end
  // is there by the time at which that one is accepted.
  void Serve() {
    std::vector<int> asked[2];
    while (true) {
      pollfd fds[] = {{end_, POLLIN, 0}, {listen_[0].fd, POLLIN, 0}, {listen_[1].fd, POLLIN, 0}};
      if (::poll(fds, 3, -1) < 0) continue;
      if (fds[0].revents != 0) break;
      for (const size_t i : {0, 1}) {
        if (fds[1 + i].revents == 0) continue;
        asked[i].push_back(::accept4(listen_[i].fd, nullptr, nullptr, SOCK_CLOEXEC));
        for (const int other : asked[1 - i]) at_once_ = at_once_ || IsOpen(other);
      }
    }
    for (const auto& each : asked)
      for (const int fd : each) ::close(fd);
  }
  static bool IsOpen(int fd) {
    char bytes[4096];
    ssize_t got = 0;
    while ((got = ::recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0) continue;
    return got < 0 && errno == EAGAIN;
  }

  Listener listen_[2];
  std::atomic<bool> at_once_{false};
  const int end_;
  std::thread thread_;
};

class SilentTest : public testing::TestWithParam<std::vector<std::string>> {
 protected:
  SilentTest() {
    std::string pattern = "/dev/shm/hyperloop-silent-XXXXXX";
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  ~SilentTest() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
  TwoSilent silent_;
};

// It may be that the machine is too busy for the second question before the time of the first is
// over. Who asks one after the other does not overlap, however often he tries.
TEST_P(SilentTest, BothAreAskedAtOnce) {
  std::vector<std::string> arguments = GetParam();
  StoreOptions options;
  options.replicas = silent_.Addresses();
  options.pool = folder_ + "/pool";
  options.device = folder_ + "/none";
  arguments.insert(arguments.end(), {"--uri", FormatStoreUri(options)});
  CtlRun run;
  bool at_once = false;
  for (int tries = 0; tries < 5 && !at_once; ++tries) {
    run = RunCtl(folder_, arguments);
    at_once = silent_.WereAskedAtOnce();
  }
  EXPECT_TRUE(at_once) << run.err;
  EXPECT_NE(run.exit_status, 0);
}

INSTANTIATE_TEST_SUITE_P(Commands, SilentTest,
                         testing::Values(std::vector<std::string>{"status"},
                                         std::vector<std::string>{"add", "127.0.0.1:1"}));

}  // namespace
}  // namespace hyperloop::test
