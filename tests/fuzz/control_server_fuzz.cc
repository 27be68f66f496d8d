// The control plane over TCP: a real ControlServer on loopback in this process, with keys or
// without. The input drives connections of strangers, of a host that may only look, and of a
// primary: introductions, messages of any content in any pieces, frames and plain bytes, changed
// and repeated on the way, and cut off; and descriptors run out. This target takes the place of the
// replica's node and answers. Rules: after each step an honest primary's request is answered; with
// keys only what a known host said is handled, once, and only what its role allows; every answer
// parses; each line of the log is short and printable; how many connections the server keeps is
// bounded.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/printable.h"
#include "control/server.h"
#include "fuzz/driven_connection.h"
#include "fuzz/fuzz.h"
#include "fuzz/known_hosts.h"
#include "fuzz/message_stream.h"
#include "support/must.h"

namespace hyperloop::fuzz {
namespace {

using namespace control;  // NOLINT(google-build-using-namespace)
using identity::kRolePrimary;
using identity::kRoleReplica;

constexpr uint8_t kKeyed = 1;  // a bit of the first byte
enum Step : uint8_t {
  kConnect,
  kCrowd,    // several of one kind connect; they may introduce themselves
  kRequest,  // a message, with some bytes changed
  kFrame,    // a frame of any body
  kBytes,
  kSend,
  kSendOn,  // the server handles it together with what follows
  kHear,
  kSpoil,
  kRepeat,
  kEnd,
  kNoDescriptors,
  kSteps
};
// Whose a connection is. Without keys all are the same.
enum Who : uint8_t { kWithoutKeys, kUntrusted, kLooker, kPrimary, kWhos };
enum Ask : uint8_t { kHello, kSeal, kChecksums, kTooMuch, kInstall, kNoMemory, kNoRequest, kAsks };
constexpr size_t kMostSteps = 120;
constexpr size_t kMostConnections = ControlServer::kStrangerLimits.all + 8;
constexpr size_t kAll = UINT16_MAX;
constexpr unsigned kSources = 8;  // of each kind
constexpr auto kPatience = std::chrono::seconds(30);
constexpr size_t kLongestLine = 6000;

int GreatestDescriptor() {
  int greatest = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    greatest = std::max(greatest, std::stoi(entry.path().filename().string()));
  return greatest;
}

class Hosts {
 public:
  Hosts() {
    for (const char* host : {"server", "honest", "driven", "looker", "unknown"}) known_.Make(host);
    for (const char* host : {"honest", "driven", "looker", "unknown"})
      known_.Let(host, "server", kRoleReplica);
    for (const char* host : {"honest", "driven"}) known_.Let("server", host, kRolePrimary);
    known_.Let("server", "looker", kRoleReplica);
    server = Load("server"), honest = Load("honest"), driven = Load("driven");
    looker = Load("looker"), unknown = Load("unknown");
  }
  static const Hosts& Get() {
    static const Hosts hosts;
    return hosts;
  }
  const Trust& Of(Who who) const {
    return who == kPrimary ? driven : who == kLooker ? looker : who == kUntrusted ? unknown : none;
  }

 private:
  Trust Load(const char* host) const { return Must(Trust::Load(known_.Dir(host), nullptr)); }
  KnownHosts known_;

 public:
  Trust server, honest, driven, looker, unknown;
  const Trust none;
};

class CheckedLog final : public Log {
 public:
  void Write(LogLevel, std::string_view line) override {
    HL_FUZZ_CHECK(IsPrintable(line) && line.size() <= kLongestLine, line);
  }
};

// An address from which only connections of one kind come, and never the honest primary's.
std::string SourceOf(Who who, unsigned number) {
  return "127.0." + std::to_string(2 + who) + "." + std::to_string(1 + number % kSources);
}

UniqueFd ConnectFrom(const std::string& source, uint16_t port) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  HL_FUZZ_CHECK(inet_pton(AF_INET, source.c_str(), &address.sin_addr) == 1, source);
  HL_FUZZ_CHECK(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0, source);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  HL_FUZZ_CHECK(TEMP_FAILURE_RETRY(
                    connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address)) == 0,
                source);
  return fd;
}

class Driven : public DrivenConnection {
 public:
  Driven(UniqueFd socket, Who who, std::string source, std::unique_ptr<identity::SecureChannel> end)
      : DrivenConnection(std::move(socket), std::move(end), kMaxRequest,
                         [this](std::span<const std::byte> piece) { Understand(piece); }),
        who_(who),
        source_(std::move(source)) {}
  Who who() const { return who_; }
  const std::string& source() const { return source_; }
  MessageStream& said() { return said_; }

