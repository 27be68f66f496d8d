// Links over TCP: a real LinkServer on loopback in this process, with keys or without. The input
// drives connections of strangers and of a trusted neighbour, and the one that the server dials:
// introductions, packets with any header, frames with any body and plain bytes, sent in any pieces,
// changed and repeated on the way, and cut off. This target takes the place of the engine and
// answers; now and then no descriptor is left. Rules: after each step an honest neighbour's request
// is answered; the engine gets only packets that parse and belong where they came; with keys only
// those that a trusted neighbour sent, once and in its own name; what the server holds for
// connections, and how many it keeps of one source or neighbour, is bounded.
#include <endian.h>
#include <gtest/gtest.h>
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
#include <set>
#include <sstream>

#include "fuzz/driven_connection.h"
#include "fuzz/fuzz.h"
#include "hyperloop/identity/openssl_ciphers.h"
#include "softrnic/daemon/link_connection.h"
#include "softrnic/daemon/testing/raw_neighbour.h"
#include "support/keys.h"
#include "support/must.h"

namespace hyperloop::fuzz {
namespace {

using namespace softrnic;  // NOLINT(google-build-using-namespace)
using Bytes = std::vector<std::byte>;
using Ring = std::shared_ptr<identity::KeyRing>;

// Bits of the first byte.
enum Mode : uint8_t { kKeyed = 1, kDialing = 2, kWrongHostIsDialed = 4 };
enum Step : uint8_t {
  kConnect,
  kPacket,
  kFrame,
  kBytes,
  kSend,
  kSendOn,  // the server handles it together with what follows
  kHear,
  kSpoil,
  kRepeat,
  kAsk,
  kEnd,
  kEngineAsks,
  kNoDescriptors,
  kSteps
};
// Whose a connection to the server is. Without keys all are the same.
enum Who : uint8_t { kWithoutKeys, kUntrusted, kNeighbour, kWhos };
constexpr size_t kMostSteps = 120;
constexpr size_t kMostConnections = kStrangerLimits.all + 8;
constexpr size_t kAll = UINT16_MAX;
constexpr LinkId kDialedLink = 1;

// The keys of the server's host, of an honest neighbour, of the one that the input drives, and of a
// host that nobody trusts.
struct Keys {
  Keys() {
    std::string pattern = std::filesystem::temp_directory_path() / "hyperloop-fuzz-XXXXXX";
    HL_FUZZ_CHECK(mkdtemp(pattern.data()) != nullptr, pattern);
    folder = pattern;
    test::MakeKeys(folder, {"server", "honest", "driven"});
    server = Load("server");
    honest = Load("honest");
    driven = Load("driven");
    Must(identity::MakeIdentity(test::KeysDir(folder, "unknown"), "unknown"));
    Must(identity::Trust(test::KeysDir(folder, "unknown"),
                         {"server", server->public_key(), identity::kRoleLink}));
    unknown = Load("unknown");
  }
  ~Keys() { std::filesystem::remove_all(folder); }
  Ring Load(const std::string& host) const {
    return Must(identity::KeyRing::Load(test::KeysDir(folder, host)));
  }
  Ring OfConnection(Who who) const {
    return who == kNeighbour ? driven : who == kUntrusted ? unknown : nullptr;
  }

  std::string folder;
  Ring server, honest, driven, unknown;
};

const Keys& TheKeys() {
  static const Keys keys;
  return keys;
}

// An address from which only such connections come, and never the honest neighbour's.
std::string SourceOf(Who who, unsigned number) {
  return (who == kNeighbour ? "127.0.2." : "127.0.3.") + std::to_string(1 + number);
}

// One connection that the input drives.
class Driven : public DrivenConnection {
 public:
  Driven(UniqueFd socket, Who who, std::string source, bool dialer, Ring ring)
      : DrivenConnection(std::move(socket),
                         std::make_unique<identity::SecureChannel>(
                             LinkChannel(dialer, std::move(ring), identity::OpenSslCiphers())),
                         kMaxPacketBytes, Understand),
        who_(who),
        source_(std::move(source)) {}
  Who who() const { return who_; }
  const std::string& source() const { return source_; }

