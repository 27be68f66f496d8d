// Links between RNIC daemons: packets and streams of any content, and two engines whose packets are
// changed, copied with other fields, cut and lost on the way. The memory behind one of them may be
// a file on a slow disk, so that requests are held; its clients publish services, and the other
// one's connect to them. Rules: parsing is exact (a parsed
// packet encodes to the same bytes); whatever arrives, no memory outside of registered ranges
// changes in either engine, no call hangs, and clients that use no link are served.
#include <algorithm>
#include <deque>

#include "fuzz/fuzz.h"
#include "fuzz/guarded_host.h"
#include "fuzz/held_disk.h"
#include "softrnic/engine/testing/memory_network.h"

namespace hyperloop::fuzz {
namespace {

enum Kind : uint8_t { kPacket, kStream, kEngines };

void ParseOne(std::span<const std::byte> bytes) {
  const auto packet = ParsePacket(bytes);
  if (!packet.ok()) {
    HL_FUZZ_CHECK(!packet.status().message().empty(), "a refusal without a reason");
    return;
  }
  const auto again = EncodePacket(*packet);
  HL_FUZZ_CHECK(std::equal(again.begin(), again.end(), bytes.begin(), bytes.end()),
                "a packet that parses encodes to other bytes");
}

// A stream in pieces.
void ReadStream(Reader& in) {
  FrameReader reader(kMaxPacketBytes);
  while (!in.done()) {
    reader.Append(std::as_bytes(in.Bytes(1u + in.U8())));
    for (;;) {
      const auto frame = reader.Next();
      if (!frame.ok()) return;
      if (!frame->has_value()) break;
      HL_FUZZ_CHECK((*frame)->size() <= kMaxPacketBytes, "a frame longer than allowed");
      ParseOne(**frame);
    }
  }
}

class TwoEngines {
 public:
  explicit TwoEngines(Reader& in) : in_(in), media_(static_cast<rnic::Media>(in.U8() % 3)) {
    a_engine_.AttachPort(a_port_);
    b_engine_.AttachPort(b_port_);
    HL_FUZZ_CHECK(a_engine_.AddRoute("h1", ab_.id).ok(), "peer");
    HL_FUZZ_CHECK(a_engine_.AddRoute("h2", ab_.id).ok(), "peer");
    HL_FUZZ_CHECK(!a_engine_.AddRoute("h2", ba_.id).ok(), "a peer twice");
    HL_FUZZ_CHECK(b_engine_.AddRoute("h0", ba_.id).ok(), "peer");
    a_ = std::make_unique<Host>(a_engine_, 0, false, false);
    b_ = std::make_unique<Host>(b_engine_, 1, false, false, media_);
    quiet_ = std::make_unique<Host>(b_engine_, 2, false, false);
    for (size_t i : {0u, 1u}) {
      a_->client.Connect(a_->qps[i], b_->qps[i]);
      b_->client.Connect(b_->qps[i], a_->qps[i]);
    }
    quiet_->client.Connect(quiet_->qps[0], quiet_->qps[0]);
  }

  void Run() {
    for (int i = 0; i < 150 && !in_.done(); ++i) Instruction();
    for (int i = 0; i < 20; ++i) {
      disk_.FinishAll();
      Pass(50);
    }
    a_->CheckGuards();
    b_->CheckGuards();
    CheckQuiet();
  }

 private:
  EngineOptions Clocked() {
    EngineOptions options;
    options.now_ns = [this] { return now_; };
    options.flusher = &disk_;
    return options;
  }
  void Pass(uint64_t ms) {
    now_ += ms * 1'000'000;
    a_engine_.Run(200);
    b_engine_.Run(200);
    network_.DeliverAll();
  }

