// LinkServer: the daemon's links over TCP, with a thread of their own. A neighbour is a daemon at
// the other end of a link; it may serve several hosts. The server dials every neighbour that is
// configured for as long as it runs (this engine's requests and their answers go on that
// connection), accepts connections from neighbours (their requests), and hands packets to and from
// the engine.
//
// A packet passes through one thread where it can. The server's thread, when it has received
// packets, runs the engine itself if the engine's loop sleeps (EngineLoop::RunWhileAsleep), and
// then writes what the engine made. The loop's thread writes that to the sockets itself, unless it
// is much or the server's thread is just using them; then the server's thread does it.
//
// A connection that is silent for kDeadAfter is closed and dialed again, so that a healed cut is
// noticed long before TCP's own timers expire. Memory is bounded, and nothing is dropped for that.
// When a connection has kLinkQueueBytes of requests, the engine is told to wait. A packet is handed
// to the engine only while there is room for its answer (kConnectionAnswerBytes, kAllAnswerBytes).
// Until then nothing more is read from its connection, so that the sender waits.
//
// The file of peers is looked at each second. What it has gained, lost or has elsewhere takes
// effect without a restart. A file that cannot be used changes nothing, and is logged once. So is
// `trusted`: a link ends when its other end is not trusted any more as whom it proved to be, and
// the queue pairs of a host when it may make no links any more under any key. The file of hosts to
// which `trusted` points is both. A server without links (LinkOptions::later) looks for the keys
// and the line of its host as often, and opens its port when both are there.
//
// If memory runs out in something that a connection does, that connection ends, as by a cut: what
// it carried is lost, and sent again on the next one.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "hyperloop/core/log.h"
#include "hyperloop/core/mutex.h"
#include "hyperloop/core/status.h"
#include "hyperloop/identity/admission.h"
#include "hyperloop/identity/secure_channel.h"
#include "softrnic/commands/unix_socket.h"
#include "softrnic/daemon/file_watch.h"
#include "softrnic/daemon/limited_log.h"
#include "softrnic/daemon/link_options.h"
#include "softrnic/daemon/refusal_log.h"
#include "softrnic/links/link_port.h"
#include "softrnic/links/packet.h"
#include "softrnic/loop/engine_loop.h"

namespace hyperloop::softrnic {

// The most links that a daemon dials at a time.
inline constexpr size_t kMaxNeighbours = 1024;

class LinkServer final : public LinkPort {
 public:
  // Binds the listening socket and adds the peers of `options` to `engine`, which must not have a
  // client yet. The server becomes the port of `engine` and outlives it. Errors: the address is in
  // use or not this machine's; those of LinkOptions::ReadPeers.
  static Result<std::unique_ptr<LinkServer>> Create(LinkOptions options, Engine* engine,
                                                    std::shared_ptr<Log> log);
  ~LinkServer() override;

  // The address at which it listens, with the real port if 0 was given. Empty: none. Not of a
  // server that was started with LinkOptions::later, which may open its port at any time.
  const std::string& listening() const { return listening_; }
  // Starts the thread; `loop` is woken when packets arrive, or its engine run by the thread.
  // `nice`: the thread's nice value while it serves neighbours, if it may have it. Stop the server
  // before `loop` is destroyed.
  void Start(EngineLoop* loop, std::optional<int> nice = std::nullopt);
  void Stop();

  // What all links together have done. Any thread may call these three.
  struct Totals {
    uint64_t configured = 0, up = 0, aes_256_gcm = 0, frames_sent = 0, frames_received = 0,
             bytes_sent = 0, bytes_received = 0, connects = 0, reconnects = 0, refused = 0,
             claims_refused = 0, answer_bytes = 0;
  };
  Totals totals() const;
  // For each neighbour the names of its hosts, and the link to it.
  struct LinkState {
    std::string peer;
    bool up = false;
    std::optional<identity::Cipher> cipher;  // nothing: it is not up, or has no keys
  };
  std::vector<LinkState> LinkStates() const;
  // Totals as lines "name value\n".
  std::string CounterText() const;

  // LinkPort, for whoever runs the engine.
  bool Ready(LinkId link) override;
  void Send(LinkId link, std::span<const std::byte> packet) override;
  void Flush() override;
  bool Receive(LinkEvent* event) override;
  bool Pending() const override;
  std::string NameOf(uint64_t prefix) const override;  // any thread

 private:
  using SteadyClock = std::chrono::steady_clock;
  struct Connection;