 private:
  void Understand(std::span<const std::byte> piece) {
    answers_.Append(piece);
    while (const auto message = answers_.Next()) {
      const auto body = ParseMessage(*message);
      HL_FUZZ_CHECK(body.ok(), body.status().ToString());
      if (const auto* error = As<ErrorT>(*body))
        HL_FUZZ_CHECK(!error->message.empty() && IsPrintable(error->message), "a mute refusal");
    }
    HL_FUZZ_CHECK(!answers_.ended(), "an answer of an impossible length");
  }

  const Who who_;
  const std::string source_;
  MessageStream said_{kMaxRequest}, answers_{kMaxReply};
};

BodyUnion MakeRequest(Ask ask, uint32_t number) {
  switch (ask) {
    case kHello:
      return MakeBody(HelloRequestT{});
    case kSeal: {
      SealRequestT seal;
      seal.epoch = number;
      seal.owner_name = "pid 7\non a host";
      return MakeBody(std::move(seal));
    }
    case kInstall: {
      InstallRequestT install;
      install.nodes = {"node"}, install.replicas = {"host:1"};
      return MakeBody(std::move(install));
    }
    case kNoMemory:
      return MakeBody(ReleaseRequestT{});
    case kNoRequest:
      return MakeBody(HelloReplyT{});
    default: {
      ChecksumsRequestT checksums;
      checksums.length = number;
      checksums.block_size = ask == kTooMuch ? 1 : 0;
      return MakeBody(std::move(checksums));
    }
  }
}

// A primary that keeps to the protocol.
class Honest {
 public:
  explicit Honest(const Endpoint& server, const Trust& trust)
      : socket_(ConnectFrom("127.0.0.1", server.port)), channel_(trust.Dial(server), kMaxReply) {}
  bool open() const { return channel_.open(); }
  std::vector<uint8_t> Ask(uint64_t round) {
    HelloRequestT hello;
    hello.owner_id.assign(sizeof round, 0);
    std::memcpy(hello.owner_id.data(), &round, sizeof round);
    const auto frame = EncodeFrame(MakeBody(std::move(hello)));
    channel_.Send(frame);
    return frame;
  }
  // Sends what waits, and takes what has come. The round of the last answer.
  uint64_t Exchange() {
    const auto out = channel_.TakeOutput();
    HL_FUZZ_CHECK(send(socket_.get(), out.data(), out.size(), MSG_NOSIGNAL) ==
                      static_cast<ssize_t>(out.size()),
                  "an honest primary is shut out");
    std::array<std::byte, 4096> buffer;
    const ssize_t n = recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    HL_FUZZ_CHECK(n > 0 || (n < 0 && errno == EAGAIN), "an honest primary is shut out");
    if (n > 0) channel_.Append(std::span(buffer).first(static_cast<size_t>(n)));
    while (const auto message = Must(channel_.Next())) {
      const BodyUnion body = Must(ParseMessage(*message));
      const auto* reply = As<HelloReplyT>(body);
      HL_FUZZ_CHECK(reply != nullptr, "another's answer");
      heard_ = reply->region_size;
    }
    return heard_;
  }

 private:
  UniqueFd socket_;
  MessageChannel channel_;
  uint64_t heard_ = 0;
};

class Peers {
 public:
  explicit Peers(Reader& in) : in_(in), mode_(in.U8()) {
    const Hosts& hosts = Hosts::Get();
    server_ = Must(ControlServer::Listen(
        {"127.0.0.1", 0}, keyed() ? hosts.server : hosts.none,
        [this](const BodyUnion& request) { return Answer(request); },
        std::make_shared<CheckedLog>()));
    honest_.emplace(server_->endpoint(), keyed() ? hosts.honest : hosts.none);
    Until([this] { return honest_->open(); });
    Settle();
  }

  void Run() {
    for (size_t i = 0; i < kMostSteps && !in_.done(); ++i) TakeStep();
    // So many turns accept everybody, unless the server pauses because descriptors ran out.
    for (int i = 0; i < 6; ++i) Settle();
    if (!ran_out_) CheckConnections();
    for (Driven& each : driven_) {
      each.Send(SIZE_MAX);
      each.Hear();
    }
    Settle();
  }

 private:
  bool keyed() const { return (mode_ & kKeyed) != 0; }

