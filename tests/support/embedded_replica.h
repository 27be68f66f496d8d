// EmbeddedReplica: a replica inside the test's process: pool, RDMA side, node and control server on
// a thread of its own, over an embedded RNIC. Requests and replies can be lost, to test the state
// that a primary leaves when it stops half-way.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>

#include "control/server.h"
#include "device/device_opener.h"
#include "files/bulk_server.h"
#include "region/pool.h"
#include "replica/idle_scrub.h"
#include "replica/node.h"
#include "replica/rdma_service.h"
#include "softrnic/embedded/embedded.h"
#include "softrnic/engine/testing/persistence_model.h"

namespace hyperloop::test {

// A medium whose bytes are durable when the model says so.
class ModelledMedia final : public MediaWriter {
 public:
  explicit ModelledMedia(softrnic::PersistenceModel* model) : model_(model) {}
  rnic::Media level() const override { return rnic::Media::kRam; }
  Status Persist(const void* data, size_t size) override {
    model_->Persist(data, size);
    return {};
  }

 private:
  softrnic::PersistenceModel* const model_;
};

class EmbeddedReplica {
 public:
  // What becomes of a request. If the request or the reply is lost, the sender gets an error at
  // once; in the first case the node does not see the request. Nor does it see one that is answered
  // with the lie that another primary has the node.
  enum class Fate { kHandled, kRequestLost, kReplyLost, kFenced };
  using Gate = std::function<Fate(const control::BodyUnion& request)>;
  using Witness =
      std::function<void(const control::BodyUnion& request, const control::BodyUnion& reply)>;

  // What the host has of a pool that outlived its process: bytes that are not durable yet differ
  // from the pool's.
  struct Durable {
    std::vector<std::byte> region, node_page;
  };

  struct Options {
    DeviceOpener open_device;
    std::string host;
    std::string pool;  // its path; the pool is made if there is none
    uint64_t size = 0;
    Gate gate;
    Witness witness = nullptr;  // sees each answer of the node, even if it is lost; null: none
    softrnic::PersistenceModel* power = nullptr;  // the model that the RNIC's engine has, or null
    uint16_t port = 0;                            // where to listen; 0: at any free port
    // With a model: of the process that had the pool before; null: all of it.
    const Durable* durable = nullptr;
    // With a model: what makes bytes durable; null: the model alone.
    std::unique_ptr<MediaWriter> media = nullptr;
    // Where it keeps whole files (BulkServer); empty: it takes none.
    std::string files = {};
    std::string keys = {};  // its keys directory; empty: it has none
    bool scrub = false;     // whether it checks its region while it is idle (IdleScrub)
  };
  static DeviceOpener OpenerOf(softrnic::EmbeddedRnic& rnic, const std::string& host) {
    return [&rnic, host] { return rnic.OpenDevice(host); };
  }

  static Result<std::unique_ptr<EmbeddedReplica>> Start(Options options) {
    std::unique_ptr<EmbeddedReplica> replica(new EmbeddedReplica);
    replica->gate_ = std::move(options.gate);
    replica->witness_ = std::move(options.witness);
    softrnic::PersistenceModel* const power = options.power;
    const Durable* const durable = options.durable;
    auto opened = Pool::Open(options.pool);
    if (opened.status().code() == Code::kNotFound)
      opened = Pool::Create(options.pool, options.size);
    if (!opened.ok()) return opened.status();
    replica->pool_ = std::move(opened).value();
    Pool& pool = *replica->pool_;
    if (power != nullptr) {
      if (options.media == nullptr) options.media = std::make_unique<ModelledMedia>(power);
      pool.ReplaceMedia(std::move(options.media));
      Watch(*power, pool.region(), durable == nullptr ? nullptr : &durable->region);
      Watch(*power, pool.node_page(), durable == nullptr ? nullptr : &durable->node_page);
      replica->power_ = power;
    }
    replica->store_ = std::make_unique<NodePageStore>(pool.node_page(), pool.media());
    replica->service_ =
        std::make_unique<RdmaService>(std::move(options.open_device), pool, nullptr);
    HL_RETURN_IF_ERROR(replica->service_->Start());
    if (options.scrub) replica->scrub_.emplace(pool.region(), nullptr);
    HL_ASSIGN_OR_RETURN(const control::Trust trust, control::Trust::Load(options.keys, nullptr));
    EmbeddedReplica* self = replica.get();
    if (!options.files.empty()) {
      HL_ASSIGN_OR_RETURN(replica->bulk_, BulkServer::Listen({"127.0.0.1", 0}, trust, nullptr));
    }
    HL_ASSIGN_OR_RETURN(replica->node_,
                        Node::Create({options.host, "ram", self->bulk_port()}, pool.region(),
                                     *replica->store_, *replica->service_, nullptr));
    if (!options.files.empty()) {
      HL_RETURN_IF_ERROR(replica->bulk_->Start(options.files, [](std::string_view) {}));
      replica->bulk_->Publish(replica->node_->state());
    }
    HL_ASSIGN_OR_RETURN(
        replica->server_,
        control::ControlServer::Listen(
            {"127.0.0.1", options.port}, trust, [self](const control::BodyUnion& request) {
              const Fate fate = self->gate_(request);
              if (fate == Fate::kHandled) return self->Handle(request);
              if (fate == Fate::kFenced) return control::MakeError(Fenced("a lie of the test"));
              if (fate == Fate::kReplyLost) self->Handle(request);
              return control::MakeError(Unavailable("cut off by the test"));
            }));
    replica->wake_ = UniqueFd(eventfd(0, EFD_CLOEXEC));
    replica->thread_ = std::thread([self] { self->Serve(); });
    return replica;
  }