  // A neighbour that is configured, and the link to it. There is one for each address, and another
  // one, up to a few, for hosts there that have other keys, or that the file of peers has gained
  // since.
  struct Neighbour {
    // Of the link. It changes when one that is gone is used for another address: what is under way
    // for the former one goes nowhere then.
    std::atomic<LinkId> id{kNoLink};
    LinkAddress address;             // as long as the id
    std::vector<std::string> hosts;  // changes under names_mutex_, as the name does
    std::string name;                // names of its hosts, for the log
    std::atomic<bool> gone{true};    // it has no hosts (any more), and is not dialed
    std::atomic<bool> up{false};
    // Of the last connection that was up, and set before `up`, so that a link which has keys is
    // never seen up without one. Nothing: there was none, or it had no keys.
    std::atomic<std::optional<identity::Cipher>> cipher{};
    std::atomic<int64_t> queued{0};  // bytes that the engine sent and no socket has taken
    std::atomic<bool> wants_room{false};
    uint64_t connection = 0;  // its serial number; 0: none
    SteadyClock::time_point dial_at{};
    std::chrono::milliseconds backoff{0};
    bool was_up = false;
    std::string last_error;  // logged once
  };
  // A neighbour that is to be.
  struct NewLink {
    LinkAddress address;
    std::vector<std::string> hosts;
    std::set<identity::PublicKey> keys;  // each is that of all hosts
  };
  struct Counters {
    std::atomic<uint64_t> frames_sent{0}, frames_received{0}, bytes_sent{0}, bytes_received{0},
        connects{0}, reconnects{0}, refused{0}, claims_refused{0}, answer_bytes{0};
  };
  // An event, or packets that arrived together.
  struct Arrival {
    struct Piece {
      size_t length;
      uint64_t bytes;  // counted until the packet is answered
    };
    LinkEvent event;
    Route route{};
    std::vector<std::byte> packets{};
    std::vector<Piece> pieces{};  // one for each packet
  };
  // Lists pass from thread to thread without memory of their own.
  using Arrivals = std::list<Arrival>;
  // Packets for a link, at most a full frame of them.
  struct Batch {
    LinkId link = kNoLink;
    std::vector<std::byte> packets;
    bool awaited = false;  // AnswerIsAwaited, of any of them
  };
  using Packets = std::list<Batch>;

