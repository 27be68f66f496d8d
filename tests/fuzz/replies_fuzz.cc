// What answers at a replica's endpoint: a real ReplicaHandle and bulk connection over TCP, against
// a host that the input drives. It may be the expected replica, one that is trusted elsewhere, a
// host without the role, a stranger, or somebody without keys. It closes connections, changes its
// bytes, and answers requests with any reply or none. Rules: every call returns in time, with a
// reply or a reason; only the expected host is told anything, and only what it said is believed; a
// reply that is taken fits the request.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "common/printable.h"
#include "control/proposal.h"
#include "files/bulk_connection.h"
#include "fuzz/driven_connection.h"
#include "fuzz/fuzz.h"
#include "fuzz/known_hosts.h"
#include "fuzz/message_stream.h"
#include "hyperloop/core/text.h"
#include "primary/replica_handle.h"
#include "softrnic/embedded/embedded.h"
#include "support/must.h"

namespace hyperloop::fuzz {
namespace {

using namespace control;  // NOLINT(google-build-using-namespace)
using identity::kRolePrimary;
using identity::kRoleReplica;

constexpr auto kPatience = std::chrono::seconds(30);
constexpr uint32_t kBlock = 4096;
constexpr size_t kPiece = 32u << 10;
constexpr int kMostRudeGreetings = 4;

// Who answers. At the one endpoint `trusted` names kExpected, at the other one it names nobody.
enum Who : uint8_t { kExpected, kUnplaced, kElsewhere, kNoReplica, kUnknown, kWithoutKeys, kWhos };
enum Mode : uint8_t { kKeyed = 1, kUnnamedEndpoint = 2 };
enum CallKind : uint8_t {
  kHello,
  kAttach,
  kDetach,
  kChecksums,
  kPrepare,
  kConnectMember,
  kRelease,
  kDisconnect,
  kList,
  kPut,
  kGet,
  kDrop,
  kCalls
};
// How a request is answered.
enum How : uint8_t { kRight, kChanged, kOther, kFields, kRaw, kRefusal, kNothing, kTwice, kHows };
// What happens to the answer on its way.
enum Fate : uint8_t { kArrives, kSpoilt, kCutShort, kReset, kRepeated, kBytesBehind, kFates };

class Places {
 public:
  static const Places& Get() {
    static const Places places;
    return places;
  }
  const Trust& Of(Who who) const { return trusts_[who]; }
  const Trust& primary() const { return primary_; }
  const UniqueFd& listener(bool unnamed) const { return unnamed ? unnamed_ : named_; }
  const Endpoint& endpoint(bool unnamed) const { return unnamed ? unnamed_at_ : named_at_; }

 private:
  Places() {
    named_ = Must(ListenOn({"127.0.0.1", 0}, &named_at_));
    unnamed_ = Must(ListenOn({"127.0.0.1", 0}, &unnamed_at_));
    const char* const hosts[] = {"expected", "unplaced", "elsewhere", "no-replica", "unknown"};
    known_.Make("primary");
    for (const char* host : hosts) {
      known_.Make(host);
      known_.Let(host, "primary", kRolePrimary);
    }
    known_.Let("primary", "expected", kRoleReplica, named_at_.ToString());
    known_.Let("primary", "unplaced", kRoleReplica);
    known_.Let("primary", "elsewhere", kRoleReplica, "127.0.0.1:1");
    known_.Let("primary", "no-replica", kRolePrimary);
    primary_ = Must(Trust::Load(known_.Dir("primary"), nullptr));
    for (size_t i = 0; i < std::size(hosts); ++i)
      trusts_[i] = Must(Trust::Load(known_.Dir(hosts[i]), nullptr));
  }