  ~EmbeddedReplica() {
    Stop();
    if (power_ == nullptr) return;
    power_->Unwatch(pool_->region());
    power_->Unwatch(pool_->node_page());
  }
  // With a model: what of the pool is durable now.
  Durable durable() const {
    return {power_->Durable(pool_->region().data()), power_->Durable(pool_->node_page().data())};
  }
  std::vector<std::byte> durable_page() const { return power_->Durable(pool_->node_page().data()); }
  // With a model: what could be left of the pool if the power failed now, by `random`.
  Durable AfterPowerFailure(std::mt19937_64& random) const {
    return {power_->PowerFailure(pool_->region().data(), random),
            power_->PowerFailure(pool_->node_page().data(), random)};
  }

  std::string address() const { return server_->endpoint().ToString(); }
  uint16_t port() const { return server_->endpoint().port; }
  uint16_t bulk_port() const { return bulk_ == nullptr ? 0 : bulk_->port(); }
  std::span<std::byte> region() const { return pool_->region(); }
  std::span<std::byte> node_page() const { return pool_->node_page(); }
  // Its check of its own region. With Options::scrub.
  const IdleScrub& scrub() const { return *scrub_; }

 private:
  EmbeddedReplica() = default;

  static void Watch(softrnic::PersistenceModel& power, std::span<std::byte> memory,
                    const std::vector<std::byte>* durable) {
    if (durable == nullptr) return power.Watch(memory);
    const std::vector<std::byte> visible(memory.begin(), memory.end());
    std::copy(durable->begin(), durable->end(), memory.begin());
    power.Watch(memory);
    std::copy(visible.begin(), visible.end(), memory.begin());
  }

  control::BodyUnion Handle(const control::BodyUnion& request) {
    control::BodyUnion reply = node_->Handle(request);
    if (bulk_ != nullptr) bulk_->Publish(node_->state());
    if (witness_ != nullptr) witness_(request, reply);
    return reply;
  }

  // As hyperloop-replica does.
  void Serve() {
    constexpr std::chrono::seconds kWatchInterval{1};
    control::Deadline watch = control::Clock::now() + kWatchInterval;
    while (!stop_) {
      server_->Serve(watch, wake_.get()).IgnoreError();
      if (stop_ || control::Clock::now() < watch) continue;
      service_->Watch();
      if (scrub_.has_value()) scrub_->Tick(node_->state().installed.epoch, node_->filling());
      watch = control::Clock::now() + kWatchInterval;
    }
  }

  void Stop() {
    stop_ = true;
    const uint64_t one = 1;
    if (thread_.joinable() && write(wake_.get(), &one, sizeof(one)) == sizeof(one)) thread_.join();
    bulk_.reset();
    service_.reset();
    server_.reset();
  }

  Gate gate_;
  Witness witness_;
  softrnic::PersistenceModel* power_ = nullptr;
  std::unique_ptr<Pool> pool_;
  std::optional<IdleScrub> scrub_;
  std::unique_ptr<NodePageStore> store_;
  std::unique_ptr<RdmaService> service_;
  std::unique_ptr<Node> node_;
  std::unique_ptr<BulkServer> bulk_;
  std::unique_ptr<control::ControlServer> server_;
  UniqueFd wake_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace hyperloop::test
