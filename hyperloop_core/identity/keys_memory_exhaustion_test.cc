// Memory runs out while changed keys are read: they are read again the next time.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "hyperloop/core/out_of_memory.h"
#include "hyperloop/identity/keys.h"
#include "support/failing_memory.h"
#include "support/status_matchers.h"

namespace hyperloop::identity {
namespace {

using test::FailingMemory;

class KeysMemoryExhaustion : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/dev/shm/hyperloop-keys-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    dir_ = root_ + "/keys";
    ASSERT_OK(MakeIdentity(dir_, "alpha"));
    ring_ = *KeyRing::Load(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  // Has each allocation of a Refresh fail in turn. `change`: of the files, before each.
  template <class Change, class Expect>
  void FailEachAllocation(Change&& change, Expect&& expect) {
    size_t ran_out = 0;
    for (size_t number = 0;; ++number) {
      SCOPED_TRACE("allocation " + std::to_string(number));
      ASSERT_LT(number, 1000u);
      change();
      bool out = false;
      Status status;
      {
        const FailingMemory failing(FailingMemory::Where::kHere, number, 1);
        out = RanOutOfMemory([&] { status = ring_->Refresh(); });
      }
      ran_out += out ? 1 : 0;
      EXPECT_OK(status);
      EXPECT_OK(ring_->Refresh());
      expect();
      if (HasFailure()) return;
      if (FailingMemory::failed() == 0) break;
    }
    EXPECT_GT(ran_out, 10u);
  }

  std::string root_, dir_;
  std::shared_ptr<KeyRing> ring_;
};

TEST_F(KeysMemoryExhaustion, WhoIsTrustedNowIsFoundTheNextTime) {
  PublicKey key{};
  FailEachAllocation(
      [&] {
        ++key[key[0] == 255 ? 1 : 0];
        ASSERT_OK(Trust(dir_, {"beta", key, kRoleLink, ""}));
      },
      [&] { EXPECT_TRUE(ring_->Find(key).has_value()); });
}

TEST_F(KeysMemoryExhaustion, AChangedIdentityIsTakenTheNextTime) {
  PublicKey before{};
  FailEachAllocation(
      [&] {
        before = ring_->public_key();
        std::filesystem::remove(dir_ + "/identity");
        ASSERT_OK(MakeIdentity(dir_, "alpha"));
      },
      [&] { EXPECT_NE(ring_->public_key(), before); });
}

}  // namespace
}  // namespace hyperloop::identity