 private:
  static void Understand(std::span<const std::byte> frame) {
    while (!frame.empty()) {
      const auto packet = TakePacket(&frame);
      HL_FUZZ_CHECK(packet.ok(), packet.status().ToString());
    }
  }

  const Who who_;
  const std::string source_;
};

// An answer of the length that the server counts on.
Bytes AnswerTo(const Packet& request) {
  static const Bytes zeros(kMaxPayload);
  Packet answer{.type = PacketType::kAck,
                .dest_qpn = 1,
                .source_qpn = 1,
                .session = request.session,
                .psn = request.psn};
  if (request.type == PacketType::kRead) {
    answer.type = PacketType::kReadResponse;
    answer.payload = std::span(zeros).first(request.length);
  } else if (request.type == PacketType::kServiceRequest) {
    answer.type = PacketType::kServiceReply;
    answer.psn = 0;
    answer.payload = std::span(zeros).first(kMaxServiceReply);
  }
  return EncodePacket(answer);
}

class Links {
 public:
  explicit Links(Reader& in) : in_(in), mode_(in.U8()) {
    LinkOptions options;
    options.listen = Must(ParseLinkAddress("127.0.0.1:0", /*any_port=*/true));
    if (keyed()) options.keys = TheKeys().server;
    options.ciphers = identity::OpenSslCiphers();
    UniqueFd listener;
    if ((mode_ & kDialing) != 0) options.peers = {Must(ParseLinkPeer(Listen(&listener)))};
    server_ = Must(LinkServer::Create(options, &engine_, nullptr));
    loop_ = Must(EngineLoop::Create(&engine_, {}));
    server_->Start(loop_.get());
    honest_.emplace(server_->listening(), keyed() ? TheKeys().honest : nullptr);
    Must(honest_->Introduce());
    Settle();
    if ((mode_ & kDialing) == 0) return;
    UniqueFd accepted(TEMP_FAILURE_RETRY(accept(listener.get(), nullptr, nullptr)));
    HL_FUZZ_CHECK(accepted, "a configured neighbour is not dialed");
    Ring ring;
    if (keyed()) ring = (mode_ & kWrongHostIsDialed) != 0 ? TheKeys().honest : TheKeys().driven;
    driven_.emplace_back(std::move(accepted), kNeighbour, "", /*dialer=*/false, std::move(ring));
    dialed_ = &driven_.front();
  }
  ~Links() { server_->Stop(); }

  void Run() {
    for (size_t i = 0; i < kMostSteps && !in_.done(); ++i) TakeStep();
    Settle();
    if (!ran_out_) CheckConnections();
    for (Driven& each : driven_) {
      each.Send(SIZE_MAX);
      each.Hear();
    }
    Settle();
  }

 private:
  bool keyed() const { return (mode_ & kKeyed) != 0; }

  // Where the server dials, as an option.
  static std::string Listen(UniqueFd* listener) {
    LinkAddress address = Must(ParseLinkAddress("127.0.0.1:0", /*any_port=*/true));
    auto* const own = reinterpret_cast<sockaddr*>(&address.storage);
    listener->Reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    SetPatience(*listener);
    HL_FUZZ_CHECK(bind(listener->get(), own, address.length) == 0 &&
                      listen(listener->get(), 8) == 0 &&
                      getsockname(listener->get(), own, &address.length) == 0,
                  "listening");
    return "driven=" + address.ToString();
  }

  void TakeStep() {
    const uint8_t step = in_.U8() % kSteps;
    const uint8_t which = in_.U8();
    if (step == kConnect) {
      Connect(static_cast<Who>(which % kWhos), which / kWhos);
    } else if (step == kEngineAsks) {
      EngineAsks(which);
    } else if (step == kNoDescriptors) {
      RunOutOfDescriptors(static_cast<Who>(which % kWhos), which / kWhos);
    } else if (!driven_.empty()) {
      Drive(static_cast<Step>(step), driven_[which % driven_.size()]);
    }
  }