  void Instruction() {
    const uint8_t what = in_.U8();
    const uint8_t where = in_.U8();
    MemoryNetwork::Link& link = (where & 1) != 0 ? ba_ : ab_;
    const bool requests = (where & 2) == 0;
    std::deque<std::byte>& stream = requests ? link.requests : link.answers;
    switch (what % 11) {
      case 0:
      case 1:
        Post((where & 1) != 0 ? *b_ : *a_, (where & 1) != 0 ? *a_ : *b_, (where >> 2) % 2u);
        break;
      case 2:
        Pass(in_.U8() % 64);
        break;
      case 3:
        a_engine_.Run(50);
        b_engine_.Run(50);
        network_.Deliver(link, requests, in_.U16());
        break;
      case 4:  // on the way
        if (const uint16_t at = in_.U16(); !stream.empty())
          stream[at % stream.size()] ^= static_cast<std::byte>(in_.U8());
        break;
      case 5:
      case 6:
        Inject(stream);
        break;
      case 7:
        if ((where & 8) != 0) link.cut = !link.cut;
        if (link.up) network_.Reset(link);
        network_.Open(link);
        break;
      case 8:
        disk_.FinishOne((where & 4) == 0);
        break;
      case 9:
        Publish((where & 1) != 0 ? *quiet_ : *b_, where / 2u);
        break;
      default:
        Ask(where);
    }
  }

  void Publish(Host& host, unsigned how) {
    Command command = host.client.Make(Op::kPublish);
    command.args.publish.service[0] = static_cast<char>('a' + how % 2);
    command.args.publish.pdn = host.client.pdn;
    command.args.publish.private_length = how * 4;
    Reply reply;
    host.client.Try(command, &reply).IgnoreError();
  }
  // A queue pair of a's asks a host behind the link, or asks again; the answer comes by and by. Or
  // it is connected to nobody.
  void Ask(uint8_t how) {
    TestQp& qp = a_->qps[how / 32u % a_->qps.size()];
    if (how >= 128 && (how & 1) != 0) {
      TestQp nobody;
      nobody.gid[how / 2 % 8] = how;
      a_->client.TryModify(qp, QpState::kReset).IgnoreError();
      a_->client.TryModify(qp, QpState::kInit, 0xf).IgnoreError();
      a_->client.TryModify(qp, QpState::kReadyToReceive, 0, &nobody).IgnoreError();
      return;
    }
    if ((how & 16) != 0) a_->client.TryModify(qp, QpState::kReset).IgnoreError();
    Command command = a_->client.Make(Op::kConnectService);
    std::strcpy(command.args.connect.host, (how & 1) != 0 ? "h2" : "h1");
    command.args.connect.service[0] = static_cast<char>('a' + how / 2 % 4);
    command.args.connect.qpn = qp.qpn;
    Reply reply;
    if (!a_->client.Try(command, &reply).ok()) return;
    TestQp answerer;
    std::copy(std::begin(reply.result.connect.gid), std::end(reply.result.connect.gid),
              answerer.gid.begin());
    answerer.qpn = reply.result.connect.remote_qpn;
    a_->client.TryModify(qp, QpState::kInit, 0xf).IgnoreError();
    a_->client.TryModify(qp, QpState::kReadyToReceive, 0, &answerer).IgnoreError();
    a_->client.TryModify(qp, QpState::kReadyToSend).IgnoreError();
    if ((how & 8) != 0) a_->client.Destroy(Op::kDestroyQp, qp.qpn).IgnoreError();
  }

  void Post(Host& from, Host& to, size_t index) {
    TestQp& qp = from.qps[index];
    const uint8_t how = in_.U8();
    const size_t at = in_.U8() * 8u;
    const size_t length = 1 + in_.U16() % (kData - 1);
    const size_t offset = at % (kData - length);
    const Sge sge{reinterpret_cast<uint64_t>(from.data) + offset, static_cast<uint32_t>(length),
                  from.keys[0].lkey};
    const Sge word{sge.addr, 8, sge.lkey};
    // Some reach beyond the end of what is registered there.
    const uint64_t there = reinterpret_cast<uint64_t>(to.data) + in_.U8() * 32u;
    const uint32_t rkey = to.keys[how / 128].rkey;
    switch (how % 7) {
      case 0:
        qp.Write(there, rkey, sge, CqeMode::kAlways);
        break;
      case 1:
        qp.WriteImm(there, rkey, sge, how, CqeMode::kAlways);
        break;
      case 2:
        qp.Read(there, rkey, sge, CqeMode::kAlways);
        break;
      case 3:
        qp.Cas(there, rkey, 0, how, word, CqeMode::kAlways);
        break;
      case 4:
        qp.Add(there, rkey, how, word, CqeMode::kAlways);
        break;
      case 5:
        qp.Send(sge, CqeMode::kAlways);
        break;
      default:
        to.qps[index].Receive(
            {reinterpret_cast<uint64_t>(to.data), static_cast<uint32_t>(length), to.keys[0].lkey});
    }
    qp.Ring();
    a_engine_.Run(50);
    b_engine_.Run(50);
  }

