#include "softrnic/embedded/embedded.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <functional>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "hyperloop/core/mutex.h"
#include "softrnic/driver/device_context.h"
#include "softrnic/loop/event_pipe.h"

namespace hyperloop::softrnic {

// The engine and access to it: under the lock if it is stepped by hand, through the loop if a
// thread runs it.
class EmbeddedCore {
 public:
  explicit EmbeddedCore(EngineOptions options) : engine_(options) {}
  ~EmbeddedCore() { StopThread(); }

  Engine& engine() { return engine_; }

  void Call(const std::function<void()>& body) {
    MutexLock lock(mutex_);
    if (loop_ != nullptr && running_) {
      loop_->Submit(body);
    } else {
      body();
    }
  }

  // A context that a device has open. In Call.
  struct Opened {
    std::string host;
    UarPage* page;
    ContextId* context;  // becomes kNoContext when it is closed
  };
  void Attach(const Opened& opened) {
    opened_.push_back(opened);
    std::atomic_ref(opened.page->header.engine_alive).store(1, std::memory_order_release);
    if (loop_ != nullptr) loop_->AddPage(opened.page);
  }
  // Closes the contexts for which `concerns` holds.
  template <class Concerns>
  void Close(Concerns concerns) {
    std::erase_if(opened_, [&](const Opened& each) {
      if (!concerns(each)) return false;
      if (loop_ != nullptr) loop_->RemovePage(each.page);
      std::atomic_ref(each.page->header.engine_alive).store(0, std::memory_order_release);
      engine_.CloseContext(std::exchange(*each.context, kNoContext));
      return true;
    });
  }

  Status StartThread(EngineLoopOptions options) {
    MutexLock lock(mutex_);
    if (running_) return AlreadyExists("the engine thread runs already");
    HL_ASSIGN_OR_RETURN(auto loop, EngineLoop::Create(&engine_, options));
    for (const Opened& each : opened_) loop->AddPage(each.page);
    {
      MutexLock wake_lock(wake_mutex_);
      loop_ = std::move(loop);
    }
    running_ = true;
    thread_ = std::thread([this] { loop_->Run(); });
    return {};
  }

  void StopThread() {
    MutexLock lock(mutex_);
    if (!running_) return;
    loop_->Stop();
    thread_.join();
    running_ = false;
    MutexLock wake_lock(wake_mutex_);
    loop_.reset();
  }

  void Wake() {
    SharedLock lock(wake_mutex_);
    if (loop_ != nullptr) loop_->Wake();
  }
  bool RunWhileAsleep() {
    SharedLock lock(wake_mutex_);
    return loop_ != nullptr && loop_->RunWhileAsleep();
  }