  void Connect(Who who, unsigned number) {
    if (driven_.size() == kMostConnections) return;
    const std::string source = SourceOf(who, number);
    Add(who, source, ConnectTo(server_->listening(), source));
    Settle();
  }
  void Add(Who who, const std::string& source, UniqueFd fd) {
    driven_.emplace_back(std::move(fd), who, source, /*dialer=*/true,
                         keyed() ? TheKeys().OfConnection(who) : nullptr);
  }
  // One connects while no descriptor is left to accept it with. The server accepts nobody for a
  // while then.
  void RunOutOfDescriptors(Who who, unsigned number) {
    if (driven_.size() == kMostConnections) return;
    ran_out_ = true;
    const std::string source = SourceOf(who, number);
    rlimit before{};
    getrlimit(RLIMIT_NOFILE, &before);
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const UniqueFd last(dup(fd.get()));
    fd.Reset(-1);
    rlimit none = before;
    none.rlim_cur = static_cast<rlim_t>(last.get()) + 1;
    HL_FUZZ_CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0, "a lower limit");
    fd = ConnectTo(server_->listening(), source);
    Settle();
    HL_FUZZ_CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0, "the former limit");
    Add(who, source, std::move(fd));
  }

  void Drive(Step step, Driven& c) {
    switch (step) {
      case kPacket:
        Say(c, MakePacket());
        break;
      case kFrame:
        Say(c, MakeBody());
        break;
      case kBytes:
        c.Put(MakeBody());
        break;
      case kSpoil: {
        const uint16_t at = in_.U16();
        c.Spoil(at, in_.U8());
        break;
      }
      case kRepeat:
        c.Repeat(in_.U16());
        break;
      case kAsk:
        for (unsigned n = in_.U8() % 128u; n > 0; --n) Say(c, LongestRequest());
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

  void Say(Driven& c, const Bytes& body) {
    if (!c.Say(body)) return;
    for (std::span<const std::byte> rest = body; !rest.empty();) {
      const auto before = rest;
      if (!TakePacket(&rest).ok()) return;
      const auto packet = before.first(before.size() - rest.size());
      said_.emplace(packet.begin(), packet.end());
    }
  }
  Bytes MakeBody() {
    const auto bytes = std::as_bytes(in_.Bytes(in_.U8()));
    return {bytes.begin(), bytes.end()};
  }
  // A packet of any type in some host's name, with some bytes of its header changed.
  Bytes MakePacket() {
    Packet packet{.type = static_cast<PacketType>(in_.U8() % 20), .dest_qpn = 3, .source_qpn = 4};
    packet.session = 5;
    const uint8_t host = in_.U8();
    Bytes payload(in_.U8());
    const uint64_t prefix = htobe64(GidPrefix(host % 2 != 0 ? "driven" : "honest"));
    for (const size_t at : {size_t{0}, sizeof(GidBytes)})
      if (payload.size() >= at + sizeof prefix)
        std::memcpy(payload.data() + at, &prefix, sizeof prefix);
    if (packet.type == PacketType::kSend || packet.type == PacketType::kWrite)
      packet.total = static_cast<uint32_t>(payload.size());
    if (packet.type == PacketType::kServiceRequest) packet.dest_qpn = 0;
    packet.payload = payload;
    Bytes bytes = EncodePacket(packet);
    for (unsigned n = in_.U8() % 4u; n > 0; --n) {
      const size_t at = in_.U8() % kPacketHeaderBytes;
      bytes[at] = static_cast<std::byte>(in_.U8());
    }
    return bytes;
  }

  // As many requests as the link takes.
  void EngineAsks(uint8_t times) {
    static const Bytes payload(kMaxPayload);
    const Bytes request = EncodePacket({.type = PacketType::kSend,
                                        .dest_qpn = 1,
                                        .source_qpn = 1,
                                        .session = 1,
                                        .total = kMaxPayload,
                                        .payload = payload});
    while (times-- != 0 && server_->Ready(kDialedLink)) server_->Send(kDialedLink, request);
    Settle();
  }

  // The honest neighbour's request is answered. What was sent before was handled before.
  void Settle() {
    ++round_;
    answered_ = false;
    honest_->Say(
        {.type = PacketType::kSend, .dest_qpn = 1, .source_qpn = 1, .session = round_, .psn = 7});
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    for (; !answered_; sched_yield()) {
      Serve();
      HL_FUZZ_CHECK(std::chrono::steady_clock::now() < deadline, "an honest request is kept out");
    }
    const auto heard = honest_->Hear();
    HL_FUZZ_CHECK(heard.has_value(), "an honest neighbour is shut out");
    HL_FUZZ_CHECK(heard->session == round_ && heard->psn == 7, "an answer to another's request");
    HL_FUZZ_CHECK(
        Counter("link_answer_bytes") <= driven_.size() * kConnectionAnswerBytes + kMaxPacketBytes,
        "answers that nobody takes");
  }

  // A turn of the engine.
  void Serve() {
    uint64_t taken = 0;
    for (LinkEvent event; server_->Receive(&event);) {
      if (event.kind != LinkEvent::Kind::kPacket) {
        HL_FUZZ_CHECK(dialed_ != nullptr && event.link == kDialedLink, "an event of no link");
        continue;
      }
      const auto packet = ParsePacket(event.packet);
      HL_FUZZ_CHECK(packet.ok(), packet.status().ToString());
      taken += std::max<size_t>(event.packet.size(), kPacketHeaderBytes + packet->length);
      const bool request = IsRequest(packet->type);
      HL_FUZZ_CHECK(request == (event.link >= kIncomingLinks), "on a link of the wrong direction");
      if (honest_link_ == kNoLink) honest_link_ = event.link;
      if (event.link == honest_link_) {
        HL_FUZZ_CHECK(packet->session == round_, "another spoke on an honest neighbour's link");
        answered_ = true;
      } else if (keyed()) {
        CheckProved(*packet, event.packet);
      }
      if (request) server_->Send(event.link, AnswerTo(*packet));
    }
    HL_FUZZ_CHECK(taken < kLinkInFlightBytes + kMaxPacketBytes, "more than the engine may hold");
    server_->Flush();
  }

  void CheckProved(const Packet& packet, std::span<const std::byte> bytes) {
    const auto said = said_.find(Bytes(bytes.begin(), bytes.end()));
    HL_FUZZ_CHECK(said != said_.end(), "a packet that no trusted neighbour said, or said once");
    said_.erase(said);
    const auto claimed = ClaimedPrefix(packet);
    HL_FUZZ_CHECK(!claimed.has_value() || *claimed == GidPrefix("driven"),
                  "a neighbour spoke for another host");
  }

  // What the server keeps open.
  void CheckConnections() {
    if (!keyed()) return;
    size_t strangers = 0, neighbours = 0;
    std::map<std::string, size_t> of_source;  // strangers
    for (Driven& each : driven_) {
      each.Hear();  // whether the server has closed it
      if (each.ended() || &each == dialed_) continue;
      if (each.who() != kNeighbour) {
        HL_FUZZ_CHECK(!each.open(), "a stranger was let in");
        HL_FUZZ_CHECK(++of_source[each.source()] <= kStrangerLimits.of_source, each.source());
        ++strangers;
      } else if (each.open()) {
        ++neighbours;
      }
    }
    HL_FUZZ_CHECK(strangers <= kStrangerLimits.all, std::to_string(strangers));
    HL_FUZZ_CHECK(neighbours <= kMaxConnectionsOfNeighbour, std::to_string(neighbours));
  }
  uint64_t Counter(const std::string& name) const {
    std::istringstream lines(server_->CounterText());
    std::string each;
    uint64_t value = 0;
    while (lines >> each >> value)
      if (each == name) return value;
    HL_FUZZ_CHECK(false, "no counter " + name);
    return 0;
  }

  Reader& in_;
  const uint8_t mode_;
  std::unique_ptr<LinkServer> server_;  // outlives the engine
  Engine engine_{EngineOptions{}};
  std::unique_ptr<EngineLoop> loop_;  // is not run
  std::optional<RawNeighbour> honest_;
  LinkId honest_link_ = kNoLink;
  uint64_t round_ = 0;
  bool answered_ = false;  // the honest request of this round
  bool ran_out_ = false;   // of descriptors
  std::deque<Driven> driven_;
  const Driven* dialed_ = nullptr;
  std::multiset<Bytes> said_;  // sealed, and not seen by the engine
};

// Writes the steps of seeds.
class Script {
 public:
  explicit Script(unsigned mode) { out_.U8(mode); }
  Script& Connect(Who who, unsigned source = 0) { return Begin(kConnect, who + source * kWhos); }
  Script& NoDescriptors(Who who) { return Begin(kNoDescriptors, who); }
  Script& Send(unsigned which, size_t most = kAll) {
    Begin(kSend, which).out_.U16(static_cast<unsigned>(most));
    return *this;
  }
  Script& SendOn(unsigned which) {
    Begin(kSendOn, which).out_.U16(static_cast<unsigned>(kAll));
    return *this;
  }
  Script& Hear(unsigned which) { return Begin(kHear, which); }
  Script& Introduce(unsigned which) { return Send(which).Hear(which).Send(which).Hear(which); }
  // What the server has dialed answers.
  Script& Accept() { return Hear(0).Send(0).Hear(0).Send(0).Hear(0); }
  Script& Packet(unsigned which, PacketType type, bool own_name, unsigned payload,
                 std::initializer_list<std::pair<unsigned, unsigned>> changes = {}) {
    Begin(kPacket, which).out_.U8(static_cast<unsigned>(type)).U8(own_name ? 1 : 0).U8(payload);
    out_.U8(static_cast<unsigned>(changes.size()));
    for (const auto& [at, value] : changes) out_.U8(at).U8(value);
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
  Script& Repeat(unsigned which, unsigned from) {
    Begin(kRepeat, which).out_.U16(from);
    return *this;
  }
  Script& Ask(unsigned which, unsigned times) {
    Begin(kAsk, which).out_.U8(times);
    return *this;
  }
  Script& End(unsigned which, bool reset) {
    Begin(kEnd, which).out_.U8(reset ? 1 : 0);
    return *this;
  }
  Script& EngineAsks(unsigned times) { return Begin(kEngineAsks, times); }
  Input Finish() { return out_.Finish(); }

 private:
  Script& Begin(Step step, unsigned which) {
    out_.U8(step).U8(which);
    return *this;
  }
  Writer out_;
};

// Two neighbours in turn: each type of request in the own name and in another's, in pieces.
Input Requests(unsigned mode) {
  Script s(mode);
  s.Connect(kNeighbour).Connect(kNeighbour).Introduce(0).Introduce(1);
  s.Packet(0, PacketType::kConnect, true, 32).Packet(1, PacketType::kServiceRequest, true, 144);
  s.Send(0, 3).Send(1, 40).Send(0, 30).Send(1).Send(0);
  s.Packet(0, PacketType::kConnect, false, 32).Packet(0, PacketType::kServiceRequest, false, 144);
  s.Packet(0, PacketType::kServiceRelease, false, 16).Packet(0, PacketType::kSend, true, 200);
  s.Body(kFrame, 0, "").Packet(1, PacketType::kWrite, true, 9).Send(0).Send(1).Hear(0).Hear(1);
  return s.Packet(1, PacketType::kFetchAdd, true, 16).Send(1, 20).End(1, true).Finish();
}

// What ends a connection, on one each.
Input Faults(unsigned mode) {
  Script s(mode);
  for (const unsigned each : {0u, 1u, 2u, 3u}) s.Connect(kNeighbour).Introduce(each);
  s.Packet(0, PacketType::kAck, true, 0).Send(0);
  s.Packet(1, PacketType::kSend, true, 8, {{0, 1}}).Send(1);
  s.Body(kFrame, 2, "no packet").Send(2);
  s.Body(kBytes, 3, "\xff\xff\xff\xff and no frame").Send(3);
  return s.Hear(0).Hear(3).Finish();
}

Input Strangers(unsigned mode) {
  Script s(mode);
  s.Connect(kWithoutKeys).Connect(kUntrusted).Connect(kNeighbour);
  s.Send(1, 20).Send(0).Send(1).Hear(1).Send(1, 10).Send(1).Hear(1).Hear(0);
  s.Send(2).Hear(2).Spoil(2, 30).Send(2).Hear(2);
  s.Connect(kWithoutKeys).Body(kBytes, 3, "GET / HTTP/1.1\r\n\r\n").Send(3).Hear(3);
  s.Connect(kUntrusted).Body(kFrame, 4, "early").Send(4).End(4, false);
  for (int i = 0; i < 10; ++i) s.Connect(kWithoutKeys);
  return s.NoDescriptors(kNeighbour).Send(15).Finish();
}

std::vector<Input> Seeds() {
  std::vector<Input> seeds;
  for (const unsigned mode : {0u, 0u + kKeyed}) {
    seeds.push_back(Requests(mode));
    seeds.push_back(Faults(mode));
    seeds.push_back(Strangers(mode));
    Script dialed(mode | kDialing);
    dialed.Accept().EngineAsks(30).Packet(0, PacketType::kAck, true, 0);
    dialed.Packet(0, PacketType::kReadResponse, true, 90).Send(0, 100).Send(0).Hear(0).Hear(0);
    dialed.Packet(0, PacketType::kSend, true, 0).Send(0);
    seeds.push_back(dialed.Finish());
  }
  Script hoarder(0);  // asks for more than the server holds, and takes it late
  hoarder.Connect(kNeighbour).Introduce(0).Ask(0, 120).Ask(0, 120).Send(0).Send(0).Hear(0).Hear(0);
  seeds.push_back(hoarder.End(0, true).Finish());
  Script greedy(0);  // two that ask at once for more than the engine may hold
  greedy.Connect(kNeighbour).Connect(kNeighbour).Introduce(0).Introduce(1);
  seeds.push_back(greedy.Ask(0, 60).Ask(1, 60).SendOn(0).Send(1).Hear(0).Hear(1).Finish());
  Script replayed(kKeyed);
  replayed.Connect(kNeighbour).Introduce(0).Packet(0, PacketType::kSend, true, 8).Send(0);
  seeds.push_back(replayed.Repeat(0, 0).Send(0).Hear(0).Finish());
  Script crowd(kKeyed);
  for (unsigned i = 0; i < kStrangerLimits.all + 2; ++i) crowd.Connect(kWithoutKeys, i % 9);
  seeds.push_back(crowd.Finish());
  Script many(kKeyed);
  for (unsigned i = 0; i < kMaxConnectionsOfNeighbour + 2; ++i)
    many.Connect(kNeighbour).Introduce(i);
  seeds.push_back(many.Finish());
  seeds.push_back(Script(kKeyed | kDialing | kWrongHostIsDialed).Accept().Finish());
  return seeds;
}

const FuzzTarget kFuzzTarget("link_server", Seeds, [](Reader& in) {
  GTEST_FLAG_SET(break_on_failure, true);  // of the neighbours' own expectations
  Links(in).Run();
});

}  // namespace
}  // namespace hyperloop::fuzz