  // Appends a copy of the first frame on the way (or of the last one seen), with some bytes of its
  // header changed.
  void Inject(std::deque<std::byte>& stream) {
    if (stream.size() >= kFrameLengthBytes + kPacketHeaderBytes) {
      uint32_t length = 0;
      for (size_t i = 0; i < kFrameLengthBytes; ++i)
        length = length << 8 | std::to_integer<uint32_t>(stream[i]);
      if (length >= kPacketHeaderBytes && length + kFrameLengthBytes <= stream.size())
        seen_.assign(stream.begin() + kFrameLengthBytes,
                     stream.begin() + kFrameLengthBytes + static_cast<ptrdiff_t>(length));
    }
    if (seen_.empty()) return;
    std::vector<std::byte> packet = seen_;
    for (unsigned n = in_.U8() % 6u; n > 0; --n) {
      const size_t at = in_.U8() % kPacketHeaderBytes;
      packet[at] = static_cast<std::byte>(in_.U8());
    }
    if (const uint8_t cut = in_.U8(); cut > 200) packet.resize(kPacketHeaderBytes);
    std::vector<std::byte> frame;
    AppendFrame(packet, &frame);
    stream.insert(stream.end(), frame.begin(), frame.end());
  }

  void CheckQuiet() {
    TestQp& qp = quiet_->qps[0];
    quiet_->data[7] = std::byte{0x5a};
    qp.Write(reinterpret_cast<uint64_t>(quiet_->data) + 64, quiet_->keys[0].rkey,
             {reinterpret_cast<uint64_t>(quiet_->data), 8, quiet_->keys[0].lkey}, CqeMode::kAlways);
    qp.Ring();
    for (int i = 0; i < 100 && quiet_->data[71] == std::byte{0}; ++i) b_engine_.Run(100);
    HL_FUZZ_CHECK(quiet_->data[71] == std::byte{0x5a}, "a client without links is not served");
    quiet_->CheckGuards();
  }