  void TakeStep() {
    const uint8_t step = in_.U8() % kSteps;
    const uint8_t which = in_.U8();
    if (step == kConnect) {
      Connect(static_cast<Who>(which % kWhos), which / kWhos);
      Settle();
    } else if (step == kCrowd) {
      Crowd(static_cast<Who>(which % kWhos), which / kWhos);
    } else if (step == kNoDescriptors) {
      RunOutOfDescriptors(static_cast<Who>(which % kWhos), which / kWhos);
    } else if (!driven_.empty()) {
      Drive(static_cast<Step>(step), driven_[which % driven_.size()]);
    }
  }

  void Connect(Who who, unsigned number) {
    if (driven_.size() == kMostConnections) return;
    const std::string source = SourceOf(who, number);
    Add(who, source, ConnectFrom(source, server_->endpoint().port));
  }
  void Add(Who who, const std::string& source, UniqueFd fd) {
    const Trust& trust = keyed() ? Hosts::Get().Of(who) : Hosts::Get().none;
    driven_.emplace_back(std::move(fd), who, source, trust.Dial(server_->endpoint()));
  }
  void Crowd(Who who, unsigned number) {
    const size_t before = driven_.size();
    for (unsigned n = in_.U8(); n > 0; --n) Connect(who, number);
    Settle();
    for (unsigned steps = in_.U8() % 4u; steps > 0; --steps) {
      for (size_t i = before; i < driven_.size(); ++i) {
        driven_[i].Hear();
        driven_[i].Send(kAll);
      }
      Settle();
    }
  }
  // One connects while no descriptor is left to accept it with.
  void RunOutOfDescriptors(Who who, unsigned number) {
    if (driven_.size() == kMostConnections) return;
    ran_out_ = true;
    const std::string source = SourceOf(who, number);
    UniqueFd fd = ConnectFrom(source, server_->endpoint().port);
    // A limit below descriptors that are open already would be another case: poll refuses it.
    const int greatest = GreatestDescriptor();
    std::vector<UniqueFd> taken;
    do {
      taken.emplace_back(dup(fd.get()));
      HL_FUZZ_CHECK(taken.back(), "a descriptor");
    } while (taken.back().get() < greatest);
    rlimit before{};
    getrlimit(RLIMIT_NOFILE, &before);
    rlimit none = before;
    none.rlim_cur = static_cast<rlim_t>(taken.back().get()) + 1;
    HL_FUZZ_CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0, "a lower limit");
    Settle();
    HL_FUZZ_CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0, "the former limit");
    Add(who, source, std::move(fd));
  }

  void Drive(Step step, Driven& c) {
    switch (step) {
      case kRequest:
        Say(c, MakeMessage());
        break;
      case kFrame:
        Say(c, MakeBytes());
        break;
      case kBytes:
        c.Put(MakeBytes());
        break;
      case kSpoil: {
        const uint16_t at = in_.U16();
        c.Spoil(at, in_.U8());
        break;
      }
      case kRepeat:
        c.Repeat(in_.U16());
        break;
      case kSendOn:
        c.Send(in_.U16());
        break;
      case kHear:
        c.Hear();
        break;
      case kEnd:
        c.End((in_.U8() & 1) != 0);
        Settle();
        break;
      default:
        c.Send(in_.U16());
        Settle();
    }
  }

  std::span<const std::byte> MakeBytes() { return std::as_bytes(in_.Bytes(in_.U8())); }
  // A message of the other end, with some bytes changed.
  std::vector<std::byte> MakeMessage() {
    const auto ask = static_cast<Ask>(in_.U8() % kAsks);
    const uint32_t number = in_.U32();
    const auto frame = EncodeFrame(MakeRequest(ask, number));
    const auto bytes = std::as_bytes(std::span(frame));
    std::vector<std::byte> message(bytes.begin(), bytes.end());
    for (unsigned n = in_.U8() % 4u; n > 0; --n) {
      const size_t at = in_.U16() % message.size();
      message[at] = static_cast<std::byte>(in_.U8());
    }
    return message;
  }
  void Say(Driven& c, std::span<const std::byte> body) {
    if (!c.Say(body)) return;
    c.said().Append(body);
    while (const auto message = c.said().Next()) {
      const auto parsed = ParseMessage(*message);
      if (parsed.ok() && (c.who() == kPrimary || parsed->type == Body::HelloRequest))
        said_.insert(EncodeFrame(*parsed));
    }
  }

  // In the node's place.
  BodyUnion Answer(const BodyUnion& request) {
    if (keyed()) {
      const auto said = said_.find(EncodeFrame(request));
      HL_FUZZ_CHECK(said != said_.end(), "handled what nobody said who may, or said once");
      said_.erase(said);
    }
    if (const auto* hello = As<HelloRequestT>(request)) {
      HelloReplyT reply;
      const size_t bytes = std::min(hello->owner_id.size(), sizeof reply.region_size);
      std::copy_n(hello->owner_id.begin(), bytes, reinterpret_cast<uint8_t*>(&reply.region_size));
      return MakeBody(std::move(reply));
    }
    if (const auto* checksums = As<ChecksumsRequestT>(request)) {
      ChecksumsReplyT reply;
      reply.checksums.resize(checksums->block_size == 1 ? kMaxReply / sizeof(uint64_t)
                                                        : checksums->length % (1u << 17));
      return MakeBody(std::move(reply));
    }
    if (As<ReleaseRequestT>(request) != nullptr) throw std::bad_alloc();
    return MakeError(Fenced("not here"));
  }

  template <class Done>
  void Until(Done&& done) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    for (;; sched_yield()) {
      honest_->Exchange();
      if (done()) return;
      Must(server_->Serve(Clock::now(), -1));
      HL_FUZZ_CHECK(std::chrono::steady_clock::now() < deadline, "an honest request is kept out");
    }
  }
  // The honest primary's request is answered. What was sent before was read before.
  void Settle() {
    ++round_;
    said_.insert(honest_->Ask(round_));
    Until([this] { return honest_->Exchange() == round_; });
  }

  // What the server keeps open.
  void CheckConnections() {
    size_t strangers = 0, known = 0;
    std::map<std::string, size_t> of_source;  // strangers
    for (Driven& each : driven_) {
      each.Hear();  // whether the server has closed it
      if (each.ended()) continue;
      if (each.open()) {
        HL_FUZZ_CHECK(!keyed() || each.who() >= kLooker, "a stranger was let in");
        ++known;
        continue;
      }
      HL_FUZZ_CHECK(++of_source[each.source()] <= ControlServer::kStrangerLimits.of_source,
                    each.source());
      if (each.who() <= kUntrusted) ++strangers;
    }
    HL_FUZZ_CHECK(!keyed() || strangers <= ControlServer::kStrangerLimits.all,
                  std::to_string(strangers));
    HL_FUZZ_CHECK(known <= ControlServer::kMaxConnections, std::to_string(known));
  }

  Reader& in_;
  const uint8_t mode_;
  std::unique_ptr<ControlServer> server_;
  std::optional<Honest> honest_;
  uint64_t round_ = 0;
  bool ran_out_ = false;
  std::deque<Driven> driven_;
  std::multiset<std::vector<uint8_t>> said_;  // and not handled yet
};

