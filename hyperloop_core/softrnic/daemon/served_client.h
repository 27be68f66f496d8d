// What the files of ClientServer share: its clients, their processes, and how their events and
// tasks run.
#pragma once

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "hyperloop/core/out_of_memory.h"
#include "softrnic/daemon/client_server.h"

namespace hyperloop::softrnic {

// Engine time that a process's commands may take at once: that of some thousand commands.
inline constexpr int64_t kBurstNs = 50'000'000;

// A connection's socket. The other end may have left messages with descriptors in it, whose closing
// may take for ever. So it is closed on the thread of whoever made the connection.
class ClientSocket {
 public:
  explicit ClientSocket(ClientThreads* threads) : threads_(threads), close_(1) {}
  ClientSocket(const ClientSocket&) = delete;
  ClientSocket& operator=(const ClientSocket&) = delete;
  ~ClientSocket() {
    if (fd_ < 0) return;
    shutdown(fd_, SHUT_RDWR);  // the other end sees it at once
    close_.front().run = [fd = fd_] { close(fd); };
    threads_->Add(std::move(close_));
  }
  // Call it once. `fd` may be −1.
  void Set(int fd) { fd_ = fd; }
  void SetOwner(uint64_t client) { close_.front().client = client; }
  int get() const { return fd_; }

 private:
  ClientThreads* const threads_;
  ClientThreads::Tasks close_;  // made before, because closing must not need memory
  int fd_ = -1;
};

// A process that has had connections. It is remembered until it ends, so that it gets no new time
// by connecting again.
struct ClientServer::Process {
  ClientNumber number = 0;
  UniqueFd lives;  // pidfd
  uint32_t connections = 0;
  int64_t left_ns = kBurstNs;  // engine time; below 0: its commands wait
  uint64_t since_ns = 0;       // the time at which left_ns was computed
  bool paused = false;
};

struct ClientServer::Client {
  explicit Client(ClientThreads* threads) : socket(threads) {}
  ~Client() {
    if (uar != nullptr) munmap(uar, kUarBytes);
  }
  // Whether its next message has to wait for the one before.
  bool busy() const { return delivery != nullptr; }

  uint64_t id = 0;
  uid_t user = 0;
  Process* of = nullptr;
  pid_t pid = 0;
  ClientSocket socket;
  UniqueFd wake;  // eventfd, shared with the client
  UniqueFd uar_fd;
  UarPage* uar = nullptr;
  ContextId context = kNoContext;
  std::string name;                    // "host (pid N)", for the log
  std::shared_ptr<Delivery> delivery;  // under way
};

template <class Event>
void ClientServer::Guard(Client& client, Event&& event) {
  const uint64_t id = client.id;
  if (!RanOutOfMemory(event)) return;
  LogLine(&ends_, LogLevel::kError, {client.name, " is ended: out of memory in its command"});
  Close(id, "out of memory");
}

inline uint64_t ThreadCpuNs() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

template <class Task>
void ClientServer::OnEngine(Process& process, Task&& task) {
  uint64_t took_ns = 0;
  bool exhausted = false;
  const auto measured = [&] {
    const uint64_t begin = ThreadCpuNs();
    exhausted = RanOutOfMemory(task);
    took_ns = ThreadCpuNs() - begin;
  };
  loop_->Submit(std::ref(measured));  // the lambda itself would not fit into a std::function
  unmapping_ = true;
  Charge(process, took_ns);
  if (exhausted) throw std::bad_alloc();
}

}  // namespace hyperloop::softrnic
