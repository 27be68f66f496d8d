// Completion queues and queue pairs of the software RNIC's driver: rings in this process's memory,
// in mlx5's formats.
//
// No thread may poll a completion queue of a queue pair that another thread destroys or resets.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "hyperloop/core/mutex.h"
#include "hyperloop/core/rnic.h"
#include "rnic/wqe.h"
#include "softrnic/driver/device_context.h"

namespace hyperloop::softrnic {

inline constexpr uint32_t kMaxSendSge = 30;
inline constexpr uint32_t kMaxReceiveSge = 32;

class SoftCompletionQueue final : public rnic::CompletionQueue {
 public:
  static Result<std::unique_ptr<SoftCompletionQueue>> Create(std::shared_ptr<DeviceContext> context,
                                                             const rnic::CqAttr& attr);
  ~SoftCompletionQueue() override;

  uint32_t cqn() const override { return cqn_; }
  // Steps per CQE: op_own (acquire), decode, find the queue pair (one or two loads), its id. Once
  // per call: the CQ's doorbell record, or, if nothing came, DeviceContext::Alive.
  Result<size_t> Poll(std::span<rnic::Completion> out) override;
  Status RequestNotify(bool solicited_only) override { return Arm(solicited_only, 1); }
  Status RequestNotifyAfter(uint32_t completions) override { return Arm(false, completions); }
  int event_fd() const override { return channel_.get(); }
  Result<uint32_t> TakeEvents() override;

  // The number of the CQE behind those written so far, counted from the CQ's creation.
  uint64_t Written() const;

 private:
  SoftCompletionQueue(std::shared_ptr<DeviceContext> context, std::unique_ptr<SharedMemory> memory,
                      uint32_t depth);
  const mlx5_cqe64* CqeAt(uint64_t position) const;
  Status Arm(bool solicited_only, uint32_t completions);

  const std::shared_ptr<DeviceContext> context_;
  const std::unique_ptr<SharedMemory> memory_;  // ring, then doorbell record
  const uint32_t depth_;
  uint32_t* const doorbell_record_;
  std::unique_ptr<ClientUmem> umem_;
  UniqueFd channel_;  // with events: one byte an event; EOF: the engine is gone
  uint32_t arm_index_ = 0;
  uint32_t cqn_ = 0;
  bool created_ = false;
  std::atomic<uint64_t> consumer_{0};  // written by Poll only
};

class SoftQueuePair final : public rnic::QueuePair {
 public:
  // `pdn` stays allocated while the queue pair lives.
  static Result<std::unique_ptr<SoftQueuePair>> Create(std::shared_ptr<DeviceContext> context,
                                                       uint32_t pdn, const rnic::QpAttr& attr,
                                                       const rnic::Gid& gid);
  ~SoftQueuePair() override;

  uint32_t qpn() const override { return qpn_; }
  rnic::QpAddress address() const override { return {gid_, qpn_}; }
  rnic::QpState state() const override { return state_.load(std::memory_order_relaxed); }
  Status Connect(const rnic::QpAddress& peer) override;
  Status Reset() override;
  Status Post(std::span<const rnic::SendRequest> requests) override;
  Status PostReceive(std::span<const rnic::ReceiveRequest> requests) override;
  void Retire(uint16_t wqe_counter) override;
  Result<rnic::RawQueues> raw_queues() override;
  Status RingDoorbell(uint16_t producer_index) override;

  // Completes `completion`, CQE number `position` of its CQ, with the request's id, and takes the
  // ring space back. False: it belongs to work from before a Reset and must be dropped.
  bool Resolve(uint64_t position, rnic::Completion* completion);

 private:
  SoftQueuePair(std::shared_ptr<DeviceContext> context, const rnic::QpAttr& attr,
                const rnic::Gid& gid);
  Status Allocate(uint32_t pdn);
  Status Modify(rnic::QpState state, const rnic::QpAddress& peer);
  Status CheckInline(const rnic::SendRequest& request, uint32_t* segments) const;
  Status CheckRequest(const rnic::SendRequest& request, uint32_t* blocks) const;
  size_t Encode(const rnic::SendRequest& request, uint16_t index, void* wqe) const;
  uint32_t* counter(size_t offset) const {
    return reinterpret_cast<uint32_t*>(doorbell_record_ + offset);
  }

  const std::shared_ptr<DeviceContext> context_;
  const rnic::QpAttr attr_;
  const rnic::Gid gid_;
  const uint32_t rq_stride_;
  SoftCompletionQueue* const send_cq_;
  SoftCompletionQueue* const recv_cq_;
  std::unique_ptr<SharedMemory> memory_;  // RQ, SQ, doorbell record
  std::unique_ptr<ClientUmem> umem_;
  std::byte* rq_ = nullptr;
  std::byte* sq_ = nullptr;
  std::byte* doorbell_record_ = nullptr;
  uint32_t pdn_ = 0;
  uint32_t qpn_ = 0;
  uint32_t register_index_ = 0;
  bool created_ = false;
  std::atomic<rnic::QpState> state_{rnic::QpState::kReset};

  // Post and PostReceive write the producer indexes and the ids; Poll or Retire write the consumer
  // indexes. Poll reads the id of a request behind the request's CQE.
  std::atomic<uint16_t> sq_producer_{0};
  std::atomic<uint16_t> sq_consumer_{0};
  std::atomic<uint16_t> rq_producer_{0};
  std::atomic<uint16_t> rq_consumer_{0};
  std::vector<uint64_t> sq_ids_;
  std::vector<uint8_t> sq_blocks_;  // WQEBBs of the WQE that starts here
  std::vector<uint64_t> rq_ids_;
  // CQEs before these numbers are from before the last Reset.
  std::atomic<uint64_t> send_valid_from_{0};
  std::atomic<uint64_t> recv_valid_from_{0};

  Mutex raw_mutex_;
  CreateMkeyReply raw_key_ HL_GUARDED_BY(raw_mutex_){};
  bool has_raw_key_ HL_GUARDED_BY(raw_mutex_) = false;
};

}  // namespace hyperloop::softrnic
