// Tests what a peer can do to the rings of a queue pair after it guessed their remote key.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "softrnic/driver/device_context.h"
#include "softrnic/engine/testing/engine_test_util.h"
#include "support/must.h"
#include "support/rnic_end.h"
#include "support/status_matchers.h"

namespace hyperloop::softrnic {
namespace {

using rnic::Opcode;
using rnic::WcStatus;

// A port to an engine that is stepped by hand. It records the keys that the driver makes, because
// the driver tells nobody the remote key of a ring.
class NotingPort final : public CommandPort {
 public:
  NotingPort(Engine& engine, const std::string& host, std::vector<CreateMkeyReply>* keys)
      : engine_(engine), keys_(keys) {
    uar_.header.engine_alive = 1;
    const Result<ContextId> opened = engine_.OpenContext(host, &uar_, &attachment_);
    EXPECT_OK(opened);
    if (opened.ok()) context_ = *opened;
  }
  ~NotingPort() override { engine_.CloseContext(context_); }

  Status Execute(const Command& command, Reply* reply, std::string* text) override {
    std::string ignored;
    const Status status =
        engine_.Execute(context_, command, reply, text != nullptr ? text : &ignored);
    if (status.ok() && command.op == Op::kCreateMkey) keys_->push_back(reply->result.mkey);
    return status;
  }
  Result<uint32_t> RegisterUmem(const RegisterUmemArgs& args, int) override {
    const auto reply = engine_.RegisterUmem(
        context_, args, {reinterpret_cast<std::byte*>(args.client_addr), args.length, nullptr});
    if (!reply.ok()) return reply.status();
    return reply->id;
  }
  Result<UniqueFd> CreateEventCq(const Command&, Reply*) override {
    return NotSupported("no completion channels here");
  }
  bool needs_fd() const override { return false; }
  const OpenReply& attachment() const override { return attachment_; }
  UarPage* uar() const override { return &uar_; }
  void WakeEngine() override {}
  bool EngineGone() override { return false; }

 private:
  Engine& engine_;
  std::vector<CreateMkeyReply>* const keys_;
  alignas(4096) mutable UarPage uar_{};
  ContextId context_ = kNoContext;
  OpenReply attachment_{};
};

class RingRightsTest : public testing::Test {
 protected:
  static constexpr size_t kBytes = 4096;

  // The status of a request of the attacker, on queue pairs that were just connected.
  WcStatus Try(Opcode opcode, uint64_t addr, uint32_t rkey) {
    for (const auto& [one, other] : {std::pair(&attacker_, &victim_), {&victim_, &attacker_}}) {
      EXPECT_OK(one->qp->Reset());
      EXPECT_OK(one->qp->Connect(other->qp->address()));
    }
    const rnic::Sge local{attacker_.mr->addr(), 8, attacker_.mr->lkey()};
    const rnic::SendRequest request{.opcode = opcode,
                                    .signaled = true,
                                    .sges = {&local, 1},
                                    .remote_addr = addr,
                                    .rkey = rkey,
                                    .compare_or_add = 0,
                                    .swap = ~uint64_t{0}};
    EXPECT_OK(attacker_.qp->Post({&request, 1}));
    RunAll(engine_);
    rnic::Completion done{.status = WcStatus::kOther};
    const auto polled = attacker_.cq->Poll({&done, 1});
    EXPECT_OK(polled);
    EXPECT_EQ(polled.ok() ? *polled : 0, 1u);
    return done.status;
  }

  // A host with one queue pair, which lets its peer do everything that the keys allow.
  RnicEnd OpenHost(const std::string& host, std::vector<CreateMkeyReply>* keys) {
    return Must(RnicEnd::Make(Must(MakeDevice(std::make_unique<NotingPort>(engine_, host, keys))),
                              {}, kBytes));
  }

  Engine engine_{EngineOptions{}};
  std::vector<CreateMkeyReply> victim_keys_, attacker_keys_;
  RnicEnd victim_ = OpenHost("victim", &victim_keys_);
  RnicEnd attacker_ = OpenHost("attacker", &attacker_keys_);
};

constexpr std::array kOneSided = {Opcode::kWrite, Opcode::kRead, Opcode::kCompareSwap,
                                  Opcode::kFetchAdd};

TEST_F(RingRightsTest, APeerWithARingsRemoteKeyCannotTouchTheRing) {
  victim_keys_.clear();
  const auto raw = victim_.qp->raw_queues();
  ASSERT_OK(raw);
  ASSERT_EQ(victim_keys_.size(), 1u);
  ASSERT_EQ(victim_keys_[0].lkey, raw->lkey);
  const auto* const ring = reinterpret_cast<const std::byte*>(raw->addr);
  const std::vector<std::byte> before(ring, ring + raw->length);
  std::memset(attacker_.buffer->data(), 0x5a, kBytes);
  for (const std::byte* const at : {raw->sq, raw->rq, raw->doorbell_record}) {
    for (const Opcode opcode : kOneSided) {
      EXPECT_EQ(Try(opcode, reinterpret_cast<uint64_t>(at), victim_keys_[0].rkey),
                WcStatus::kRemoteAccess)
          << "offset " << at - ring << " opcode " << static_cast<int>(opcode);
    }
  }
  EXPECT_EQ(std::vector<std::byte>(ring, ring + raw->length), before);
  EXPECT_EQ(attacker_.buffer->data()[0], std::byte{0x5a}) << "and it has read nothing";
  // With a key that grants them, the same requests succeed.
  for (const Opcode opcode : kOneSided)
    EXPECT_EQ(Try(opcode, victim_.mr->addr(), victim_.mr->rkey()), WcStatus::kSuccess);
}

}  // namespace
}  // namespace hyperloop::softrnic