  KnownHosts known_;
  UniqueFd named_, unnamed_;
  Endpoint named_at_, unnamed_at_;
  Trust primary_, trusts_[kWhos];
};

// The RNIC of this process, with the primary's device and a queue of a node.
struct Rnic {
  Rnic() {
    Must(rnic.StartThread());
    primary = Must(rnic.OpenDevice("primary"));
    node = Must(rnic.OpenDevice("node"));
    pd = Must(node->AllocatePd());
    cq = Must(node->CreateCq({.depth = 16}));
    rnic::QpAttr attr;
    attr.send_cq = attr.recv_cq = cq.get();
    attr.send_wqebbs = 16;
    attr.recv_wqes = 0;
    qp = Must(pd->CreateQueuePair(attr));
  }
  static Rnic& Get() {
    static auto* rnic = new Rnic;  // its thread ends with the process
    return *rnic;
  }
  softrnic::EmbeddedRnic rnic;
  std::unique_ptr<rnic::Device> primary, node;
  std::unique_ptr<rnic::ProtectionDomain> pd;
  std::unique_ptr<rnic::CompletionQueue> cq;
  std::unique_ptr<rnic::QueuePair> qp;
};

std::string TextOf(Reader& in) {
  const auto bytes = in.Bytes(in.U8());
  return {bytes.begin(), bytes.end()};
}
std::unique_ptr<StoredFileT> FileOf(Reader& in) {
  auto file = std::make_unique<StoredFileT>();
  file->name = TextOf(in);
  file->size = in.U32(), file->checksum = in.U32(), file->received = in.U32();
  file->finished = (in.U8() & 1) != 0;
  return file;
}

// A reply to a request of this type, as a replica would make it.
BodyUnion RightReply(const BodyUnion& request) {
  switch (request.type) {
    case Body::HelloRequest: {
      HelloReplyT reply;
      reply.host = "expected", reply.region_size = 1 << 20;
      return MakeBody(std::move(reply));
    }
    case Body::AttachRequest: {
      const rnic::QpAddress here = Rnic::Get().qp->address();
      AttachReplyT reply;
      reply.gid.assign(here.gid.raw.begin(), here.gid.raw.end());
      reply.qpn = here.qpn;
      reply.region_addr = 4096, reply.region_size = 1 << 20;
      return MakeBody(std::move(reply));
    }
    case Body::ChecksumsRequest: {
      const auto& asked = *As<ChecksumsRequestT>(request);
      ChecksumsReplyT reply;
      reply.checksums.resize(std::min<uint64_t>((asked.length + kBlock - 1) / kBlock, 1u << 16));
      return MakeBody(std::move(reply));
    }
    case Body::PrepareMemberRequest: {
      PrepareMemberReplyT reply;
      reply.info.resize(sizeof(MemberInfo));
      return MakeBody(std::move(reply));
    }
    case Body::ListFilesRequest:
      return MakeBody(ListFilesReplyT{});
    case Body::PutFileRequest:
      return MakeBody(PutFileReplyT{});
    case Body::GetFileRequest:
      return MakeBody(GetFileReplyT{});
    default:
      return MakeBody(DoneT{});
  }
}

// A reply of any kind whose fields the input fills.
BodyUnion AnyReply(Reader& in) {
  switch (in.U8() % 7) {
    case 0: {
      HelloReplyT reply;
      reply.host = TextOf(in), reply.media = TextOf(in), reply.device = TextOf(in);
      reply.installed_nodes.resize(in.U8() % 16u), reply.installed_replicas.resize(in.U8() % 16u);
      reply.sealed_owner.resize(in.U8() % 20u), reply.bulk_port = in.U16();
      reply.proposal_vouchers.resize(in.U8());
      return MakeBody(std::move(reply));
    }
    case 1: {
      const rnic::QpAddress node = Rnic::Get().qp->address();
      AttachReplyT reply;
      reply.gid.assign(node.gid.raw.begin(), node.gid.raw.end());
      reply.gid.resize(in.U8() % 20u), reply.qpn = in.U8() < 128 ? node.qpn : in.U32();
      reply.region_addr = in.U64(), reply.region_size = in.U64(), reply.region_rkey = in.U32();
      return MakeBody(std::move(reply));
    }
    case 2: {
      ChecksumsReplyT reply;
      reply.checksums.resize(in.U16());
      return MakeBody(std::move(reply));
    }
    case 3: {
      PrepareMemberReplyT reply;
      reply.info.resize(in.U8());
      return MakeBody(std::move(reply));
    }
    case 4: {
      ListFilesReplyT reply;
      for (unsigned n = in.U8() % 8u; n > 0; --n) reply.files.push_back(FileOf(in));
      return MakeBody(std::move(reply));
    }
    case 5: {
      GetFileReplyT reply;
      reply.bytes.resize(in.U16());
      return MakeBody(std::move(reply));
    }
    default: {
      PutFileReplyT reply;
      reply.received = in.U64();
      return MakeBody(std::move(reply));
    }
  }
}

// Answers on a thread of its own, until the input ends as it says, then as a replica would.
class Impostor {
 public:
  Impostor(const UniqueFd& listener, const Trust& trust, Reader script)
      : listener_(listener), trust_(trust), script_(script), stop_(eventfd(0, EFD_CLOEXEC)) {
    thread_ = std::thread([this] { Run(); });
  }
  ~Impostor() {
    const uint64_t one = 1;
    HL_FUZZ_CHECK(write(stop_.get(), &one, sizeof one) == sizeof one, "stop");
    thread_.join();
    while (UniqueFd(accept(listener_.get(), nullptr, nullptr))) {  // whom nobody asked anything
    }
  }
  // How many requests it has understood.
  size_t heard() const { return heard_; }
  // Whether this was said on an open connection.
  bool HasSaid(const BodyUnion& body) {
    const std::lock_guard lock(mutex_);
    return said_.contains(EncodeFrame(body));
  }

