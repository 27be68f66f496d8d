#include "softrnic/embedded.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <functional>
#include <mutex>
#include <new>
#include <thread>

#include "softrnic/device_context.h"
#include "softrnic/event_pipe.h"

namespace hyperloop::softrnic {

// The engine and access to it: under the lock if it is stepped by hand, through the loop if a
// thread runs it.
class EmbeddedCore {
 public:
  explicit EmbeddedCore(EngineOptions options) : engine_(options) {}
  ~EmbeddedCore() { StopThread(); }

  Engine& engine() { return engine_; }

  void Call(const std::function<void()>& body) {
    std::lock_guard lock(mutex_);
    if (loop_ != nullptr && running_) {
      loop_->Submit(body);
    } else {
      body();
    }
  }

  void Attach(UarPage* page) {
    pages_.push_back(page);
    std::atomic_ref(page->header.engine_alive).store(1, std::memory_order_release);
    if (loop_ != nullptr) loop_->AddPage(page);
  }
  void Detach(UarPage* page) {
    std::erase(pages_, page);
    if (loop_ != nullptr) loop_->RemovePage(page);
  }

  Status StartThread(EngineLoopOptions options) {
    std::lock_guard lock(mutex_);
    if (running_) return AlreadyExists("the engine thread runs already");
    HL_ASSIGN_OR_RETURN(auto loop, EngineLoop::Create(&engine_, options));
    for (UarPage* page : pages_) loop->AddPage(page);
    {
      std::lock_guard wake_lock(wake_mutex_);
      loop_ = std::move(loop);
    }
    running_ = true;
    thread_ = std::thread([this] { loop_->Run(); });
    return {};
  }

  void StopThread() {
    std::lock_guard lock(mutex_);
    if (!running_) return;
    loop_->Stop();
    thread_.join();
    running_ = false;
    std::lock_guard wake_lock(wake_mutex_);
    loop_.reset();
  }

  void Wake() {
    std::lock_guard lock(wake_mutex_);
    if (loop_ != nullptr) loop_->Wake();
  }

 private:
  std::mutex mutex_;       // guards everything except Wake's read of loop_
  std::mutex wake_mutex_;  // with mutex_: guards changes of loop_
  Engine engine_;
  std::vector<UarPage*> pages_;
  std::unique_ptr<EngineLoop> loop_;
  bool running_ = false;
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
      core_->Call([this] {
        if (context_ == kNoContext) return;
        core_->Detach(uar_);
        core_->engine().CloseContext(context_);
      });
      munmap(uar_, kUarBytes);
    }
  }

  Status Execute(const Command& command, Reply* reply, std::string* text) override {
    std::string ignored;
    Status status;
    core_->Call([&] {
      status = core_->engine().Execute(context_, command, reply, text != nullptr ? text : &ignored);
    });
    return status;
  }

  Result<uint32_t> RegisterUmem(const RegisterUmemArgs& args, int) override {
    Result<IdReply> reply = Internal("not called");
    const UmemMapping mapping{reinterpret_cast<std::byte*>(args.client_addr), args.length, nullptr};
    core_->Call([&] { reply = core_->engine().RegisterUmem(context_, args, mapping); });
    if (!reply.ok()) return reply.status();
    return reply->id;
  }

  Result<UniqueFd> CreateEventCq(const Command& command, Reply* reply) override {
    HL_ASSIGN_OR_RETURN(auto channel, EventPipe::Create());
    UniqueFd reader(fcntl(channel->reader(), F_DUPFD_CLOEXEC, 0));
    if (!reader) return FromErrno(errno, "duplicating a completion channel");
    Status status;
    core_->Call([&] {
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
      core_->Attach(uar_);
    });
    return status;
  }

  const std::shared_ptr<EmbeddedCore> core_;
  UarPage* const uar_;
  std::unique_ptr<ForkDetector> guard_;
  ContextId context_ = kNoContext;
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

Status EmbeddedRnic::StartThread(EngineLoopOptions options) { return core_->StartThread(options); }
void EmbeddedRnic::StopThread() { core_->StopThread(); }
void EmbeddedRnic::Wake() { core_->Wake(); }

}  // namespace hyperloop::softrnic
