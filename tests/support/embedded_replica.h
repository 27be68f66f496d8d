// EmbeddedReplica: a replica inside the test's process: pool, RDMA side, node and control server on
// a thread of its own, over an embedded RNIC. Its answers can be cut off, to see what a primary
// leaves behind when it stops half way.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "control/server.h"
#include "pool/pool.h"
#include "replica/node.h"
#include "replica/rdma_service.h"
#include "softrnic/embedded.h"

namespace hyperloop::test {

class EmbeddedReplica {
 public:
  // Called before each request is handled: false answers with an error instead, and the node does
  // not see it.
  using Gate = std::function<bool(const control::BodyUnion& request)>;

  static Result<std::unique_ptr<EmbeddedReplica>> Start(softrnic::EmbeddedRnic& rnic,
                                                        const std::string& host,
                                                        const std::string& pool_path, uint64_t size,
                                                        Gate gate) {
    std::unique_ptr<EmbeddedReplica> replica(new EmbeddedReplica);
    replica->gate_ = std::move(gate);
    HL_ASSIGN_OR_RETURN(replica->pool_, Pool::Create(pool_path, size));
    Pool& pool = *replica->pool_;
    replica->store_ = std::make_unique<NodePageStore>(pool.node_page(), pool.media());
    replica->service_ = std::make_unique<RdmaService>(
        [&rnic, host] { return rnic.OpenDevice(host); }, pool, nullptr);
    HL_RETURN_IF_ERROR(replica->service_->Start());
    HL_ASSIGN_OR_RETURN(replica->node_,
                        Node::Create({host, "test", "ram"}, pool.region(), *replica->store_,
                                     *replica->service_, nullptr));
    EmbeddedReplica* self = replica.get();
    HL_ASSIGN_OR_RETURN(
        replica->server_,
        control::ControlServer::Listen({"127.0.0.1", 0}, [self](const control::BodyUnion& request) {
          if (!self->gate_(request)) return control::MakeError(Unavailable("cut off by the test"));
          return self->node_->Handle(request);
        }));
    replica->wake_ = control::Fd(eventfd(0, EFD_CLOEXEC));
    replica->thread_ = std::thread([self] {
      while (!self->stop_)
        self->server_->Serve(control::Deadline::max(), self->wake_.get()).IgnoreError();
    });
    return replica;
  }

  ~EmbeddedReplica() {
    if (!thread_.joinable()) return;
    stop_ = true;
    const uint64_t one = 1;
    if (write(wake_.get(), &one, sizeof(one)) == sizeof(one)) thread_.join();
  }

  std::string address() const { return server_->endpoint().ToString(); }
  std::span<std::byte> region() const { return pool_->region(); }

 private:
  EmbeddedReplica() = default;

  Gate gate_;
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<NodePageStore> store_;
  std::unique_ptr<RdmaService> service_;
  std::unique_ptr<Node> node_;
  std::unique_ptr<control::ControlServer> server_;
  control::Fd wake_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace hyperloop::test