 private:
  struct Connection {
    Connection(Impostor* impostor, UniqueFd accepted, std::unique_ptr<identity::SecureChannel> end)
        : fd(accepted.get()),
          driven(std::move(accepted), std::move(end), kMaxReply,
                 [this, impostor](std::span<const std::byte> piece) {
                   asked.Append(piece);
                   while (const auto message = asked.Next()) impostor->Answer(*this, *message);
                 }) {}
    const int fd;
    MessageStream asked{kMaxBulkRequest};
    DrivenConnection driven;
    Fate greeting = kArrives;  // of what it says first
    bool last_words = false;   // what it says next need not end, so nothing may follow
  };

  void Run() {
    for (;;) {
      std::vector<pollfd> ready = {{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
      for (const Connection& each : connections_) ready.push_back({each.fd, POLLIN, 0});
      if (poll(ready.data(), ready.size(), -1) < 0) continue;
      if (ready[0].revents != 0) return;
      size_t index = 2;
      for (auto it = connections_.begin(); it != connections_.end(); ++index) {
        if (ready[index].revents != 0) Serve(*it);
        it = it->driven.ended() ? connections_.erase(it) : std::next(it);
      }
      if (ready[1].revents != 0) Accept();
    }
  }
  void Serve(Connection& connection) {
    connection.driven.Hear();
    if (connection.driven.waiting()) Meet(connection, std::exchange(connection.greeting, kArrives));
    SendAll(connection);
    if (connection.last_words) connection.driven.End(false);
  }
  static void SendAll(Connection& connection) {
    while (!connection.driven.ended() && connection.driven.waiting()) {
      connection.driven.Send(SIZE_MAX);
      pollfd entry{connection.fd, POLLOUT, 0};
      if (connection.driven.waiting() && !connection.driven.ended()) poll(&entry, 1, -1);
    }
  }
  void Accept() {
    UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!fd) return;
    connections_.emplace_back(this, std::move(fd), trust_.Answer());
    Connection& connection = connections_.back();
    if (script_.done() || rude_ == kMostRudeGreetings) return;
    connection.greeting = static_cast<Fate>(script_.U8() % kFates);
    if (connection.greeting != kArrives) ++rude_;
    if (connection.greeting == kReset) connections_.pop_back();
  }
  // Lets something happen to the bytes that wait, or to the connection.
  void Meet(Connection& connection, Fate fate) {
    DrivenConnection& driven = connection.driven;
    connection.last_words = connection.last_words || fate != kArrives;
    switch (fate) {
      case kSpoilt: {
        const uint16_t at = script_.U16();
        driven.Spoil(at, script_.U8());
        break;
      }
      case kCutShort:
        driven.Send(script_.U16());
        driven.Drop();
        break;
      case kReset:
        driven.End(true);
        break;
      case kRepeated:
        driven.Repeat(script_.U16());
        break;
      case kBytesBehind:
        driven.Put(std::as_bytes(script_.Bytes(script_.U8())));
        break;
      default:
        break;
    }
  }

  void Answer(Connection& connection, std::span<const uint8_t> message) {
    const BodyUnion request = Must(ParseMessage(message));
    ++heard_;
    const auto how = static_cast<How>(script_.U8() % kHows);
    Reply(connection, request, how);
    if (how == kTwice) Reply(connection, request, kFields);
    if (!script_.done()) Meet(connection, static_cast<Fate>(script_.U8() % kFates));
  }
  void Reply(Connection& connection, const BodyUnion& request, How how) {
    std::vector<uint8_t> frame;
    switch (how) {
      case kChanged:
        frame = EncodeFrame(RightReply(request));
        for (unsigned n = script_.U8() % 8u; n > 0; --n) {
          const size_t at = script_.U16() % frame.size();
          frame[at] = script_.U8();
        }
        break;
      case kOther:
      case kFields:
        frame = EncodeFrame(AnyReply(script_));
        break;
      case kRaw: {
        const auto bytes = script_.Bytes(script_.U8());
        frame.assign(bytes.begin(), bytes.end());
        break;
      }
      case kRefusal: {
        ErrorT error;
        error.code = script_.U8(), error.message = TextOf(script_);
        frame = EncodeFrame(MakeBody(std::move(error)));
        break;
      }
      case kNothing:
        return connection.driven.End(true);
      default:
        frame = EncodeFrame(RightReply(request));
    }
    Say(connection, frame);
  }
  void Say(Connection& connection, std::span<const uint8_t> frame) {
    MessageStream own(kMaxReply);
    own.Append(std::as_bytes(frame));
    size_t whole = 0;
    while (const auto message = own.Next()) {
      whole += kFrameHeader + message->size();
      const auto parsed = ParseMessage(*message);
      const std::lock_guard lock(mutex_);
      if (parsed.ok()) said_.insert(EncodeFrame(*parsed));
    }
    if (whole == 0 || whole != frame.size()) connection.last_words = true;
    for (auto left = std::as_bytes(frame); !left.empty();) {
      const auto piece = left.first(std::min(left.size(), kPiece));
      connection.driven.Say(piece);
      left = left.subspan(piece.size());
    }
  }

  const UniqueFd& listener_;
  const Trust& trust_;
  Reader script_;
  const UniqueFd stop_;
  std::list<Connection> connections_;
  int rude_ = 0;  // greetings so far that were none
  std::atomic<size_t> heard_ = 0;
  std::mutex mutex_;  // guards said_
  std::set<std::vector<uint8_t>> said_;
  std::thread thread_;
};

class Primary {
 public:
  Primary(const Endpoint& endpoint, const Trust& trust, Impostor& impostor, bool trusted)
      : impostor_(impostor),
        keyed_(trust.keyed()),
        trusted_(trusted),
        handle_(endpoint, trust, kPatience),
        connect_bulk_(BulkConnectionTo(endpoint, 0, trust, own_, bulk_limit_)) {}

