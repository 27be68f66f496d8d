// The RNIC daemon's clients: a real ClientServer with a real engine behind a real Unix socket, in
// this process. One client sends messages of any size, commands with any fields (with right object
// numbers where the input asks for them) and any descriptors. It also writes into its doorbell page
// and its registered memory, and truncates the file behind that memory. Rules: each message is
// answered or the connection is closed, and another client is served as before. What a client may
// hold and do is counted by process; so the hostile one connects as a process of its own.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <optional>
#include <thread>

#include "fuzz/fuzz.h"
#include "hyperloop/core/log.h"
#include "hyperloop/core/softrnic.h"
#include "rnic/wqe.h"
#include "softrnic/daemon/client_server.h"
#include "support/must.h"
#include "support/rnic_end.h"

namespace hyperloop::fuzz {
namespace {

using namespace softrnic;  // NOLINT(google-build-using-namespace)

class Silence final : public Log {
 public:
  void Write(LogLevel, std::string_view) override {}
};

Engine* engine_for_faults = nullptr;
void HandleBus(int, siginfo_t* info, void*) {
  if (!engine_for_faults->HandleFault(info->si_addr)) abort();
}

// A process that connects to the daemon for this one, and lives as long.
class Connector {
 public:
  explicit Connector(const std::string& path) {
    int ends[2];
    HL_FUZZ_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0, "socketpair");
    const pid_t child = fork();
    HL_FUZZ_CHECK(child >= 0, "fork");
    if (child == 0) Serve(ends[1], path);
    close(ends[1]);
    end_.Reset(ends[0]);
  }
  UniqueFd Connect() const {
    char byte = 0;
    HL_FUZZ_CHECK(write(end_.get(), &byte, 1) == 1, "asking to connect");
    auto message = Must(ReceiveMessage(end_.get(), std::as_writable_bytes(std::span(&byte, 1)), 0));
    HL_FUZZ_CHECK(message.fds.size() == 1, "no connection");
    return std::move(message.fds[0]);
  }

 private:
  [[noreturn]] static void Serve(int end, const std::string& path) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const auto address = Must(UnixAddress(path));
    for (char byte; read(end, &byte, 1) == 1;) {
      const UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
      const int number = fd.get();
      HL_FUZZ_CHECK(
          connect(number, reinterpret_cast<const sockaddr*>(&address.first), address.second) == 0,
          "connect");
      const iovec part{&byte, 1};
      Must(SendMessage(end, {&part, 1}, {&number, 1}, 0));
    }
    _exit(0);
  }
  UniqueFd end_;
};

// Lives as long as the process, because the threads must not end before the last input.
class Daemon {
 public:
  static Daemon& Get() {
    static auto* daemon = new Daemon;
    return *daemon;
  }
  const std::string& socket() const { return socket_; }
  UniqueFd Connect() const { return connector_->Connect(); }

  // A WRITE of another client goes through.
  void CheckServes() {
    const uint64_t value = ++round_;
    from_.word(0) = value;
    rnic::Sge sge{from_.mr->addr(), 8, from_.mr->lkey()};
    rnic::SendRequest write{.id = value, .opcode = rnic::Opcode::kWrite, .signaled = true};
    write.sges = {&sge, 1};
    write.remote_addr = to_.mr->addr();
    write.rkey = to_.mr->rkey();
    const Status posted = from_.qp->Post({&write, 1});
    HL_FUZZ_CHECK(posted.ok(), posted.ToString());
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    rnic::Completion done;
    for (;;) {
      const auto polled = from_.cq->Poll({&done, 1});
      HL_FUZZ_CHECK(polled.ok(), polled.status().ToString());
      if (*polled == 1) break;
      HL_FUZZ_CHECK(std::chrono::steady_clock::now() < deadline, "another client is not served");
      std::this_thread::yield();
    }
    HL_FUZZ_CHECK(done.status == rnic::WcStatus::kSuccess, rnic::WcStatusName(done.status));
    HL_FUZZ_CHECK(to_.word(0) == value, "another client's WRITE went elsewhere");
  }