// Writes the steps of seeds.
class Script {
 public:
  explicit Script(unsigned mode) { out_.U8(mode); }
  Script& Connect(Who who, unsigned source = 0) { return Begin(kConnect, who + source * kWhos); }
  Script& Crowd(Who who, unsigned source, unsigned count, unsigned steps) {
    Begin(kCrowd, who + source * kWhos).out_.U8(count).U8(steps);
    return *this;
  }
  Script& NoDescriptors(Who who) { return Begin(kNoDescriptors, who); }
  Script& Send(unsigned which, size_t most = kAll) { return Begin(kSend, which).Number(most); }
  Script& SendOn(unsigned which) { return Begin(kSendOn, which).Number(kAll); }
  Script& Hear(unsigned which) { return Begin(kHear, which); }
  Script& Introduce(unsigned which) { return Send(which).Hear(which).Send(which).Hear(which); }
  Script& Request(unsigned which, Ask ask, uint32_t number = 0,
                  std::initializer_list<std::pair<unsigned, unsigned>> changes = {}) {
    Begin(kRequest, which).out_.U8(ask).U32(number).U8(static_cast<unsigned>(changes.size()));
    for (const auto& [at, value] : changes) out_.U16(at).U8(value);
    return *this;
  }
  Script& Body(Step step, unsigned which, std::string_view bytes) {
    Begin(step, which)
        .out_.U8(static_cast<unsigned>(bytes.size()))
        .Bytes(bytes.data(), bytes.size());
    return *this;
  }
  Script& Spoil(unsigned which, unsigned at) {
    Begin(kSpoil, which).out_.U16(at).U8(1);
    return *this;
  }
  Script& Repeat(unsigned which, unsigned from) { return Begin(kRepeat, which).Number(from); }
  Script& End(unsigned which, bool reset) {
    Begin(kEnd, which).out_.U8(reset ? 1 : 0);
    return *this;
  }
  Input Finish() { return out_.Finish(); }

