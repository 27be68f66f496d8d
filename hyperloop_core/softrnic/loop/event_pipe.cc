#include "softrnic/loop/event_pipe.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace hyperloop::softrnic {

Result<std::shared_ptr<EventPipe>> EventPipe::Create() {
  std::array<int, 2> ends;
  if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    return FromErrno(errno, "creating a completion channel");
  }
  UniqueFd reader(ends[0]), writer(ends[1]);
  return std::shared_ptr<EventPipe>(new EventPipe(std::move(reader), std::move(writer)));
}

void EventPipe::Signal() {
  const char event = 1;
  [[maybe_unused]] const ssize_t n = write(writer_.get(), &event, 1);
}

}  // namespace hyperloop::softrnic