  void CallInTime(CallKind kind, uint8_t number) {
    const auto start = std::chrono::steady_clock::now();
    Call(kind, number);
    HL_FUZZ_CHECK(std::chrono::steady_clock::now() - start < kPatience, "a call hung");
  }

 private:
  void Call(CallKind kind, uint8_t number) {
    switch (kind) {
      case kHello:
        return Hello(number);
      case kAttach:
        Checked(handle_.Attach(*Rnic::Get().primary, own_, std::chrono::seconds(1)));
        return;
      case kDetach:
        return handle_.Detach(true);
      case kChecksums:
        return Checksums();
      case kPrepare: {
        MemberOptions options;
        options.position = number;
        Checked(handle_.Prepare(own_, options).status());
        return;
      }
      case kConnectMember: {
        const std::vector<MemberInfo> chain(number % 4u);
        Checked(handle_.ConnectMember(own_, {}, chain));
        return;
      }
      case kRelease:
        Checked(handle_.Call<DoneT>(OwnerRequest<ReleaseRequestT>(own_)).status());
        return handle_.ClearSuspicion();
      case kDisconnect:
        bulk_.reset();
        return handle_.Disconnect();
      default:
        Bulk(kind, number);
    }
  }
  // What every outcome keeps to. Whether it is one of success.
  bool Checked(const Status& status) const {
    HL_FUZZ_CHECK(status.ok() || !status.message().empty(), "a mute refusal");
    HL_FUZZ_CHECK(IsPrintable(status.message()), status.message());
    HL_FUZZ_CHECK(trusted_ || !status.ok(), "another host was believed");
    HL_FUZZ_CHECK(trusted_ || impostor_.heard() == 0, "another host was told something");
    return status.ok();
  }