 private:
  Script& Begin(Step step, unsigned which) {
    out_.U8(step).U8(which);
    return *this;
  }
  Script& Number(size_t number) {
    out_.U16(static_cast<unsigned>(number));
    return *this;
  }
  Writer out_;
};

// Each request, by whom may make it and by whom may not, whole and in pieces.
Input Requests(unsigned mode) {
  Script s(mode);
  s.Connect(kPrimary).Connect(kLooker).Introduce(0).Introduce(1);
  for (const Ask ask : {kHello, kSeal, kChecksums, kInstall, kNoRequest})
    for (const unsigned which : {0u, 1u}) s.Request(which, ask, 9).Send(which, 30).Send(which);
  s.Request(0, kHello).Request(0, kHello).Send(0).Send(0).Hear(0).Hear(1);  // two at once
  s.Request(0, kChecksums, 100000).Send(0).Request(0, kHello).Send(0).Hear(0).Send(0).Hear(0);
  return s.Request(0, kTooMuch).Send(0).Hear(0).Request(0, kHello).SendOn(0).End(0, false).Finish();
}

// What ends a connection, on one each.
Input Faults(unsigned mode) {
  Script s(mode);
  for (const unsigned each : {0u, 1u, 2u, 3u, 4u, 5u}) s.Connect(kPrimary).Introduce(each);
  s.Request(0, kHello, 0, {{20, 99}, {24, 7}}).Send(0);
  s.Body(kFrame, 1, "\xff\xff\xff\xff no message").Send(1);
  s.Body(kBytes, 2, "\xff\xff\xff\xff and no frame").Send(2);
  s.Request(3, kHello).Spoil(3, 30).Send(3);
  s.Request(4, kNoMemory).Send(4);
  s.Request(5, kChecksums, 100000).Send(5).End(5, true);
  return s.Hear(0).Hear(1).Hear(2).Hear(3).Hear(4).Finish();
}

Input Strangers(unsigned mode) {
  Script s(mode);
  s.Connect(kWithoutKeys).Connect(kUntrusted).Connect(kPrimary);
  s.Send(1, 20).Send(0).Send(1).Hear(1).Send(1, 10).Send(1).Hear(1).Hear(0);
  s.Send(2).Hear(2).Spoil(2, 30).Send(2).Hear(2);
  s.Connect(kWithoutKeys).Body(kBytes, 3, "GET / HTTP/1.1\r\n\r\n").Send(3).Hear(3);
  s.Connect(kUntrusted).Body(kFrame, 4, "early").Send(4).End(4, false);
  for (int i = 0; i < 10; ++i) s.Connect(kWithoutKeys);
  return s.NoDescriptors(kPrimary).Send(15).Finish();
}

std::vector<Input> Seeds() {
  std::vector<Input> seeds;
  for (const unsigned mode : {0u, 0u + kKeyed}) {
    seeds.push_back(Requests(mode));
    seeds.push_back(Faults(mode));
    seeds.push_back(Strangers(mode));
    Script many(mode);
    many.Crowd(kPrimary, 0, ControlServer::kMaxConnections / 2 + 2, 3);
    seeds.push_back(many.Crowd(kPrimary, 1, ControlServer::kMaxConnections / 2, 3).Finish());
    Script crowd(mode);
    for (unsigned source = 0; source < 5; ++source)
      crowd.Crowd(kWithoutKeys, source, 52, source == 1 ? 1 : 0);
    seeds.push_back(crowd.Finish());
    Script of_one_source(mode);
    of_one_source.Crowd(kUntrusted, 0, ControlServer::kStrangerLimits.of_source + 2, 0);
    seeds.push_back(of_one_source.Finish());
  }
  Script replayed(kKeyed);
  replayed.Connect(kPrimary).Introduce(0).Request(0, kInstall).Send(0);
  seeds.push_back(replayed.Repeat(0, 0).Send(0).Hear(0).Finish());
  return seeds;
}

const FuzzTarget kFuzzTarget("control_server", Seeds, [](Reader& in) { Peers(in).Run(); });

}  // namespace
}  // namespace hyperloop::fuzz