  LinkServer(LinkOptions options, std::shared_ptr<Log> log);
  Status Listen();
  Status AddNeighbours(Engine* engine);
  static Status TooManyPeers();
  // Those that are configured, and those that were. LinkIds name them by their place.
  std::span<const std::unique_ptr<Neighbour>> Neighbours() const {
    return std::span(neighbours_).first(count_.load(std::memory_order_acquire));
  }
  // That of a configured link, which may be a former one of it (Neighbour::id). Null: there is
  // none.
  Neighbour* NeighbourAt(LinkId link) const;
  // Called by the server's thread, which holds sockets_ except while it waits in the kernel; from
  // TakeOutbox on also by who runs the engine.
  void Run();
  void HandleEvents(std::span<const epoll_event> events) HL_REQUIRES(sockets_);
  template <class F>
  void ForStranger(F&& f);
  template <class Event>
  bool Guard(Connection& c, Event&& event) HL_REQUIRES(sockets_);
  int Timers() HL_REQUIRES(sockets_);
  SteadyClock::time_point LookAtFiles(SteadyClock::time_point now) HL_REQUIRES(sockets_);
  void LookForNode() HL_REQUIRES(sockets_);
  Status TakeNode() HL_REQUIRES(sockets_);
  void LookAtPeers() HL_REQUIRES(sockets_);
  bool HostsAreNew() HL_REQUIRES(sockets_);
  void ForgetPeers() HL_REQUIRES(sockets_);
  Status TakePeers() HL_REQUIRES(sockets_);
  void ReportPeers(const Status& why) HL_REQUIRES(sockets_);
  Result<std::vector<LinkPeer>> ReadOthers() const HL_REQUIRES(sockets_);
  bool HasHostsOfFile() const HL_REQUIRES(sockets_);
  void DropHosts(Neighbour& neighbour, const std::map<std::string, LinkAddress>& wanted)
      HL_REQUIRES(sockets_);
  void CloseLinksFrom(const std::set<uint64_t>& hosts) HL_REQUIRES(sockets_);
  Neighbour& NeighbourForMore(const LinkAddress& address) HL_REQUIRES(sockets_);
  void AddHosts(Neighbour& neighbour, const std::vector<std::string>& hosts, std::string_view why)
      HL_REQUIRES(sockets_);
  Neighbour& AddNeighbour(const LinkAddress& address) HL_REQUIRES(sockets_);
  void SetHosts(Neighbour& neighbour, std::vector<std::string> hosts) HL_REQUIRES(sockets_);
  void LookAtTrusted() HL_REQUIRES(sockets_);
  void TakeTrusted() HL_REQUIRES(sockets_);
  std::vector<NewLink> LinksTo(std::span<const LinkPeer> peers) const HL_REQUIRES(sockets_);
  std::vector<identity::TrustedPeer> LinesForLinks() const HL_REQUIRES(sockets_);
  std::set<uint64_t> NamesForLinks() const HL_REQUIRES(sockets_);
  void EndQueuePairsOf(const std::set<uint64_t>& hosts) HL_REQUIRES(sockets_);
  void PartUntrusted(Neighbour& neighbour, const std::string& host) HL_REQUIRES(sockets_);
  bool HasRoomAt(const LinkAddress& address) const HL_REQUIRES(sockets_);
  bool LostItsLines() const HL_REQUIRES(sockets_);
  bool IsTrustedStill(const Connection& c) const HL_REQUIRES(sockets_);
  bool IsTrustedAs(const std::string& host) const HL_REQUIRES(sockets_);
  void KnowSource(const std::string& source) HL_REQUIRES(sockets_);
  void ForgetSources() HL_REQUIRES(sockets_);
  void Dial(Neighbour& neighbour) HL_REQUIRES(sockets_);
  void Accept() HL_REQUIRES(sockets_);
  uint64_t OneToGiveUp(const std::string& source) const HL_REQUIRES(sockets_);
  // Whether there is no room for one more connection that somebody else makes.
  bool IsFull() const HL_REQUIRES(sockets_);
  void BoundConnectionsOf(const Connection& c) HL_REQUIRES(sockets_);
  void RefreshKeys() HL_REQUIRES(sockets_);
  identity::SecureChannelOptions ChannelOptions(const Neighbour* neighbour) const
      HL_REQUIRES(sockets_);
  void WatchListener(bool on) HL_REQUIRES(sockets_);
  static bool IsNews(Neighbour& neighbour, std::string_view why);
  void HandleConnection(Connection& c, uint32_t events) HL_REQUIRES(sockets_);
  bool Connected(Connection& c) HL_REQUIRES(sockets_);
  bool ReadFrom(Connection& c) HL_REQUIRES(sockets_);
  bool TakeFrames(Connection& c) HL_REQUIRES(sockets_);
  Status JudgePacket(Connection& c, const Packet& packet, bool* refused) HL_REQUIRES(sockets_);
  void RefuseClaim(Connection& c, const Packet& packet) HL_REQUIRES(sockets_);
  bool MayHandOver(const Connection& c, uint64_t taken) HL_REQUIRES(sockets_);
  void HandOver(Connection& c, Arrival packets, uint64_t bytes) HL_REQUIRES(sockets_);
  ssize_t SendSome(Connection& c) HL_REQUIRES(sockets_);
  bool WriteTo(Connection& c) HL_REQUIRES(sockets_);
  bool IsTold(const std::string& name) HL_REQUIRES(sockets_);
  void TakeNames(Connection& c, const identity::Peer& peer) HL_REQUIRES(sockets_);
  bool Proves(Connection& c, uint64_t prefix) HL_REQUIRES(sockets_);
  void Opened(Connection& c) HL_REQUIRES(sockets_);
  void Close(uint64_t serial, std::string_view why) HL_REQUIRES(sockets_);
  void TakeOutbox() HL_REQUIRES(sockets_);
  void AddToFrame(Connection& c, Batch& batch) HL_REQUIRES(sockets_);
  void SealFrame(Connection& c) HL_REQUIRES(sockets_);
  Connection* OpenConnectionOf(LinkId link) HL_REQUIRES(sockets_);
  void CountAnswered() HL_REQUIRES(sockets_);
  void ResumeReading() HL_REQUIRES(sockets_);
  void Watch(Connection& c) HL_REQUIRES(sockets_);
  void SignOfLife(Connection& c) HL_REQUIRES(sockets_);
  void PushEvents(Arrivals events);
  void WakeThread();
  Neighbour* NeighbourOf(const Connection& c) HL_REQUIRES(sockets_);
  void TellEngine() HL_REQUIRES(sockets_);
  // Called by who runs the engine only.
  bool WriteHere();
  bool PacketsLeft() const;