 private:
  Daemon() {
    std::string folder = std::filesystem::temp_directory_path() / "hyperloop-fuzz-XXXXXX";
    HL_FUZZ_CHECK(mkdtemp(folder.data()) != nullptr, "mkdtemp");
    socket_ = folder + "/rnicd.sock";
    connector_.emplace(socket_);  // before there are threads
    engine_for_faults = &engine_;
    struct sigaction action {};
    action.sa_sigaction = HandleBus;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGBUS, &action, nullptr);
    loop_ = Must(EngineLoop::Create(&engine_, {.spin_us = 0}));
    server_ =
        Must(ClientServer::Listen(socket_, &engine_, loop_.get(), std::make_shared<Silence>()));
    std::thread([this] { loop_->Run(); }).detach();
    std::thread([this] { server_->Run(); }).detach();
    const auto quiet = [this](const char* host) {
      return Must(RnicEnd::Make(Must(OpenDaemonDevice({socket_, host})), {}, 4096,
                                rnic::kLocalWrite | rnic::kRemoteWrite));
    };
    from_ = quiet("from");
    to_ = quiet("to");
    HL_FUZZ_CHECK(from_.qp->Connect(to_.qp->address()).ok(), "connect");
    HL_FUZZ_CHECK(to_.qp->Connect(from_.qp->address()).ok(), "connect");
    static std::string to_remove;
    to_remove = folder;
    std::atexit([] { std::filesystem::remove_all(to_remove); });
  }

  // Few, so that an input reaches them; the quiet clients need no more.
  static EngineOptions Limited() {
    EngineOptions options;
    options.limits = {.queue_pairs = 4,
                      .completion_queues = 4,
                      .memory_keys = 8,
                      .mappings = 10,
                      .mapped_bytes = 600'000,
                      .table_bytes = 4096,
                      .faults = 4};
    return options;
  }

  std::string socket_;
  std::optional<Connector> connector_;
  Engine engine_{Limited()};
  std::unique_ptr<EngineLoop> loop_;
  std::unique_ptr<ClientServer> server_;
  RnicEnd from_, to_;
  uint64_t round_ = 0;
};

constexpr uint64_t kBase = 0x7000000000;
constexpr uint64_t kFile = 64 << 10;
constexpr uint64_t kGuard = 1024;  // the end of the file's last page, mapped but not registered
constexpr uint64_t kBytes = kFile - kGuard;

// Bits of the first byte: what file is behind the client's memory.
constexpr uint8_t kNamed = 1, kUnsealed = 2, kDense = 4;

