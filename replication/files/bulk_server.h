// BulkServer: the port and the thread on which a replica takes files (BulkService). The control
// plane has its own port and thread, so that a slow disk holds up no primary that asks for
// something else. The thread yields the processor to those that commits need. While nobody asks
// for anything, it reads the files again (FileScrub).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "control/endpoint.h"
#include "control/server.h"
#include "control/trust.h"
#include "files/bulk_service.h"
#include "hyperloop/core/log.h"
#include "hyperloop/core/status.h"
#include "hyperloop/core/unique_fd.h"

namespace hyperloop {

class BulkServer {
 public:
  // Listens on `endpoint`. It answers nobody before Start.
  static Result<std::unique_ptr<BulkServer>> Listen(const control::Endpoint& endpoint,
                                                    control::Trust trust, std::shared_ptr<Log> log);
  // Ends the thread once it has finished the request that it is serving.
  ~BulkServer();

  uint16_t port() const { return server_->endpoint().port; }
  // Keeps files below the directory `root`, which is made when it is absent. kPermissionDenied:
  // others may write there. kBusy: another replica keeps its files there. `aside` is told, on the
  // thread, what lies set aside as damaged, each time that it changes; `refusal`, in the same way,
  // BulkService::refusal.
  using Tell = std::function<void(std::string_view)>;
  Status Start(
      const std::string& root, Tell aside, Tell refusal = [](std::string_view) {});
  // As BulkService::Publish; needs no memory. Does nothing before Start.
  void Publish(const NodeState& state);
  // Of the file system on which the files lie, as the thread saw it last: its size, and what is
  // free for this user. Any thread may ask.
  uint64_t disk_bytes() const { return disk_bytes_.load(std::memory_order_relaxed); }
  uint64_t disk_free_bytes() const { return disk_free_bytes_.load(std::memory_order_relaxed); }

 private:
  BulkServer() = default;
  void Run();
  void TellRefusal();
  // Goes on with the check of the files, if no request came since the last call.
  void ScrubIfIdle();
  void LookAtDisk();

  std::shared_ptr<Log> log_;
  std::unique_ptr<control::ControlServer> server_;
  std::unique_ptr<BulkService> service_;
  Tell aside_, refusal_;
  // Only the thread uses these.
  uint64_t requests_ = 0, requests_before_ = 0;
  std::string told_, refusal_told_;
  std::atomic<uint64_t> disk_bytes_{0}, disk_free_bytes_{0};

  UniqueFd stop_;  // an eventfd
  UniqueFd root_;  // the directory, locked against other replicas
  std::thread thread_;
};

}  // namespace hyperloop
