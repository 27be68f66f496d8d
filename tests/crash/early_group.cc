#include "crash/early_group.h"

#include "hyperloop/core/group.h"

namespace hyperloop::test {
namespace {

const std::atomic<uint32_t>* early = nullptr;

class EarlyGroup final : public Group {
 public:
  explicit EarlyGroup(std::unique_ptr<Group> group) : group_(std::move(group)) {}

  const PrimaryInfo& info() const override { return group_->info(); }
  Status Connect(std::span<const MemberInfo> chain) override { return group_->Connect(chain); }
  Result<Ticket> Submit(const Operation& operation) override {
    return Note(group_->Submit(operation));
  }
  Result<Ticket> TrySubmit(const Operation& operation) override {
    return Note(group_->TrySubmit(operation));
  }
  // Does not call the group's own Wait, so that a Wait which has begun can become early too.
  Status Wait(Ticket ticket, OperationResult* result) override {
    while (result == nullptr && *early == 0) {
      HL_ASSIGN_OR_RETURN(const Ticket acknowledged, group_->Poll());
      if (acknowledged >= ticket) break;
    }
    return result == nullptr ? group_->status() : group_->Wait(ticket, result);
  }
  Status WaitAll() override { return newest_ == 0 ? Status() : Wait(newest_, nullptr); }
  Result<Ticket> Poll() override {
    Result<Ticket> truth = group_->Poll();
    return *early != 0 && truth.ok() ? Result<Ticket>(newest_) : truth;
  }
  Status status() const override { return group_->status(); }
  uint32_t group_size() const override { return group_->group_size(); }
  uint64_t region_size() const override { return group_->region_size(); }
  Status Lock(uint64_t offset, uint64_t expected, uint64_t desired) override {
    return group_->Lock(offset, expected, desired);
  }

 private:
  Result<Ticket> Note(Result<Ticket> ticket) {
    if (ticket.ok()) newest_ = *ticket;
    return ticket;
  }

  const std::unique_ptr<Group> group_;
  Ticket newest_ = 0;
};

}  // namespace

using Create = Result<std::unique_ptr<Group>>(rnic::Device&, rnic::ProtectionDomain&,
                                              rnic::MemoryRegion&, const GroupOptions&, uint32_t);
#define GROUP_CREATE                                                            \
  "_ZN9hyperloop5Group6CreateERNS_4rnic6DeviceERNS1_16ProtectionDomainERNS1_12" \
  "MemoryRegionERKNS_12GroupOptionsEj"
Create RealCreate asm("__real_" GROUP_CREATE);
Create WrappedCreate asm("__wrap_" GROUP_CREATE);
Result<std::unique_ptr<Group>> WrappedCreate(rnic::Device& device, rnic::ProtectionDomain& pd,
                                             rnic::MemoryRegion& region,
                                             const GroupOptions& options, uint32_t group_size) {
  HL_ASSIGN_OR_RETURN(std::unique_ptr<Group> group,
                      RealCreate(device, pd, region, options, group_size));
  if (early == nullptr) return group;
  return std::unique_ptr<Group>(new EarlyGroup(std::move(group)));
}

void AcknowledgeEarlyWhile(const std::atomic<uint32_t>* flag) { early = flag; }

}  // namespace hyperloop::test