  void Hello(uint8_t number) {
    const auto reply = handle_.Hello(kPatience, number % 2 != 0 ? &own_.owner : nullptr);
    if (!Checked(reply.status())) return;
    HL_FUZZ_CHECK(!keyed_ || impostor_.HasSaid(MakeBody(HelloReplyT(*reply))), "nobody said so");
    HL_FUZZ_CHECK(reply->installed_nodes.size() == reply->installed_replicas.size() &&
                      IsPrintable(reply->host) && IsPrintable(reply->device),
                  "an impossible node");
    HL_FUZZ_CHECK(handle_.bulk_port() == reply->bulk_port, "another port");
    for (const bool leaves : {false, true}) {
      const Status vouched = control::CheckProposal(handle_.trust(), *reply, leaves, reply->group,
                                                    reply->proposal_epoch, reply->served_owner);
      HL_FUZZ_CHECK(!keyed_ || !vouched.ok(), "nobody may propose it");
      Propose(*reply, leaves);
    }
    const control::Seat seat{handle_.endpoint(), handle_.peer()};
    HL_FUZZ_CHECK(!keyed_ || !control::CheckNewcomer(handle_.trust(), seat, {&seat, 1}).ok(),
                  "a host got two seats");
  }
  // As an operator on the primary's host, by what the replica says of the group.
  void Propose(const HelloReplyT& seen, bool leaves) {
    HL_FUZZ_CHECK(control::ToldByMost({&seen, 1}, 1) == &seen, "what all tell is not told by most");
    HL_FUZZ_CHECK(control::ToldByMost({&seen, 1}, 2) == nullptr, "half is most");
    const auto request = control::MakeProposal(handle_.trust(), seen, "host:1", leaves);
    HelloReplyT told;
    (leaves ? told.leaving_replica : told.proposed_replica) = request.replica;
    told.proposal_epoch = request.epoch;
    told.proposal_vouchers = request.vouchers;
    const auto vouched = [&](const std::string& group) {
      return control::CheckProposal(handle_.trust(), told, leaves, group, request.epoch,
                                    seen.served_owner)
          .ok();
    };
    HL_FUZZ_CHECK(vouched(seen.group), "the own host was not believed");
    HL_FUZZ_CHECK(!keyed_ || !vouched(seen.group + "x"), "it was believed for another group");
  }
  void Checksums() {
    const auto sums = handle_.Checksums(own_, {0, handle_.region().size}, kBlock);
    if (!Checked(sums.status())) return;
    const uint64_t size = handle_.region().size;
    HL_FUZZ_CHECK(sums->size() == size / kBlock + (size % kBlock != 0 ? 1 : 0),
                  "checksums of another region");
  }
  void Bulk(CallKind kind, uint8_t number) {
    if (bulk_ == nullptr) {
      auto connected = connect_bulk_();
      if (!connected.ok()) return void(Checked(connected.status()));
      bulk_ = std::move(connected).value();
    }
    const WholeFile file{"000007.sst", 4096, 5};
    Status status;
    if (kind == kList) {
      status = bulk_->List().status();
    } else if (kind == kPut) {
      status = bulk_->Put(file, 0, std::vector<char>(number)).status();
    } else if (kind == kGet) {
      std::vector<char> out(number);
      const auto got = bulk_->Get(file, 0, out);
      HL_FUZZ_CHECK(!got.ok() || *got <= out.size(), "more bytes than were asked for");
      status = got.status();
    } else {
      status = bulk_->Drop(file);
    }
    if (!Checked(status)) bulk_.reset();
  }

