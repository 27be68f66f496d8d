#include "files/bulk_server.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "common/background_thread.h"
#include "files/file_store.h"
#include "hyperloop/core/out_of_memory.h"
#include "hyperloop/core/text.h"
#include "hyperloop/core/trusted_files.h"

namespace hyperloop {
namespace {

constexpr int kPauseMs = 100;
constexpr std::chrono::seconds kScrubInterval{1};

}  // namespace

Result<std::unique_ptr<BulkServer>> BulkServer::Listen(const control::Endpoint& endpoint,
                                                       control::Trust trust,
                                                       std::shared_ptr<Log> log) {
  std::unique_ptr<BulkServer> server(new BulkServer());
  BulkServer* const self = server.get();
  server->log_ = log;
  server->stop_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!server->stop_) return FromErrno(errno, "eventfd");
  const auto handle = [self](const control::BodyUnion& request) {
    ++self->requests_;
    control::BodyUnion reply = self->service_->Handle(request);
    self->TellRefusal();
    return reply;
  };
  HL_ASSIGN_OR_RETURN(server->server_,
                      control::ControlServer::Listen(endpoint, std::move(trust), handle,
                                                     std::move(log), control::kMaxBulkRequest));
  return server;
}

BulkServer::~BulkServer() {
  if (!thread_.joinable()) return;
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

Status BulkServer::Start(const std::string& root, Tell aside, Tell refusal) {
  aside_ = std::move(aside);
  refusal_ = std::move(refusal);
  HL_RETURN_IF_ERROR(MakeDurableDirectory(root).WithContext("the directory of files"));
  HL_ASSIGN_OR_RETURN(std::string path, CheckDirectory(root, DirectoryRule::kOwn));
  root_ = UniqueFd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!root_) return FromErrno(errno, Text("open ", path));
  if (flock(root_.get(), LOCK_EX | LOCK_NB) != 0) {
    return Busy(Text("another replica keeps its files in ", path,
                     "; give each replica a directory of its own (--files)"));
  }
  LookAtDisk();
  service_ = std::make_unique<BulkService>(std::move(path), log_.get());
  thread_ = std::thread([this] { Run(); });
  return {};
}

void BulkServer::Publish(const NodeState& state) {
  if (service_ != nullptr) service_->Publish(state);
}

void BulkServer::TellRefusal() {
  const std::string& refusal = service_->refusal();
  if (refusal == refusal_told_) return;
  refusal_(refusal);
  refusal_told_ = refusal;
}

void BulkServer::ScrubIfIdle() {
  if (std::exchange(requests_before_, requests_) != requests_) return;
  const std::string& aside = service_->Scrub();
  if (aside == told_) return;
  aside_(aside);
  told_ = aside;
}

// A disk that hangs holds up this thread only.
void BulkServer::LookAtDisk() {
  struct statvfs disk {};
  if (fstatvfs(root_.get(), &disk) != 0) return;
  disk_bytes_.store(disk.f_blocks * disk.f_frsize, std::memory_order_relaxed);
  disk_free_bytes_.store(disk.f_bavail * disk.f_frsize, std::memory_order_relaxed);
}

void BulkServer::Run() {
  pthread_setname_np(pthread_self(), "hl-bulk");
  YieldToOtherThreads();
  control::Deadline scrub = control::Clock::now() + kScrubInterval;
  while (true) {
    pollfd stop{stop_.get(), POLLIN, 0};
    if (poll(&stop, 1, 0) > 0) return;
    const Status served = server_->Serve(scrub, stop_.get());
    if (control::Clock::now() >= scrub) {
      LookAtDisk();
      if (RanOutOfMemory([this] { ScrubIfIdle(); }))
        LogLine(log_.get(), LogLevel::kWarn, {"out of memory while files are checked"});
      scrub = control::Clock::now() + kScrubInterval;
    }
    if (served.ok()) continue;
    LogLine(log_.get(), LogLevel::kError, {"bulk lane: ", served.message()});
    poll(&stop, 1, kPauseMs);
  }
}

}  // namespace hyperloop
