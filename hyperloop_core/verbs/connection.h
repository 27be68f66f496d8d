// Services over librdmacm. The asking end names a service. The end that published the service
// answers with private data and a queue pair that only serves READs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "hyperloop/core/mutex.h"
#include "verbs/context.h"

namespace hyperloop::verbs {

// In bytes. A connection reply of librdmacm carries 196 B, the first of which is our length; a
// request carries 56 B, the first 4 of which are our magic.
inline constexpr size_t kMaxPrivateData = 195;
inline constexpr size_t kMaxServiceName = 52;

// An event channel and one id on it. Not thread safe.
class CmConnection {
 public:
  // Asks `host` ("ADDRESS:PORT") for `service`. `parameters` name the queue pair to connect. Waits
  // at most five seconds. kNotFound: nobody publishes it there. kUnavailable: no route or no
  // answer.
  static Result<std::unique_ptr<CmConnection>> Ask(std::shared_ptr<VerbsContext> context,
                                                   std::string_view host, std::string_view service,
                                                   const rdma_conn_param& parameters);
  // Disconnects; the other end destroys its queue pair.
  ~CmConnection();

  // Moves the queue pair that asked to `state`, with the attributes that were agreed with the peer.
  Status Advance(ibv_qp* qp, ibv_qp_state state);
  // Tells the peer that the queue pair is ready.
  Status Establish();
  const std::vector<std::byte>& private_data() const { return private_data_; }

 private:
  explicit CmConnection(std::shared_ptr<VerbsContext> context) : context_(std::move(context)) {}
  struct Event {
    rdma_cm_event_type type;
    int status;
  };
  Result<Event> Next(const std::string& what);
  Status Await(rdma_cm_event_type expected, const std::string& what);

  const std::shared_ptr<VerbsContext> context_;
  std::chrono::steady_clock::time_point deadline_;
  rdma_event_channel* channel_ = nullptr;
  rdma_cm_id* id_ = nullptr;
  std::vector<std::byte> private_data_;
};

// Answers requests on a thread of its own, from the first publication on.
class ServiceAgent {
 public:
  // Listens at the device's address and its option service_port.
  static Result<std::unique_ptr<ServiceAgent>> Start(VerbsContext& context);
  ~ServiceAgent();

  // Replaces an earlier publication of the same name.
  void Publish(std::string_view service, ibv_pd* pd, std::span<const std::byte> private_data);
  // Forgets what was published with `pd` and destroys its queue pairs.
  void Withdraw(ibv_pd* pd);

 private:
  struct Service {
    ibv_pd* pd = nullptr;
    std::vector<std::byte> private_data;
  };
  // An end that asked for a service: `qp` serves its READs.
  struct Reader {
    ibv_pd* pd = nullptr;
    ibv_qp* qp = nullptr;
  };
  explicit ServiceAgent(VerbsContext& context) : context_(context) {}
  Status Listen();
  void Run();
  void Handle(const rdma_cm_event& event);
  Status Accept(rdma_cm_id* id, const rdma_conn_param& asked, std::string_view service)
      HL_REQUIRES(mutex_);
  void Drop(rdma_cm_id* id) HL_REQUIRES(mutex_);

  VerbsContext& context_;
  rdma_event_channel* channel_ = nullptr;
  rdma_cm_id* listener_ = nullptr;
  ibv_cq* cq_ = nullptr;  // of all answering queue pairs; nothing ever completes there
  int stop_ = -1;         // eventfd
  std::thread thread_;
  Mutex mutex_;
  std::map<std::string, Service, std::less<>> services_ HL_GUARDED_BY(mutex_);
  std::map<rdma_cm_id*, Reader> readers_ HL_GUARDED_BY(mutex_);
};

}  // namespace hyperloop::verbs
