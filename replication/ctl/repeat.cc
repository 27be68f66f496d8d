#include "ctl/repeat.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <string>

#include "ctl/command.h"
#include "hyperloop/core/unique_fd.h"

namespace hyperloop::ctl {
namespace {

constexpr char kClear[] = "\033[H\033[J";
constexpr size_t kBuffer = 1u << 16;

int g_stop = -1;  // an eventfd, for the signal handler

void OnStop(int) {
  const int saved = errno;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(g_stop, &one, sizeof one);
  errno = saved;
}

// Whether the user ends the program before `interval` is over.
bool EndsWithin(std::chrono::duration<double> interval) {
  using std::chrono::milliseconds;
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(interval);
  pollfd stop{g_stop, POLLIN, 0};
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
    const int ready = poll(&stop, 1, left > milliseconds(0) ? static_cast<int>(left.count()) : 0);
    if (ready >= 0 || errno != EINTR) return ready > 0;
  }
}

}  // namespace

int Repeat(std::chrono::duration<double> interval, bool give_up, const std::function<int()>& look) {
  const UniqueFd stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop) return Fail(FromErrno(errno, "eventfd"));
  g_stop = stop.get();
  struct sigaction action {};
  action.sa_handler = OnStop;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  const bool terminal = isatty(STDOUT_FILENO) == 1;
  // A terminal shows each block at once.
  setvbuf(stdout, nullptr, _IOFBF, kBuffer);
  for (bool first = true;; first = false) {
    if (terminal) {
      std::fputs(kClear, stdout);
    } else if (!first) {
      std::fputc('\n', stdout);
    }
    const int status = look();
    if (std::fflush(stdout) != 0) return kExitFailure;
    if (first && give_up && status != kExitOk) return status;
    if (EndsWithin(interval)) return kExitOk;
  }
}

std::string TimeNow() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[64];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc)};
}

}  // namespace hyperloop::ctl