class Rogue {
 public:
  explicit Rogue(Reader& in) : in_(in) {
    socket_ = Daemon::Get().Connect();
    const timeval patience{.tv_sec = 20, .tv_usec = 0};
    setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    const uint8_t kind = in_.U8();
    if ((kind & kNamed) != 0) {  // may be truncated
      file_.Reset(open((Daemon::Get().socket() + ".memory").c_str(),
                       O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    } else {
      file_.Reset(memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    }
    HL_FUZZ_CHECK(ftruncate(file_.get(), kFile) == 0, "ftruncate");
    if ((kind & kDense) != 0) {
      static const std::vector<char> zeros(kFile);
      HL_FUZZ_CHECK(pwrite(file_.get(), zeros.data(), kFile, 0) == kFile, "pwrite");
    }
    if ((kind & (kNamed | kUnsealed)) == 0) fcntl(file_.get(), F_ADD_SEALS, F_SEAL_SHRINK);
  }
  ~Rogue() {
    if (uar_ != nullptr) munmap(uar_, kUarBytes);
  }

  void Act() {
    for (int i = 0; i < 80 && !in_.done(); ++i) {
      const uint8_t what = in_.U8();
      if (what < 160) {
        if (!SendCommand()) return;
      } else if (what < 170) {
        const uint16_t size = in_.U16() % 1400;
        std::vector<uint8_t> message(size);
        in_.Fill(message.data(), size);
        if (!Exchange(message.data(), message.size(), {})) return;
      } else if (what < 200) {
        const uint64_t at = in_.U16() % (kBytes - 255);
        const auto bytes = in_.Bytes(in_.U8());
        [[maybe_unused]] const ssize_t n =
            pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
      } else if (what < 225) {
        Ring();
      } else if (what < 245) {
        if (uar_ == nullptr) continue;
        const uint64_t value = in_.U64();
        std::memcpy(reinterpret_cast<char*>(uar_) + in_.U16() % (kUarBytes - 7), &value, 8);
        WakeEngine();
      } else {
        [[maybe_unused]] const int n = ftruncate(file_.get(), in_.U16());
      }
    }
  }

  void CheckGuard() const {
    std::vector<uint8_t> guard(kGuard);
    const ssize_t n = pread(file_.get(), guard.data(), kGuard, kBytes);  // none if truncated
    for (ssize_t i = 0; i < n; ++i)
      HL_FUZZ_CHECK(guard[static_cast<size_t>(i)] == 0,
                    "a byte behind the registered range changed");
  }

 private:
  // Objects of one kind that the daemon gave out.
  struct Ids {
    std::vector<uint32_t> all;
    uint32_t Pick(uint8_t which) const { return all.empty() ? which : all[which % all.size()]; }
  };

  bool SendCommand() {
    Command command;
    command.op = static_cast<Op>(in_.U8() % 17);
    const uint8_t fix = in_.U8();
    in_.Fill(&command.args, in_.U8());
    if ((fix & 1) == 0) PutRight(command);
    if (fix == 255) command.version = in_.U16();
    std::vector<int> fds;
    const size_t wanted = command.op == Op::kRegisterUmem ? 1 : 0;
    const size_t count = fix >= 250 ? in_.U8() % 6u : wanted;
    while (fds.size() < count) fds.push_back(fix >= 250 ? Descriptor(in_.U8()) : file_.get());
    return Exchange(&command, sizeof(command), fds, command.op);
  }

  int Descriptor(uint8_t which) {
    if (which % 4 == 1) {
      reading_.Reset(
          open(("/proc/self/fd/" + std::to_string(file_.get())).c_str(), O_RDONLY | O_CLOEXEC));
      return reading_.get();
    }
    return which % 4 == 2 ? socket_.get() : file_.get();
  }

  // Numbers of objects, addresses and sizes such that the command can succeed; where it is about a
  // choice, the input's bytes still choose.
  void PutRight(Command& command) {
    auto& args = command.args;
    const uint8_t pick = in_.U8();
    switch (command.op) {
      case Op::kOpen:
        std::strcpy(args.open.host, "rogue");
        break;
      case Op::kFreePd:
        args.id.id = pds_.Pick(pick);
        break;
      case Op::kFreeUmem:
        args.id.id = umems_.Pick(pick);
        break;
      case Op::kDestroyMkey:
        args.id.id = keys_.Pick(pick);
        break;
      case Op::kDestroyCq:
        args.id.id = cqs_.Pick(pick);
        break;
      case Op::kDestroyQp:
        args.id.id = qps_.Pick(pick);
        break;
      case Op::kRegisterUmem:
        args.umem = {kBase, 0, kBytes};
        if (pick >= 128) {  // not from its beginning, or refused
          args.umem.fd_offset = pick % 16 * 2048u;
          args.umem.client_addr += pick / 16 % 4 * 2048u;
          args.umem.length -= args.umem.fd_offset;
          if (pick >= 192) args.umem.length += 4096;
        }
        break;
      case Op::kCreateMkey:
        args.mkey = {pds_.Pick(pick), umems_.Pick(pick), kBase + in_.U8() * 256u,
                     in_.U16(),       in_.U8() & 0xfu,   in_.U8() % 3u};
        break;
      case Op::kCreateCq:
        args.cq = {umems_.Pick(pick),         in_.U8() % 14u, kBase + in_.U8() % 16u * 4096,
                   kBase + in_.U16() / 8 * 8, in_.U8() & 1u,  pick / 128u};
        break;
      case Op::kCreateQp:
        args.qp = {pds_.Pick(pick),
                   cqs_.Pick(pick),
                   cqs_.Pick(pick / 2),
                   umems_.Pick(pick),
                   kBase + in_.U8() % 16u * 4096,
                   kBase + in_.U8() % 16u * 4096,
                   kBase + in_.U16() / 8 * 8,
                   in_.U8() % 12u,
                   in_.U8() % 12u,
                   4u + in_.U8() % 4u,
                   pick & 1u,
                   in_.U8() & 7u,
                   in_.U8()};
        break;
      case Op::kModifyQp:
        args.modify.qpn = qps_.Pick(pick);
        args.modify.state = in_.U8() % 5u;
        args.modify.access = args.modify.state == 1 ? in_.U8() & 0xfu : 0;
        std::memcpy(args.modify.remote_gid, gid_, sizeof(gid_));
        args.modify.remote_qpn = qps_.Pick(in_.U8());
        args.modify.rnr_timer_us = 10, args.modify.ack_timeout_ms = 8;
        break;
      case Op::kPublish:
        std::strcpy(args.publish.service, "s");
        args.publish.pdn = pds_.Pick(pick);
        args.publish.private_length %= 600;
        break;
      case Op::kConnectService:
        std::strcpy(args.connect.host, "rogue");
        std::strcpy(args.connect.service, "s");
        args.connect.qpn = qps_.Pick(pick);
        break;
      case Op::kQueryCounters:
        std::strcpy(args.counters.host, pick < 128 ? "" : "rogue");
        break;
      default:
        break;
    }
  }

  // False: the daemon closed the connection.
  bool Exchange(const void* data, size_t size, const std::vector<int>& fds, Op op = Op{}) {
    const iovec part{const_cast<void*>(data), size};
    if (!SendMessage(socket_.get(), {&part, 1},
                     std::span(fds).first(std::min(fds.size(), kMaxMessageFds)), 0)
             .ok())
      return false;
    static std::vector<std::byte> buffer(sizeof(Reply) + kMaxReplyText);
    auto message = ReceiveMessage(socket_.get(), buffer, 0);
    if (!message.ok()) {
      HL_FUZZ_CHECK(message.status().code() != Code::kBusy, "neither an answer nor an end");
      return false;
    }
    if (message->bytes == 0) return false;
    Reply reply;
    HL_FUZZ_CHECK(message->bytes >= sizeof(reply), "a short answer");
    std::memcpy(&reply, buffer.data(), sizeof(reply));
    HL_FUZZ_CHECK(reply.magic == kCommandMagic, "an answer without its magic");
    HL_FUZZ_CHECK(reply.text_length == message->bytes - sizeof(reply), "a wrong text length");
    if (reply.code != 0) {
      HL_FUZZ_CHECK(reply.text_length != 0, "a refusal without a reason");
      return true;
    }
    Remember(op, reply, *message);
    return true;
  }

  void Remember(Op op, const Reply& reply, ReceivedMessage& message) {
    switch (op) {
      case Op::kOpen:
        HL_FUZZ_CHECK(message.fds.size() == 2, "descriptors of an attachment");
        std::memcpy(gid_, reply.result.open.gid, sizeof(gid_));
        uar_ =
            mmap(nullptr, kUarBytes, PROT_READ | PROT_WRITE, MAP_SHARED, message.fds[0].get(), 0);
        HL_FUZZ_CHECK(uar_ != MAP_FAILED, "mapping the doorbell page");
        wake_ = std::move(message.fds[1]);
        break;
      case Op::kAllocPd:
        pds_.all.push_back(reply.result.id.id);
        break;
      case Op::kRegisterUmem:
        umems_.all.push_back(reply.result.id.id);
        break;
      case Op::kCreateMkey:
        keys_.all.push_back(reply.result.mkey.lkey);
        rkeys_.all.push_back(reply.result.mkey.rkey);
        break;
      case Op::kCreateCq:
        cqs_.all.push_back(reply.result.cq.cqn);
        break;
      case Op::kCreateQp:
        qps_.all.push_back(reply.result.qp.qpn);
        doorbells_.all.push_back(reply.result.qp.doorbell_index);
        break;
      default:
        break;
    }
  }

  // A WQE, header and keys right for the queue, at its first place; then the doorbell, or that
  // alone.
  void Ring() {
    const uint8_t pick = in_.U8();
    if (uar_ == nullptr || doorbells_.all.empty()) return;
    if ((pick & 128) == 0) PlaceWqe(pick);
    auto* page = static_cast<UarPage*>(uar_);
    const uint32_t index = doorbells_.Pick(pick) % kMaxQpsPerContext;
    __atomic_store_n(&page->registers[index], 1ull << 63 | in_.U8(), __ATOMIC_RELEASE);
    __atomic_fetch_or(&page->header.summary[index / 64], 1ull << (index % 64), __ATOMIC_SEQ_CST);
    WakeEngine();
  }
  void PlaceWqe(uint8_t pick) {
    uint8_t wqe[64] = {};
    in_.Fill(wqe, sizeof(wqe));
    mlx5dv_set_ctrl_seg(reinterpret_cast<mlx5_wqe_ctrl_seg*>(wqe), 0, wqe[3] % 0x20, 0,
                        qps_.Pick(pick), wqe[11], std::max(1, wqe[7] & 63), 0, 0);
    const uint32_t lkey = htobe32(keys_.Pick(wqe[36])), rkey = htobe32(rkeys_.Pick(wqe[24]));
    if (wqe[37] != 0) std::memcpy(wqe + 36, &lkey, 4);
    if (wqe[25] != 0) std::memcpy(wqe + 24, &rkey, 4);
    const uint64_t where = in_.U8() % 16u * 4096;
    [[maybe_unused]] const ssize_t n =
        pwrite(file_.get(), wqe, sizeof(wqe), static_cast<off_t>(where));
  }
  void WakeEngine() const {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t woke = write(wake_.get(), &one, sizeof(one));
  }

  Reader& in_;
  UniqueFd socket_, file_, reading_, wake_;
  void* uar_ = nullptr;
  uint8_t gid_[16] = {};
  Ids pds_, umems_, keys_, rkeys_, cqs_, qps_, doorbells_;
};

// `pick`: which object the command is about.
void Put(Writer& out, Op op, std::initializer_list<unsigned> choices = {}, unsigned pick = 0) {
  out.U8(0).U8(static_cast<unsigned>(op)).U8(0).U8(0).U8(pick);
  for (const unsigned choice : choices) out.U8(choice);
}
// A queue pair that is connected to itself, its send ring in the second page, and all it needs.
void Begin(Writer& out, unsigned kind) {
  out.U8(kind);
  Put(out, Op::kOpen);
  Put(out, Op::kAllocPd);
  Put(out, Op::kRegisterUmem);
  Put(out, Op::kCreateMkey, {64, 0, 64, 15, 0});
  Put(out, Op::kCreateCq, {4, 0, 0, 16, 1});
  Put(out, Op::kCreateQp, {1, 2, 0, 8, 3, 3, 2, 0, 4});
  Put(out, Op::kModifyQp, {1, 15, 0});
  for (const unsigned state : {2u, 3u}) Put(out, Op::kModifyQp, {state, 0});
}
// A WRITE of 8 bytes from the key's memory to itself, `page` pages behind its begin.
void PutWrite(Writer& out, unsigned page, unsigned producer) {
  std::array<uint8_t, 64> wqe{};
  wqe[3] = rnic::kWqeWrite, wqe[7] = 3, wqe[11] = 8;
  const uint64_t to = htobe64(kBase + 16384 + page * 4096), from = htobe64(kBase + 16384);
  const uint32_t length = htobe32(8);
  std::memcpy(&wqe[16], &to, 8), std::memcpy(&wqe[32], &length, 4);
  std::memcpy(&wqe[40], &from, 8);
  wqe[25] = wqe[37] = 1;
  out.U8(210).U8(0).Bytes(wqe.data(), wqe.size()).U8(1).U8(producer);
}
void RingAlone(Writer& out, unsigned producer) { out.U8(210).U8(128).U8(producer); }
void Truncate(Writer& out, unsigned size) { out.U8(250).U16(size); }

void AddTruncationSeeds(std::vector<Input>* seeds) {
  for (const unsigned size : {0u, 8192u, 16384u + 100}) {  // rings and data; data; in a page
    Writer out;
    Begin(out, kNamed);
    PutWrite(out, 1, 1);
    Put(out, Op::kQueryCounters);
    Truncate(out, size);
    for (unsigned i = 2; i < 5; ++i) {
      RingAlone(out, i);
      Put(out, Op::kQueryCounters);
    }
    Put(out, Op::kCreateMkey, {64, 0, 64, 15, 1});  // over what is lost
    Put(out, Op::kDestroyMkey);
    seeds->push_back(out.Finish());
  }
}

// One too many of each object, and objects that others use.
void AddLimitSeeds(std::vector<Input>* seeds) {
  Writer out;
  Begin(out, kDense);
  for (int i = 0; i < 8; ++i) {
    Put(out, Op::kCreateMkey, {64, 0, 64, 15, 2});
    Put(out, Op::kCreateCq, {4, 0, 0, 16, 0}, 128);  // with events
    Put(out, Op::kCreateQp, {1, 2, 0, 8, 3, 3, 2, 7, 4});
    Put(out, Op::kRegisterUmem);
  }
  for (const Op op : {Op::kFreePd, Op::kFreeUmem, Op::kDestroyCq, Op::kDestroyQp, Op::kFreePd}) {
    Put(out, op);
    Put(out, op, {}, 1);
  }
  seeds->push_back(out.Finish());
  Writer tables;  // two pieces of memory with rings
  tables.U8(kDense);
  Put(tables, Op::kOpen);
  Put(tables, Op::kOpen);
  for (unsigned umem = 0; umem < 11; ++umem) {
    Put(tables, Op::kRegisterUmem, {}, umem < 6 ? 0 : 128 + 14);
    Put(tables, Op::kCreateCq, {4, 0, 0, 16, 0}, umem);
  }
  seeds->push_back(tables.Finish());
}

// Memory that is none.
void AddMemorySeeds(std::vector<Input>* seeds) {
  for (const unsigned kind : {0u + kUnsealed, 0u + kNamed, 0u + kDense}) {
    Writer out;
    out.U8(kind);
    Put(out, Op::kAllocPd);  // before it is attached
    Put(out, Op::kOpen);
    for (const unsigned pick : {0u, 128u, 129u, 128u + 16, 128u + 32 + 2, 192u, 255u})
      Put(out, Op::kRegisterUmem, {}, pick);
    for (const unsigned descriptor : {1u, 2u})
      out.U8(0)
          .U8(static_cast<unsigned>(Op::kRegisterUmem))
          .U8(250)
          .U8(0)
          .U8(0)
          .U8(1)
          .U8(descriptor);
    out.U8(0).U8(static_cast<unsigned>(Op::kAllocPd)).U8(250).U8(0).U8(0).U8(4).U32(0);
    seeds->push_back(out.Finish());
  }
}

void AddServiceSeeds(std::vector<Input>* seeds) {
  Writer out;
  Begin(out, 0);
  Put(out, Op::kPublish);
  Put(out, Op::kPublish, {}, 1);
  Put(out, Op::kConnectService);
  Put(out, Op::kModifyQp, {0, 0});
  Put(out, Op::kConnectService);
  PutWrite(out, 1, 1);
  Put(out, Op::kQueryCounters);
  seeds->push_back(out.Finish());
}

std::vector<Input> Seeds() {
  std::vector<Input> seeds = {{}, {0, 200, 1, 2, 3}};
  for (const unsigned kind : {0u, 1u}) {
    Writer out;
    Begin(out, kind);
    PutWrite(out, 1, 1);
    Put(out, Op::kQueryCounters);
    for (const Op op :
         {Op::kDestroyQp, Op::kDestroyCq, Op::kDestroyMkey, Op::kFreeUmem, Op::kFreePd})
      Put(out, op);
    seeds.push_back(out.Finish());
  }
  AddTruncationSeeds(&seeds);
  AddLimitSeeds(&seeds);
  AddMemorySeeds(&seeds);
  AddServiceSeeds(&seeds);
  Writer beyond;  // rings that reach behind the registered range, here by little and by much
  beyond.U8(0);
  Put(beyond, Op::kOpen);
  Put(beyond, Op::kAllocPd);
  Put(beyond, Op::kRegisterUmem);
  Put(beyond, Op::kCreateMkey, {240, 0, 64, 15, 0});
  Put(beyond, Op::kCreateCq, {6, 15, 0, 0, 1});
  Put(beyond, Op::kCreateCq, {13, 0, 0, 0, 1});
  Put(beyond, Op::kCreateCq, {2, 0, 255, 255, 1});
  Put(beyond, Op::kCreateCq, {2, 0, 0, 0, 1});
  Put(beyond, Op::kCreateQp, {15, 2, 0, 8, 6, 3, 2, 7, 4});
  Put(beyond, Op::kCreateQp, {1, 15, 0, 8, 3, 11, 2, 7, 4});
  seeds.push_back(beyond.Finish());
  return seeds;
}

const FuzzTarget kFuzzTarget("command", Seeds, [](Reader& in) {
  Rogue rogue(in);
  rogue.Act();
  Daemon::Get().CheckServes();
  rogue.CheckGuard();
});

}  // namespace
}  // namespace hyperloop::fuzz
