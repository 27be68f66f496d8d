// Completion queues and queue pairs over libibverbs.
//
// A Post costs one pass over the requests to check and translate them, and ibv_post_send. A Poll
// costs ibv_poll_cq, a shared lock, and one look-up for each completion. What the device's own
// driver does (a system call on Soft-RoCE, none on a real card) comes on top.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "hyperloop/core/rnic.h"
#include "verbs/context.h"

namespace hyperloop::verbs {

class CmConnection;

// The most SGEs of a send request. A queue reserves room for so many for each request.
inline constexpr uint32_t kMaxSendSge = 16;

class VerbsCompletionQueue final : public rnic::CompletionQueue {
 public:
  static Result<std::unique_ptr<VerbsCompletionQueue>> Create(std::shared_ptr<VerbsContext> context,
                                                              const rnic::CqAttr& attr);
  ~VerbsCompletionQueue() override;

  uint32_t cqn() const override { return cq_->handle; }
  Result<size_t> Poll(std::span<rnic::Completion> out) override;
  Status RequestNotify(bool solicited_only) override;
  int event_fd() const override;
  Result<uint32_t> TakeEvents() override;

  ibv_cq* cq() const { return cq_; }

 private:
  VerbsCompletionQueue(std::shared_ptr<VerbsContext> context) : context_(std::move(context)) {}

  const std::shared_ptr<VerbsContext> context_;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
};

class VerbsQueuePair final : public rnic::QueuePair {
 public:
  static Result<std::unique_ptr<VerbsQueuePair>> Create(std::shared_ptr<VerbsContext> context,
                                                        ibv_pd* pd, const rnic::QpAttr& attr);
  ~VerbsQueuePair() override;

  uint32_t qpn() const override { return qp_->qp_num; }
  rnic::QpAddress address() const override { return {context_->port().gid, qp_->qp_num}; }
  rnic::QpState state() const override { return state_.load(std::memory_order_relaxed); }
  Status Connect(const rnic::QpAddress& peer) override;
  Status Reset() override;
  Status Post(std::span<const rnic::SendRequest> requests) override;
  Status PostReceive(std::span<const rnic::ReceiveRequest> requests) override;
  void Retire(uint16_t wqe_counter) override;
  Result<rnic::RawQueues> raw_queues() override;
  Status RingDoorbell(uint16_t producer_index) override;

  // Connects through librdmacm. The peer of `connection` has accepted; the connection is kept until
  // Reset. A failure after RTR leaves kReadyToReceive, as with the other Connect, and then only
  // Reset leads on.
  Status Connect(std::unique_ptr<CmConnection> connection);
  // The error of connecting in any state but kReset.
  Status NotInReset() const;
  const VerbsContext& context() const { return *context_; }
  uint8_t max_read_atomic() const { return max_read_atomic_; }
  uint8_t RetryCount() const;
  uint8_t rnr_retry() const { return attr_.rnr_retry; }

  // Completes `completion` with the request's id and takes the ring's space back. False: it belongs
  // to work from before a Reset.
  bool Resolve(const WorkId& id, rnic::Completion* completion);

 private:
  VerbsQueuePair(std::shared_ptr<VerbsContext> context, const rnic::QpAttr& attr);
  Status Allocate(ibv_pd* pd);
  Status Modify(ibv_qp_attr attr, int mask, const char* what);
  Status ToInit();
  Status ToReadyToReceive(const rnic::QpAddress& peer);
  Status ToReadyToSend();
  Status CheckRequest(const rnic::SendRequest& request) const;
  void Translate(const rnic::SendRequest& request, uint16_t index, ibv_send_wr* wr) const;
  uint64_t IdOf(bool receive, uint16_t index) const {
    return WorkId{slot_, generation_.load(std::memory_order_relaxed), receive, index}.Pack();
  }

  const std::shared_ptr<VerbsContext> context_;
  const rnic::QpAttr attr_;
  VerbsCompletionQueue* const send_cq_;
  VerbsCompletionQueue* const recv_cq_;
  uint8_t max_read_atomic_ = 1;
  ibv_qp* qp_ = nullptr;
  uint32_t slot_ = 0;
  bool listed_ = false;
  std::unique_ptr<CmConnection> connection_;
  std::atomic<uint32_t> generation_{0};
  std::atomic<rnic::QpState> state_{rnic::QpState::kReset};

  // This class has rings of its own, with one entry for each request, for the requests' ids and to
  // count room; the device's rings are at least as long. Post and PostReceive write producers and
  // ids. Poll and Retire write consumers, and Poll reads an id after that work has completed.
  std::atomic<uint16_t> sq_producer_{0};
  std::atomic<uint16_t> sq_consumer_{0};
  std::atomic<uint16_t> rq_producer_{0};
  std::atomic<uint16_t> rq_consumer_{0};
  std::vector<uint64_t> sq_ids_;
  std::vector<uint64_t> rq_ids_;
  std::vector<ibv_send_wr> send_requests_;  // of the Post that is running
  std::vector<ibv_recv_wr> receives_;
};

}  // namespace hyperloop::verbs
