#include "replica/replica_program.h"

#include <unistd.h>

#include <chrono>
#include <functional>
#include <utility>

#include "common/end_signals.h"
#include "control/server.h"
#include "control/trust.h"
#include "files/bulk_server.h"
#include "hyperloop/core/out_of_memory.h"
#include "hyperloop/core/ready.h"
#include "hyperloop/core/text.h"
#include "region/pool.h"
#include "replica/idle_scrub.h"
#include "replica/node.h"
#include "replica/rdma_service.h"
#include "replica/replica_metrics.h"

namespace hyperloop {
namespace {

constexpr std::chrono::seconds kWatchInterval{1};

// How long a start waits for others that read or map the pool, such as an RNIC daemon on a busy
// machine.
constexpr std::chrono::minutes kPoolPatience{10};

Result<std::unique_ptr<Pool>> OpenOrCreate(const ReplicaOptions& options,
                                           const std::function<bool()>& stop, Log* log) {
  PoolOptions pool_options{options.media, kPoolPatience, {}};
  pool_options.waiting = [&stop, log, said = false](const std::string& what) mutable {
    if (!std::exchange(said, true)) log->Write(LogLevel::kWarn, Text("waiting: ", what));
    return !stop();
  };
  auto pool = Pool::Open(options.pool, pool_options);
  if (pool.ok()) {
    const uint64_t present = (*pool)->region().size();
    if (options.size != 0 && options.size != present) {
      return InvalidArgument(Text("leave --size out: pool ", options.pool, " holds a region of ",
                                  present, " B, --size says ", options.size,
                                  " B; hyperloopctl resize makes a region larger"));
    }
    return pool;
  }
  if (pool.status().code() != Code::kNotFound) return pool;
  const uint64_t size = options.size != 0 ? options.size : options.new_size;
  if (size == 0) {
    return NotFound(Text("there is no pool ", options.pool, "; give --size to make one"));
  }
  pool = Pool::Create(options.pool, size, pool_options);
  if (pool.ok())
    log->Write(LogLevel::kInfo, Text("made pool ", options.pool, ", region of ", size, " B"));
  return pool;
}

Result<control::Trust> TrustOf(const ReplicaOptions& options, const std::shared_ptr<Log>& log) {
  if (!options.keys.empty()) return control::Trust::Load(options.keys, log);
  if (!options.insecure) {
    return InvalidArgument(
        "no keys: give --keys DIR, made by hyperloopctl keys init --dir DIR --name HOST, by which "
        "a replica tells its primaries from strangers; or, if every user of this machine may "
        "take, read and destroy the group, --insecure");
  }
  log->Write(LogLevel::kWarn,
             "insecure: whoever connects on this machine, of any user, may take the group and "
             "read and change all of it; --keys ends that");
  return control::Trust();
}

// Tells the bulk lane what the node promises when a request has been handled, even if memory ran
// out behind the promise.
class PublishAtExit {
 public:
  PublishAtExit(BulkServer& bulk, const Node& node) : bulk_(bulk), node_(node) {}
  ~PublishAtExit() { bulk_.Publish(node_.state()); }
  PublishAtExit(const PublishAtExit&) = delete;
  PublishAtExit& operator=(const PublishAtExit&) = delete;