  LinkOptions options_;  // changes once at most, under sockets_: when this machine becomes a host
  const std::shared_ptr<LimitedLog> log_;  // neighbours cause all of its lines
  std::string listening_;
  LinkAddress bound_;  // the address of listening_, if that is not empty
  UniqueFd listener_;
  UniqueFd epoll_;
  UniqueFd wake_;
  EngineLoop* loop_ = nullptr;
  std::thread thread_;
  std::atomic<bool> stop_{false};
  // The first count_ exist. None is ever moved or freed, so that whoever runs the engine may use
  // one whose link it was told, though that has gone meanwhile.
  std::array<std::unique_ptr<Neighbour>, kMaxNeighbours> neighbours_;
  std::atomic<size_t> count_{0};
  FileWatch peers_watch_, trusted_watch_;
  SteadyClock::time_point look_at_{};
  std::string peers_error_;  // why the file could not be read, logged once
  std::string node_error_;   // why this machine is no host yet, logged once
  static constexpr uint64_t kNoHosts = ~uint64_t{0};
  uint64_t hosts_seen_;    // KeyRing::seen_generation at the last look
  uint64_t hosts_taken_;   // KeyRing::hosts_generation that peers were made of; kNoHosts: none
  uint64_t looked_;        // KeyRing::seen_generation at the last look
  uint64_t judged_;        // KeyRing::generation by which the open links were judged last
  uint64_t reported_ = 0;  // that of which it was said that it ends no link
  uint64_t waiting_ = 0;   // that of which it was said that it ends none yet
  // GidPrefix of those that could make links then, and of those that have proved to be since.
  std::set<uint64_t> link_names_;
  std::map<uint64_t, std::unique_ptr<Connection>> connections_ HL_GUARDED_BY(sockets_);
  // Serial numbers of accepted connections.
  std::map<LinkId, uint64_t> incoming_ HL_GUARDED_BY(sockets_);
  uint64_t next_serial_ HL_GUARDED_BY(sockets_) = 16;  // below: the server's own descriptors
  LinkId next_incoming_ = 0;
  RefusalLog refusals_;
  KnownSources known_sources_;              // of neighbours, configured or proven
  int introductions_ = 0;                   // steps that may still be taken in this turn
  SteadyClock::time_point accept_again_{};  // not 0: the listener is not watched until then
  // Of all connections that neighbours made, as of the last turn.
  size_t answer_bytes_ HL_GUARDED_BY(sockets_) = 0;
  // Part of handed_ that was answered when the outbox was last read.
  uint64_t answered_ HL_GUARDED_BY(sockets_) = 0;
  // What the engine was handed and has not answered, in order: (connection, bytes).
  std::deque<std::pair<uint64_t, uint64_t>> in_flight_ HL_GUARDED_BY(sockets_);
  // The serial number of the connection that was resumed last.
  uint64_t resumed_ HL_GUARDED_BY(sockets_) = 0;
  SteadyClock::time_point read_keys_at_{};  // not before, for a claim of an open connection
  int nice_ = 0, own_nice_ = 0;
  Counters counters_;

  mutable Mutex names_mutex_;  // guards Neighbour::name and hosts; any thread
  // Shared by the two threads.
  mutable Mutex mutex_;
  Packets outbox_ HL_GUARDED_BY(mutex_);
  Arrivals inbox_ HL_GUARDED_BY(mutex_);
  std::atomic<bool> has_inbox_{false}, has_outbox_{false};
  std::atomic<bool> waits_{false};  // the server's thread waits in the kernel, or is about to
  // Sums of Piece::bytes: of all pushed packets, and of those whose answers are in the outbox.
  std::atomic<uint64_t> handed_{0}, done_{0};
  std::atomic<bool> starved_{false};  // the thread has packets that wait for done_
  // Guards what the server's thread uses, above. Who runs the engine only tries to get it.
  Mutex sockets_;
  // Used by who runs the engine only.
  Packets staged_;
  size_t staged_bytes_ = 0;
  size_t flushed_bytes_ = 0;  // of the last turn that sent any, but a full frame at most
  Arrivals taken_;
  Arrivals current_;          // at most one: the packets of which Receive returned some
  size_t next_ = 0, at_ = 0;  // the index of its next packet, and where that begins
  uint64_t received_ = 0;     // the sum of Piece::bytes of the packets that Receive returned
};

}  // namespace hyperloop::softrnic
