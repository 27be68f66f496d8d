#include "verbs/wait_readable.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>

#include "support/status_matchers.h"

namespace hyperloop::verbs {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

int g_pipe[2];
volatile sig_atomic_t g_signals;

// From the third signal on there is something to read.
void CountThenWrite(int) {
  g_signals = g_signals + 1;
  const int error = errno;
  if (g_signals == 3) [[maybe_unused]]
    const ssize_t n = write(g_pipe[1], "x", 1);
  errno = error;
}
void Count(int) { g_signals = g_signals + 1; }

// Has a pipe, and gets a signal every millisecond.
class WaitReadableTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(pipe2(g_pipe, O_CLOEXEC), 0); }
  void TearDown() override {
    const itimerval never{};
    setitimer(ITIMER_REAL, &never, nullptr);
    signal(SIGALRM, SIG_DFL);
    close(g_pipe[0]);
    close(g_pipe[1]);
  }
  void Interrupt(void (*handler)(int)) {
    g_signals = 0;
    struct sigaction action {};
    action.sa_handler = handler;
    ASSERT_EQ(sigaction(SIGALRM, &action, nullptr), 0);
    const itimerval each_ms{{0, 1000}, {0, 1000}};
    ASSERT_EQ(setitimer(ITIMER_REAL, &each_ms, nullptr), 0);
  }
};

TEST_F(WaitReadableTest, SignalsAreNoAnswer) {
  Interrupt(CountThenWrite);
  const auto ready = WaitReadable(g_pipe[0], steady_clock::now() + seconds(60));
  ASSERT_OK(ready);
  EXPECT_TRUE(*ready);
  EXPECT_GE(g_signals, 3);
}

TEST_F(WaitReadableTest, SignalsDoNotMoveTheDeadline) {
  Interrupt(Count);
  const auto deadline = steady_clock::now() + milliseconds(20);
  const auto ready = WaitReadable(g_pipe[0], deadline);
  ASSERT_OK(ready);
  EXPECT_FALSE(*ready);
  EXPECT_GE(steady_clock::now(), deadline);
}

TEST_F(WaitReadableTest, ADeadlineInThePastOnlyLooks) {
  EXPECT_FALSE(WaitReadable(g_pipe[0], steady_clock::now() - seconds(1)).value());
  ASSERT_EQ(write(g_pipe[1], "x", 1), 1);
  EXPECT_TRUE(WaitReadable(g_pipe[0], steady_clock::now() - seconds(1)).value());
}

}  // namespace
}  // namespace hyperloop::verbs
