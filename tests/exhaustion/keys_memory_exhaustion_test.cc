// Memory runs out while changed keys are read: they are read again the next time.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>

#include "hyperloop/identity/keys.h"
#include "support/failing_memory.h"
#include "support/status_matchers.h"

namespace hyperloop::identity {
namespace {

class KeysMemoryExhaustion : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(mkdtemp(root_.data()), nullptr);
    dir_ = root_ + "/keys";
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  // After `change` of the files the next Refresh is told, or runs out of memory and the one behind
  // it is told: either way without an error. `expect`: what holds then.
  void Refreshes(const std::function<void()>& change, const std::function<void(KeyRing&)>& expect) {
    test::ForEachFailingAllocation({.harmed = 11}, [&](test::Shortage& shortage) {
      std::filesystem::remove_all(dir_);
      EXPECT_OK(MakeIdentity(dir_, "alpha"));
      const auto ring = *KeyRing::Load(dir_);
      change();
      Status status;
      const bool ran_out = shortage.Here([&] { status = ring->Refresh(); });
      EXPECT_OK(status);
      EXPECT_OK(ring->Refresh());
      expect(*ring);
      return !ran_out;
    });
  }

  std::string root_ = "/dev/shm/hyperloop-keys-XXXXXX", dir_;
};

TEST_F(KeysMemoryExhaustion, WhoIsTrustedNowIsFoundTheNextTime) {
  constexpr PublicKey kKey{1};
  Refreshes(
      [&] {
        ASSERT_OK(Trust(dir_, {"beta", kKey, kRoleLink, ""}));
      },
      [&](KeyRing& ring) { EXPECT_TRUE(ring.Find(kKey).has_value()); });
}

TEST_F(KeysMemoryExhaustion, AChangedIdentityIsTakenTheNextTime) {
  PublicKey before{};
  Refreshes(
      [&] {
        before = (*KeyRing::Load(dir_))->public_key();
        std::filesystem::remove(dir_ + "/identity");
        ASSERT_OK(MakeIdentity(dir_, "alpha"));
      },
      [&](KeyRing& ring) { EXPECT_NE(ring.public_key(), before); });
}

}  // namespace
}  // namespace hyperloop::identity
