// Who can vouch for what, and to whom.
#include "hyperloop/identity/voucher.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "support/status_matchers.h"

namespace hyperloop::identity {
namespace {

class VoucherTest : public testing::Test {
 protected:
  VoucherTest() {
    std::string pattern = "/dev/shm/hyperloop-voucher-XXXXXX";
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    for (const char* name : {"ann", "tool", "rep"}) EXPECT_OK(MakeIdentity(Dir(name), name));
    // The tool is an operator's, which may be a primary; the replica may not.
    for (const char* who : {"ann", "tool", "rep"}) {
      Know(who, "ann", kRolePrimary);
      Know(who, "tool", kRolePrimary);
      Know(who, "rep", kRoleReplica);
    }
  }
  ~VoucherTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  std::string Dir(const std::string& name) const { return folder_ + "/" + name; }
  std::shared_ptr<KeyRing> Ring(const std::string& name) const {
    auto ring = KeyRing::Load(Dir(name));
    EXPECT_OK(ring);
    return *ring;
  }
  void Know(const std::string& who, const std::string& whom, Roles roles) {
    EXPECT_OK(Trust(Dir(who), {whom, Ring(whom)->public_key(), roles, ""}));
  }
  std::string folder_;
};

TEST_F(VoucherTest, APrimaryBelievesItselfAndOtherPrimaries) {
  for (const char* who : {"ann", "tool"}) {
    const std::vector<Voucher> vouchers = Vouch(*Ring(who), "add r3", kRolePrimary);
    EXPECT_EQ(vouchers.size(), 2u);
    EXPECT_TRUE(IsVouched(*Ring("ann"), "add r3", vouchers, kRolePrimary)) << who;
    EXPECT_FALSE(IsVouched(*Ring("ann"), "add r4", vouchers, kRolePrimary)) << who;
  }
}

TEST_F(VoucherTest, WhoHasNotTheRoleIsNotBelieved) {
  EXPECT_FALSE(
      IsVouched(*Ring("ann"), "add r3", Vouch(*Ring("rep"), "add r3", kRolePrimary), kRolePrimary));
  EXPECT_FALSE(IsVouched(*Ring("ann"), "add r3", {}, kRolePrimary));
  EXPECT_FALSE(IsVouched(*Ring("ann"), "add r3", std::vector<Voucher>(3), kRolePrimary));
}

// One that it was given for itself proves nothing to another.
TEST_F(VoucherTest, AVoucherIsForOneHost) {
  Know("tool", "rep", kRolePrimary);
  std::vector<Voucher> vouchers = Vouch(*Ring("tool"), "add r3", kRolePrimary);
  ASSERT_EQ(vouchers.size(), 3u);
  int believed = 0;
  for (const Voucher& each : vouchers)
    believed += IsVouched(*Ring("ann"), "add r3", std::span(&each, 1), kRolePrimary) ? 1 : 0;
  EXPECT_EQ(believed, 1);
}

}  // namespace
}  // namespace hyperloop::identity