 private:
  Mutex mutex_;             // guards everything except reads of loop_ under wake_mutex_
  SharedMutex wake_mutex_;  // with mutex_: guards changes of loop_
  Engine engine_;
  std::vector<Opened> opened_;
  std::unique_ptr<EngineLoop> loop_;
  bool running_ HL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

namespace {

class EmbeddedPort final : public CommandPort {
 public:
  static Result<std::unique_ptr<CommandPort>> Attach(std::shared_ptr<EmbeddedCore> core,
                                                     const std::string& host) {
    void* page = mmap(nullptr, kUarBytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (page == MAP_FAILED) return FromErrno(errno, "mapping a UAR page");
    std::unique_ptr<EmbeddedPort> port(new EmbeddedPort(std::move(core), new (page) UarPage()));
    HL_RETURN_IF_ERROR(port->Open(host));
    return std::unique_ptr<CommandPort>(std::move(port));
  }

  ~EmbeddedPort() override {
    if (guard_ == nullptr || guard_->IsOwner()) {
      core_->Call([this] { core_->Close([this](const auto& each) { return each.page == uar_; }); });
      munmap(uar_, kUarBytes);
    }
  }

  Status Execute(const Command& command, Reply* reply, std::string* text) override {
    std::string ignored;
    Status status;
    core_->Call([&] {
      if (status = CheckOpen(); !status.ok()) return;
      status = core_->engine().Execute(context_, command, reply, text != nullptr ? text : &ignored);
    });
    return status;
  }

  Result<uint32_t> RegisterUmem(const RegisterUmemArgs& args, int) override {
    Result<IdReply> reply = Internal("not called");
    const UmemMapping mapping{reinterpret_cast<std::byte*>(args.client_addr), args.length, nullptr};
    core_->Call([&] {
      const Status open = CheckOpen();
      reply = open.ok() ? core_->engine().RegisterUmem(context_, args, mapping) : open;
    });
    if (!reply.ok()) return reply.status();
    return reply->id;
  }

  Result<UniqueFd> CreateEventCq(const Command& command, Reply* reply) override {
    HL_ASSIGN_OR_RETURN(auto channel, EventPipe::Create());
    UniqueFd reader(fcntl(channel->reader(), F_DUPFD_CLOEXEC, 0));
    if (!reader) return FromErrno(errno, "duplicating a completion channel");
    Status status;
    core_->Call([&] {
      if (status = CheckOpen(); !status.ok()) return;
      auto created = core_->engine().CreateEventCq(context_, command.args.cq,
                                                   [channel] { channel->Signal(); });
      status = created.status();
      if (created.ok()) reply->result.cq = *created;
    });
    HL_RETURN_IF_ERROR(status);
    return reader;
  }

  bool needs_fd() const override { return false; }
  const OpenReply& attachment() const override { return attachment_; }
  UarPage* uar() const override { return uar_; }
  void WakeEngine() override { core_->Wake(); }
  bool EngineGone() override { return false; }

 private:
  EmbeddedPort(std::shared_ptr<EmbeddedCore> core, UarPage* uar)
      : core_(std::move(core)), uar_(uar) {}

  Status CheckOpen() const {
    return context_ != kNoContext ? Status() : Unavailable("the process of this device is dead");
  }
  Status Open(const std::string& host) {
    HL_ASSIGN_OR_RETURN(guard_, ForkDetector::Create());
    if (madvise(uar_, kUarBytes, MADV_DONTFORK) != 0) {
      return FromErrno(errno, "MADV_DONTFORK of the UAR page");
    }
    Status status;
    core_->Call([&] {
      Result<ContextId> context = core_->engine().OpenContext(host, uar_, &attachment_);
      if (!context.ok()) {
        status = context.status();
        return;
      }
      context_ = *context;
      core_->Attach({host, uar_, &context_});
    });
    return status;
  }

  const std::shared_ptr<EmbeddedCore> core_;
  UarPage* const uar_;
  std::unique_ptr<ForkDetector> guard_;
  ContextId context_ = kNoContext;  // in EmbeddedCore::Call
  OpenReply attachment_{};
};

}  // namespace

EmbeddedRnic::EmbeddedRnic(EngineOptions options)
    : core_(std::make_shared<EmbeddedCore>(options)) {}
EmbeddedRnic::~EmbeddedRnic() { StopThread(); }

Engine& EmbeddedRnic::engine() { return core_->engine(); }

Result<std::unique_ptr<rnic::Device>> EmbeddedRnic::OpenDevice(const std::string& host) {
  HL_ASSIGN_OR_RETURN(auto port, EmbeddedPort::Attach(core_, host));
  return MakeDevice(std::move(port));
}

void EmbeddedRnic::CloseHost(const std::string& host) {
  core_->Call([&] { core_->Close([&](const auto& each) { return each.host == host; }); });
}

Status EmbeddedRnic::StartThread(EngineLoopOptions options) { return core_->StartThread(options); }
void EmbeddedRnic::StopThread() { core_->StopThread(); }
void EmbeddedRnic::Wake() { core_->Wake(); }
bool EmbeddedRnic::RunWhileAsleep() { return core_->RunWhileAsleep(); }

}  // namespace hyperloop::softrnic