  Impostor& impostor_;
  const bool keyed_, trusted_;
  const Ownership own_{7, Uuid{1, 2, 3}, "fuzz"};
  ReplicaHandle handle_;
  const CallLimit bulk_limit_{kPatience};
  const BulkConnect connect_bulk_;
  std::unique_ptr<BulkTarget> bulk_;
};

void Converse(Reader& in) {
  const uint8_t mode = in.U8();
  const auto who = static_cast<Who>(in.U8() % kWhos);
  const auto calls = in.Bytes(2 * (in.U8() % 12u));
  const bool keyed = (mode & kKeyed) != 0, unnamed = (mode & kUnnamedEndpoint) != 0;
  const Places& places = Places::Get();
  const bool trusted = keyed ? who == (unnamed ? kUnplaced : kExpected) : who == kWithoutKeys;
  Impostor impostor(places.listener(unnamed), places.Of(who), in);
  Primary primary(places.endpoint(unnamed), keyed ? places.primary() : places.Of(kWithoutKeys),
                  impostor, trusted);
  for (size_t i = 0; i + 1 < calls.size(); i += 2)
    primary.CallInTime(static_cast<CallKind>(calls[i] % kCalls), calls[i + 1]);
}

std::vector<Input> Seeds() {
  std::vector<Input> seeds;
  const auto begin = [](unsigned mode, Who who, std::initializer_list<CallKind> calls) {
    Writer out;
    out.U8(mode).U8(who).U8(static_cast<unsigned>(calls.size()));
    for (const CallKind each : calls) out.U8(each).U8(9);
    return out;
  };
  const std::initializer_list<CallKind> all = {kHello,         kAttach,  kChecksums, kPrepare,
                                               kConnectMember, kRelease, kList,      kPut,
                                               kGet,           kDrop,    kDetach};
  for (const unsigned mode : {0u, 0u + kKeyed, 0u + kKeyed + kUnnamedEndpoint})
    for (unsigned who = 0; who < kWhos; ++who)
      seeds.push_back(begin(mode, static_cast<Who>(who), all).Finish());
  for (const auto& [mode, who] : {std::pair(0u, kWithoutKeys), std::pair(0u + kKeyed, kExpected)}) {
    for (unsigned fate = 1; fate < kFates; ++fate) {  // as it connects; then with the first answer
      Writer out = begin(mode, who, all);
      seeds.push_back(out.U8(fate).U16(30).U8(1).Finish());
      out = begin(mode, who, all);
      seeds.push_back(out.U8(kArrives).U8(kRight).U8(fate).U16(10).U8(1).Finish());
    }
    for (const How how : {kRaw, kRefusal, kNothing, kTwice}) {
      Writer out = begin(mode, who, {kHello, kHello, kList});
      seeds.push_back(out.U8(kArrives).U8(how).U8(4).U32(0x41424344).U32(1).Finish());
    }
    Writer changed = begin(mode, who, all);
    changed.U8(kArrives);
    for (size_t i = 0; i < all.size(); ++i)
      changed.U8(kChanged).U8(2).U16(20).U8(255).U16(44).U8(0).U8(kArrives);
    seeds.push_back(changed.Finish());
    Writer attach = begin(mode, who, {kAttach, kChecksums, kAttach, kAttach, kPrepare});
    attach.U8(kArrives).U8(kFields).U8(1).U8(16).U8(0).U64(4096).U64(~0ull).U32(7).U8(kArrives);
    attach.U8(kFields).U8(2).U16(0).U8(kArrives);  // no checksums, for that region
    attach.U8(kFields).U8(1).U8(15).U8(0).U64(4096).U64(4096).U32(7).U8(kArrives);
    attach.U8(kFields).U8(1).U8(16).U8(200).U32(77).U64(4096).U64(4096).U32(7).U8(kArrives);
    seeds.push_back(attach.U8(kFields).U8(3).U8(79).U8(kArrives).Finish());
    Writer bulk = begin(mode, who, {kList, kGet, kPut, kHello});
    bulk.U8(kArrives).U8(kFields).U8(4).U8(1).U8(3).Bytes("a.b", 3).U32(9).U32(8).U32(7).U8(1);
    bulk.U8(kArrives).U8(kFields).U8(5).U16(600).U8(kArrives).U8(kFields).U8(6).U64(5);
    bulk.U8(kArrives).U8(kFields).U8(0).U8(8).Bytes("unplaced", 8).U8(0).U8(0).U8(0).U8(0).U8(0);
    seeds.push_back(bulk.U16(7).U8(kArrives).Finish());
  }
  return seeds;
}

const FuzzTarget kFuzzTarget("replies", Seeds, [](Reader& in) { Converse(in); });

}  // namespace
}  // namespace hyperloop::fuzz