 private:
  BulkServer& bulk_;
  const Node& node_;
};

Result<control::Endpoint> BulkEndpoint(const ReplicaOptions& options,
                                       const control::Endpoint& listen) {
  if (options.bulk_listen.empty()) return control::Endpoint{listen.host, 0};
  return control::ParseEndpoint(options.bulk_listen);
}

Result<std::unique_ptr<Node>> MakeNode(const ReplicaOptions& options, Node::Identity identity,
                                       const Pool& pool, NodeStateStore& store,
                                       NodeService& service, Log* log) {
  Result<std::unique_ptr<Node>> node =
      Node::Create(std::move(identity), pool.region(), store, service, log);
  if (node.status().code() == Code::kCorruption) {
    return Corruption(Text("pool ", options.pool,
                           " is damaged: set the file aside if databases open with "
                           "on_replica_failure=continue (the next open fills a fresh pool from the "
                           "other replicas), else put a copy of the file back; ",
                           node.status().message()));
  }
  if (node.ok() && !NodePageIsWhole(pool.node_page())) {
    log->Write(LogLevel::kWarn,
               Text("pool ", options.pool,
                    ": one of the two copies of the node page is not valid; "
                    "it is damaged, or its writing was cut short. The other copy counts"));
  }
  return node;
}

void LogMedia(const Uuid& node, const MediaKind& media, Log* log) {
  log->Write(LogLevel::kInfo, Text("node ", FormatUuid(node), ", media ", MediaName(media), ": ",
                                   MediaPromise(media)));
}

Status EndedEarly(Log* log) {
  log->Write(LogLevel::kInfo, "asked to end while it waited at its start");
  return {};
}

// Answers requests, and does the periodic work, until a signal has arrived at `stop`.
Status ServeUntil(const UniqueFd& stop, control::ControlServer& server, RdmaService& service,
                  const Node& node, IdleScrub& scrub, const std::function<void()>& sample,
                  Log* log) {
  control::Deadline watch = control::Clock::now() + kWatchInterval;
  while (!WasAskedToEnd(stop)) {
    HL_RETURN_IF_ERROR(server.Serve(watch, stop.get()));
    if (control::Clock::now() < watch) continue;
    if (RanOutOfMemory([&] { service.Watch(); }))
      LogLine(log, LogLevel::kWarn, {"out of memory on the way to the RNIC daemon; trying again"});
    scrub.Tick(node.state().installed.epoch, node.filling());
    sample();
    watch = control::Clock::now() + kWatchInterval;
  }
  return {};
}

}  // namespace

Status TakeGroup(const NodeGroup& group, ReplicaOptions* options) {
  if (!group.has_host)
    return NotFound(Text("this host, ", group.host, ", is none of the hosts of ", group.file,
                         ": add it there, on all hosts alike"));
  if (options->pool.empty()) options->pool = group.pool;
  options->new_size = group.size;
  options->listen = group.listen;
  options->bulk_listen = group.bulk_listen;
  options->keys = group.store.keys;
  options->media = group.store.media;
  options->device.provider = group.store.provider;
  if (options->device.device.empty()) options->device.device = group.store.device;
  options->device.host = group.store.host;
  return {};
}

Status RunReplica(const ReplicaOptions& options, const std::shared_ptr<Log>& shared_log) {
  Log* const log = shared_log.get();
  HL_ASSIGN_OR_RETURN(const control::Endpoint listen, control::ParseEndpoint(options.listen));
  HL_ASSIGN_OR_RETURN(control::Trust trust, TrustOf(options, shared_log));
  HL_ASSIGN_OR_RETURN(const UniqueFd stop, EndSignalDescriptor());
  bool ended = false;  // asked to end, which `stop` says once
  const auto stopped = [&] { return ended = ended || WasAskedToEnd(stop); };
  // The addresses are bound first, so that a wrong one leaves no pool behind. Nobody is answered
  // before Serve.
  HL_ASSIGN_OR_RETURN(const control::Endpoint bulk_listen, BulkEndpoint(options, listen));
  std::unique_ptr<Pool> pool;  // outlives the thread of the bulk lane, which writes to it
  HL_ASSIGN_OR_RETURN(const std::unique_ptr<BulkServer> bulk,
                      BulkServer::Listen(bulk_listen, trust, shared_log));
  std::unique_ptr<Node> node;
  ReplicaMetrics::Requests requests;
  const auto handle = [&](const control::BodyUnion& request) {
    const PublishAtExit publish(*bulk, *node);
    control::BodyUnion reply = node->Handle(request);
    requests.Count(reply);
    return reply;
  };
  HL_ASSIGN_OR_RETURN(const std::unique_ptr<control::ControlServer> server,
                      control::ControlServer::Listen(listen, std::move(trust), handle, shared_log));
  Result<std::unique_ptr<Pool>> opened = OpenOrCreate(options, stopped, log);
  if (!opened.ok() && ended) return EndedEarly(log);
  HL_ASSIGN_OR_RETURN(pool, std::move(opened));
  NodePageStore store(pool->node_page(), pool->media());
  DeviceChoice device = options.device;
  device.service_port = server->endpoint().port;
  RdmaService service([device] { return OpenDevice(device); }, *pool, log, options.datapath_cpu);
  const Status started = service.StartPatiently(stopped);
  if (!started.ok() && ended) return EndedEarly(log);
  HL_RETURN_IF_ERROR(started);
  const MediaKind media = pool->media().kind();
  Node::Identity identity{ServiceHost(device, service.device()), std::string(MediaName(media)),
                          bulk->port()};
  HL_ASSIGN_OR_RETURN(node, MakeNode(options, std::move(identity), *pool, store, service, log));
  WriteFileDamage(pool->node_page(), "");
  WriteFileRefusal(pool->node_page(), "");
  WriteDatapath(pool->node_page(), "");
  std::ranges::fill(pool->node_page().subspan(kOwnerDamageOffset, kOwnerDamageSize), std::byte{0});
  HL_RETURN_IF_ERROR(bulk->Start(
      options.files.empty() ? options.pool + ".files" : options.files,
      [&](std::string_view aside) { WriteFileDamage(pool->node_page(), aside); },
      [&](std::string_view why) { WriteFileRefusal(pool->node_page(), why); }));
  bulk->Publish(node->state());
  LogMedia(node->state().node, media, log);
  IdleScrub scrub(pool->region(), log);
  ReplicaMetrics metrics(*pool, store, *node, service, scrub, *bulk, requests);
  std::unique_ptr<metrics::Server> metrics_server;  // ends before what it shows
  std::function<void()> sample = [] {};
  if (!options.metrics.address.empty()) {
    sample = [&metrics] { metrics.Sample(); };
    sample();
    HL_ASSIGN_OR_RETURN(metrics_server,
                        metrics::Server::Start(
                            options.metrics, [&metrics] { return metrics.Get(); }, *log));
  }
  SayReady(server->endpoint().ToString());
  HL_RETURN_IF_ERROR(ServeUntil(stop, *server, service, *node, scrub, sample, log));
  log->Write(LogLevel::kInfo, "asked to end; the pool keeps everything");
  return {};
}

}  // namespace hyperloop