  Reader& in_;
  const rnic::Media media_;  // of b's data
  uint64_t now_ = 1'000'000'000;
  HeldDisk disk_;
  MemoryNetwork network_;
  MemoryNetwork::Port* const a_port_ = network_.AddPort();
  MemoryNetwork::Port* const b_port_ = network_.AddPort();
  MemoryNetwork::Link& ab_ = network_.Connect(a_port_, b_port_);
  MemoryNetwork::Link& ba_ = network_.Connect(b_port_, a_port_);
  Engine a_engine_{Clocked()}, b_engine_{Clocked()};
  std::unique_ptr<Host> a_, b_, quiet_;
  std::vector<std::byte> seen_;
};

Packet Sample(PacketType type, std::span<const std::byte> payload) {
  Packet packet{.type = type, .dest_qpn = 3, .source_qpn = 4, .session = 5, .payload = payload};
  packet.length = static_cast<uint32_t>(payload.size());
  return packet;
}

std::vector<Input> Seeds() {
  std::vector<Input> seeds;
  std::vector<std::byte> stream;
  const std::vector<std::byte> payload(16, std::byte{0x5a});
  for (const auto type : {PacketType::kAck, PacketType::kSend, PacketType::kWrite,
                          PacketType::kCompareSwap, PacketType::kReadResponse}) {
    Packet packet = Sample(type, type == PacketType::kAck ? std::span(payload).first(0) : payload);
    if (type == PacketType::kSend || type == PacketType::kWrite) packet.total = packet.length;
    const auto bytes = EncodePacket(packet);
    seeds.push_back(Writer().U8(kPacket).Bytes(bytes.data(), bytes.size()).Finish());
    AppendFrame(bytes, &stream);
  }
  Writer pieces;
  pieces.U8(kStream);
  for (size_t at = 0; at < stream.size(); at += 100) {
    const size_t n = std::min<size_t>(100, stream.size() - at);
    pieces.U8(static_cast<unsigned>(n - 1)).Bytes(stream.data() + at, n);
  }
  seeds.push_back(pieces.Finish());
  constexpr unsigned kWrite = 0, kWriteImm = 1, kRead = 2, kSwap = 3, kAdd = 4, kSend = 5,
                     kTake = 6;
  // A request of a's. kTake: a receive of b's.
  const auto post = [](Writer& out, unsigned how, unsigned length, unsigned there = 9) {
    out.U8(0).U8(0).U8(how).U8(4).U16(length).U8(there);
  };
  const auto pass = [](Writer& out) { out.U8(2).U8(0).U8(5); };
  for (const unsigned tamper : {0u, 1u, 2u}) {
    Writer out;
    out.U8(kEngines).U8(0);
    post(out, kTake, 300, 0);
    for (const unsigned how : {kWrite, kSend, kRead, kSwap, kAdd}) {
      post(out, how, 200);
      if (tamper == 1) out.U8(4).U8(0).U16(40).U8(1);
      // The same again, some 256 times as long, and at the end of the range.
      if (tamper == 2) out.U8(5).U8(0).U8(2).U8(38).U8(0x1f).U8(39).U8(0xf8).U8(0);
      pass(out);
    }
    out.U8(7).U8(0).U8(2).U8(0).U8(50);
    seeds.push_back(out.Finish());
  }
  for (const unsigned how : {kWrite, kRead, kSwap}) {  // across the end of the registered range
    Writer out;
    out.U8(kEngines).U8(0);
    post(out, how, 40900, 255);
    pass(out), pass(out);
    seeds.push_back(out.Finish());
  }
  for (const unsigned how : {kWrite, kRead, kSend, kWriteImm}) {  // in several packets
    for (const unsigned media : {0u, 1u, 2u}) {
      Writer out;
      out.U8(kEngines).U8(media);
      post(out, kTake, 40000, 0), post(out, kTake, 40000, 0);
      post(out, how, 40000), post(out, kWrite, 3000), post(out, kRead, 100), post(out, kAdd, 8);
      for (int i = 0; i < 4; ++i) pass(out);
      out.U8(3).U8(0).U16(20000).U8(3).U8(2).U16(30).U8(7).U8(0);  // a new link, in the middle
      for (int i = 0; i < 8; ++i) {
        post(out, kWrite, 100), pass(out);
        out.U8(8).U8(i == 5 ? 4 : 0);  // a flush ends
        pass(out);
      }
      seeds.push_back(out.Finish());
    }
  }
  for (const unsigned asked : {0u, 1u}) {  // services: there, elsewhere, nowhere; asked again
    Writer out;
    out.U8(kEngines).U8(0).U8(9).U8(asked).U8(9).U8(asked + 2 * 41);
    for (const unsigned how :
         {0u, 16u, 0u, 16u + 2, 2u, 16u + 4, 4u, 16u + 32, 32u, 32u + 8, 160u}) {
      out.U8(10).U8(how + asked);
      pass(out);
      out.U8(10).U8((how & ~16u) + asked);
      post(out, kRead, 64);
      pass(out);
    }
    seeds.push_back(out.Finish());
  }
  return seeds;
}

const FuzzTarget kFuzzTarget("link", Seeds, [](Reader& in) {
  AbortOnFailedExpectation();
  switch (in.U8() % 3) {
    case kPacket:
      ParseOne(std::as_bytes(in.Rest()));
      break;
    case kStream:
      ReadStream(in);
      break;
    default:
      TwoEngines(in).Run();
  }
});

}  // namespace
}  // namespace hyperloop::fuzz
