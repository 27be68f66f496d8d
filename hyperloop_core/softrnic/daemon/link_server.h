// LinkServer: the daemon's links over TCP, on a thread of their own. It dials every peer for as
// long as it runs (this engine's requests and their answers go on that connection), accepts
// connections from peers (their requests), and hands packets to and from the engine's thread.
//
// A connection that says nothing for kDeadAfter is given up and dialed again, so that a cut which
// is healed is noticed long before TCP's own timers. Memory is bounded: packets for the engine by
// kLinkInboxBytes, requests for a connection by kLinkQueueBytes, answers by kLinkAnswerBytes;
// beyond that nothing more is read, the engine is told to wait, answers are dropped.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "hyperloop/core/log.h"
#include "hyperloop/core/status.h"
#include "softrnic/daemon/link_channel.h"
#include "softrnic/daemon/link_options.h"
#include "softrnic/engine_loop.h"
#include "softrnic/links/link_port.h"
#include "softrnic/unix_socket.h"

namespace hyperloop::softrnic {

class LinkServer final : public LinkPort {
 public:
  // Binds the listening socket and names the peers to `engine`, which must not have a client yet.
  // The server outlives `engine`, whose port it becomes. Errors: the address is in use or not this
  // machine's; a peer is named twice.
  static Result<std::unique_ptr<LinkServer>> Create(LinkOptions options, Engine* engine,
                                                    std::shared_ptr<Log> log);
  ~LinkServer() override;

  // Where it listens: with the real port if 0 was asked for. Empty: nowhere.
  const std::string& listening() const { return listening_; }
  // Starts the thread; `loop` is woken when packets arrive. Stop before `loop` goes.
  void Start(EngineLoop* loop);
  void Stop();

  // Lines "name value\n". Any thread.
  std::string CounterText() const;

  // LinkPort, for the engine's thread.
  bool Ready(LinkId link) override;
  void Send(LinkId link, PacketBytes packet) override;
  void Flush() override;
  bool Receive(LinkEvent* event) override;
  bool Pending() const override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Connection;

  // A configured link: one for each address that peers have.
  struct Peer {
    LinkAddress address;
    std::string name;  // of its hosts, for the log
    std::atomic<bool> up{false};
    std::atomic<int64_t> queued{0};  // bytes that the engine sent and no socket has taken
    std::atomic<bool> wants_room{false};
    uint64_t connection = 0;  // its serial number; 0: none
    Clock::time_point dial_at{};
    std::chrono::milliseconds backoff{0};
    bool was_up = false;
    std::string last_error;  // logged once
  };
  struct Counters {
    std::atomic<uint64_t> frames_sent{0}, frames_received{0}, bytes_sent{0}, bytes_received{0},
        connects{0}, reconnects{0}, refused{0}, answers_dropped{0};
  };

  LinkServer(LinkOptions options, std::shared_ptr<Log> log);
  Status Listen();
  Status AddPeers(Engine* engine);
  // The thread's.
  void Run();
  int Timers();
  void Dial(Peer& peer);
  void Accept();
  void MakeRoomForStranger();
  void WatchListener(bool on);
  void LogRefusal(const std::string& name, const std::string& why);
  void HandleConnection(uint64_t serial, uint32_t events);
  bool Connected(Connection& c);
  bool ReadFrom(Connection& c);
  bool WriteTo(Connection& c);
  void Opened(Connection& c);
  void Close(uint64_t serial, const std::string& why);
  void TakeOutbox();
  void ResumeReading();
  void Watch(Connection& c);
  void SignOfLife(Connection& c);
  void PushEvents(std::vector<LinkEvent> events, size_t bytes);
  void WakeThread();
  Peer* PeerOf(const Connection& c);

  const LinkOptions options_;
  const std::shared_ptr<Log> log_;
  std::string listening_;
  LinkAddress bound_;  // where, if it is not empty
  UniqueFd listener_;
  UniqueFd epoll_;
  UniqueFd wake_;
  EngineLoop* loop_ = nullptr;
  std::thread thread_;
  std::atomic<bool> stop_{false};
  std::vector<std::unique_ptr<Peer>> peers_;  // LinkId: index + 1
  std::map<uint64_t, std::unique_ptr<Connection>> connections_;
  std::map<LinkId, uint64_t> incoming_;  // serial numbers of accepted connections
  uint64_t next_serial_ = 16;            // below: the server's own descriptors
  LinkId next_incoming_ = 0;
  std::string last_refusal_;
  Clock::time_point refusal_logged_{};
  Clock::time_point accept_again_{};  // not 0: the listener is not watched until then
  Counters counters_;

  // Between the threads.
  mutable std::mutex mutex_;
  std::vector<std::pair<LinkId, PacketBytes>> outbox_;
  std::deque<LinkEvent> inbox_;
  std::atomic<size_t> inbox_bytes_{0};
  std::atomic<bool> has_inbox_{false};
  std::atomic<bool> paused_{false};  // reading stopped until the engine has emptied the inbox
  // The engine's.
  std::vector<std::pair<LinkId, PacketBytes>> staged_;
  std::deque<LinkEvent> taken_;
};

}  // namespace hyperloop::softrnic
