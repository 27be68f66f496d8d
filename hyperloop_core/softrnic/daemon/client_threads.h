// ClientThreads: a thread for each client that has something to do which may wait for ever: for a
// disk, for the server of a file system, for the other end of a socket. So it delays that client
// alone.
//
// Start makes a thread that makes the others, so that these inherit neither priority nor processor
// of the threads that use them. A task that hangs keeps its client's thread until it ends; nobody
// waits for that. A client has one thread, however often it comes and goes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>

namespace hyperloop::softrnic {

class ClientThreads {
 public:
  struct Task {
    uint64_t client = 0;
    std::function<void()> run;  // must not throw
  };
  // Its nodes pass from thread to thread without memory of their own.
  using Tasks = std::list<Task>;

  struct Options {
    size_t clients = ~size_t{0};    // that have a thread, or wait for one
    size_t of_client = ~size_t{0};  // tasks of one client that wait or run
    size_t all = ~size_t{0};        // tasks of all clients
    // Whether a client's thread stays until Gone, rather than until it has nothing to do.
    bool stay = false;
  };

  explicit ClientThreads(Options options);
  ~ClientThreads();
  ClientThreads(const ClientThreads&) = delete;
  ClientThreads& operator=(const ClientThreads&) = delete;

  // Call it once. Tasks that were added before wait until then.
  void Start();
  // What was added is still done, if the process lasts that long. Nothing is added after it.
  void Stop();

  // --- thread safe
  // Takes the one element of `task`, which its client's thread runs after the earlier ones. False:
  // a bound, or no memory, and `task` is as before.
  bool TryAdd(Tasks& task) noexcept;
  // The same, but a task for which there is no room or memory waits until there is. Needs no
  // memory.
  void Add(Tasks task) noexcept;
  // Ends a thread that stays when it has done what there is to do. The client may come again.
  void Gone(uint64_t client);

 private:
  struct Lane;
  struct State;
  const std::shared_ptr<State> state_;  // shared with threads that may outlive this object
};

}  // namespace hyperloop::softrnic
