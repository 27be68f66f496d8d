// ClientServer: the daemon's second thread. It accepts clients on the Unix socket, checks and
// answers their commands, and notices when they die. It touches the engine through
// EngineLoop::Submit only.
//
// Trust: a client must have this process's user id (or be root). Nothing else that it sends is
// trusted: the server checks sizes, magic, version and descriptors, and the engine checks every
// field. A message that is not a command of this protocol is answered once with the reason, and its
// connection is closed.
//
// Fairness: the connections of one process are one client (Engine's ClientNumber). Their number is
// bounded, and the client's commands take at most a share of the engine's time: the server reads
// the next command when the share covers the time of the previous ones. Memory is populated a piece
// at a time and unmapped a piece at a time, and other clients' commands are answered in between.
//
// Descriptors: a client may send one whose closing never ends (a TCP socket that lingers), or whose
// server never answers (a file on FUSE). So the server's thread never has one. A message that
// brings some is taken from its socket by the client's thread (ClientThreads), which also maps the
// memory and closes the connection, where messages may be left.
//
// Death: a client is gone when its process is (pidfd), even if a forked child still holds the
// socket, or when it closed the connection. Then all objects that it created are destroyed. If
// memory runs out in what a client asks for, that client is ended in the same way.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hyperloop/core/log.h"
#include "hyperloop/core/mutex.h"
#include "hyperloop/core/status.h"
#include "softrnic/commands/unix_socket.h"
#include "softrnic/daemon/client_mapping.h"
#include "softrnic/daemon/client_threads.h"
#include "softrnic/daemon/limited_log.h"
#include "softrnic/daemon/link_server.h"
#include "softrnic/daemon/listener.h"
#include "softrnic/daemon/refusal_log.h"
#include "softrnic/loop/engine_loop.h"

namespace hyperloop::softrnic {

struct ClientServerLimits {
  uint32_t connections = 1024;          // of all processes of this user
  uint32_t client_connections = 64;     // of one process
  uint32_t client_command_percent = 2;  // of the engine's time, after a burst
};

class ClientServer {
 public:
  // Listens at `path` (see ListenAt). `engine` and `loop` outlive the server.
  static Result<std::unique_ptr<ClientServer>> Listen(const std::string& path, Engine* engine,
                                                      EngineLoop* loop, std::shared_ptr<Log> log,
                                                      ClientServerLimits limits = {});
  // Closes and removes the socket. Run must have returned; the engine loop too.
  ~ClientServer();
  ClientServer(const ClientServer&) = delete;
  ClientServer& operator=(const ClientServer&) = delete;

  // Makes counter queries include those of `links`. Call before Run; `links` outlives the server.
  void ShowLinks(const LinkServer* links) { links_ = links; }
  // The clients' mappings that are no longer used, and wait to be unmapped.
  std::shared_ptr<UnmapQueue> unmap_queue() const { return unmap_; }

  // Serves until Stop; meanwhile the loop must run.
  void Run();
  // May be called by any thread and by signal handlers.
  void Stop();

 private:
  struct Client;
  struct Process;
  struct Message;
  struct Delivery;
  // The source of an epoll event: id << 3 | kind. The id is that of a client, or of a process
  // (Process::number); 0: the server's own descriptors.
  enum Kind : uint64_t { kListener, kStop, kEvicted, kDelivered, kSocket, kProcess };

  ClientServer(std::string path, Engine* engine, EngineLoop* loop, std::shared_ptr<Log> log,
               ClientServerLimits limits);
  Status Watch(int fd, uint64_t id, Kind kind);
  // Runs `event` of a client, which ends if memory runs out in it.
  template <class Event>
  void Guard(Client& client, Event&& event);
  void Accept();
  // Checks who has connected, counts and watches it.
  Status Admit(Client& client);
  Result<Process*> ProcessOf(pid_t pid);
  Status Join(Client& client, Process& process);
  void EndProcess(ClientNumber number);
  template <class Which>
  void ForgetProcesses(Which&& which);
  void CloseEvicted();
  // Counts the engine time of a command; a process that used more than its share is paused.
  void Charge(Process& process, uint64_t engine_ns);
  void Listen(const Process& process, bool on);
  void Listen(const Client& client, bool on);
  int ResumePaused();
  void RefuseForLackOfDescriptors();
  void WatchListener(bool on);
  void PauseAccepting();
  int ResumeAccepting(int wait_ms);
  void HandleEvent(uint64_t data, uint32_t events);
  // Handles one message, or has the client's thread take it. False: the client must be removed.
  bool Receive(Client& client);
  void ReceiveElsewhere(Client& client);
  void TakeDelivered();
  // False: as for Receive.
  bool Handle(Client& client, Message& message);
  Status Dispatch(Client& client, Message& message, Reply* reply, std::string* text,
                  std::vector<int>* fds);
  Status Open(Client& client, const OpenArgs& args, Reply* reply, std::vector<int>* fds);
  Status GiveToEngine(Client& client, const RegisterUmemArgs& args, UmemMapping mapping,
                      Reply* reply);
  Status CreateEventCq(Client& client, const CreateCqArgs& args, Reply* reply,
                       std::vector<int>* fds);
  bool Answer(Client& client, const Status& status, Reply& reply, std::string text,
              const std::vector<int>& fds);
  // Needs no memory.
  void Close(uint64_t id, std::string_view why);
  // Runs `task` on the engine's thread. Needs no memory of its own; a std::bad_alloc in `task` is
  // thrown to the caller.
  template <class Task>
  void OnEngine(Process& process, Task&& task);
  std::string OwnCounters() const;

  const std::string path_;
  Engine* const engine_;
  EngineLoop* const loop_;
  const LinkServer* links_ = nullptr;
  const std::shared_ptr<Log> log_;
  LimitedLog ends_;  // of clients that are evicted
  RefusalLog refusals_;
  const ClientServerLimits limits_;
  const std::shared_ptr<ClientThreads> threads_ =
      std::make_shared<ClientThreads>(ClientThreads::Options{});
  const std::shared_ptr<UnmapQueue> unmap_ = std::make_shared<UnmapQueue>(threads_);
  Listener listener_;
  UniqueFd epoll_;
  UniqueFd stop_event_;
  // Given up to refuse a client when descriptors are exhausted. Nobody is accepted until there is
  // one again.
  UniqueFd spare_;
  uint64_t accept_at_ns_ = 0;  // not 0: the listener is not watched until then
  bool stop_ = false;
  uint64_t next_id_ = 1;
  std::map<uint64_t, std::unique_ptr<Client>> clients_;
  bool unmapping_ = false;  // unmap_ has mappings
  uint64_t next_process_ = 1;
  std::map<pid_t, Process> processes_;
  std::map<uid_t, uint32_t> connections_;
  std::shared_ptr<UniqueFd> delivered_event_;  // shared with clients' threads
  UniqueFd evicted_event_;
  Mutex evicted_mutex_;
  // Has at most one entry for each context, so that it never grows.
  std::vector<std::pair<ContextId, const char*>> evicted_ HL_GUARDED_BY(evicted_mutex_);
};

}  // namespace hyperloop::softrnic
