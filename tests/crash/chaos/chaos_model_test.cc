// Tests the judges themselves: one finds lost, torn, partial and invented values, the other finds
// refusals that name no way out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>

#include "crash/chaos/model.h"
#include "crash/chaos/refusals.h"

namespace hyperloop::chaos {
namespace {

using testing::HasSubstr;

class ModelTest : public testing::Test {
 protected:
  // The writer's thread 0 continues with `count` operations of this outcome.
  void Do(uint64_t count, Outcome outcome) {
    for (; count > 0; --count) progress_->outcomes[0][next_++].store(outcome);
    model_.Follow(*progress_);
  }
  // The database after the first `count` operations.
  static Content After(uint64_t count) {
    Content content;
    for (uint64_t n = 1; n <= count; ++n) {
      const Operation operation = OperationOf(0, n);
      const bool all = operation.kind == Operation::Kind::kBatch ||
                       operation.kind == Operation::Kind::kBatchDelete;
      const bool deletes = operation.kind == Operation::Kind::kDelete ||
                           operation.kind == Operation::Kind::kBatchDelete;
      for (uint32_t family = 0; family < kFamilies.size(); ++family) {
        if (!all && family != operation.family) continue;
        content.erase({family, operation.key});
        if (!deletes) content[{family, operation.key}] = n;
      }
    }
    return content;
  }

  std::unique_ptr<Progress> progress_ = std::make_unique<Progress>();
  uint64_t next_ = 1;
  Model model_;
};

TEST_F(ModelTest, AcknowledgedMustBeThereAndNothingElse) {
  Do(400, Outcome::kAcknowledged);
  EXPECT_EQ(model_.Check(After(400)), "");
  EXPECT_NE(model_.Check({}), "");
  for (uint64_t n = 1; n < 400; ++n) {
    if (After(n) != After(400)) {
      EXPECT_NE(model_.Check(After(n)), "") << "writes after " << n << " are lost, unseen";
    }
  }
  Content more = After(400);
  more[{0, "k9-0"}] = 1;
  EXPECT_THAT(model_.Check(more), HasSubstr("never written"));
}

TEST_F(ModelTest, WithoutAnAnswerBothArePossibleUntilSeen) {
  Do(300, Outcome::kAcknowledged);
  Do(1, Outcome::kFailed);
  Do(1, Outcome::kAttempted);
  EXPECT_EQ(model_.Check(After(300)), "");
  EXPECT_EQ(model_.Check(After(301)), "");
  EXPECT_EQ(model_.Check(After(302)), "");
  EXPECT_NE(model_.Check(After(299)), "");
  // Once read, it stays what was read.
  ASSERT_NE(After(302), After(300));
  model_.Settle(After(302));
  EXPECT_EQ(model_.Check(After(302)), "");
  EXPECT_NE(model_.Check(After(300)), "");
}

TEST_F(ModelTest, WithAckSyncTheNextSyncedWriteAcknowledges) {
  model_.set_only_sync_acknowledges();
  while (!OperationOf(0, next_).sync) Do(1, Outcome::kAcknowledged);
  EXPECT_EQ(model_.Check({}), "");
  Do(1, Outcome::kAcknowledged);
  EXPECT_EQ(model_.Check(After(next_ - 1)), "");
  EXPECT_NE(model_.Check({}), "");
}

TEST_F(ModelTest, ABatchIsThereInAllFamiliesOrInNone) {
  while (OperationOf(0, next_).kind != Operation::Kind::kBatch) Do(1, Outcome::kAcknowledged);
  const std::string key = OperationOf(0, next_).key;
  Do(1, Outcome::kAttempted);
  const Content before = After(next_ - 2);
  EXPECT_EQ(model_.Check(before), "");
  EXPECT_EQ(model_.Check(After(next_ - 1)), "");
  Content part = before;
  part[{1, key}] = next_ - 1;
  EXPECT_THAT(model_.Check(part), HasSubstr("in part"));
}

TEST_F(ModelTest, ValuesTellTheirNumberOrThatTheyAreTorn) {
  for (const uint64_t number : {1, 5, 66, 1000}) {
    std::string value = ValueOf(0, number);
    EXPECT_EQ(NumberOf(value, 0), number);
    EXPECT_EQ(NumberOf(value, 1), 0u);
    value.back() = static_cast<char>(value.back() ^ 1);
    EXPECT_EQ(NumberOf(value, 0), 0u);
    EXPECT_EQ(NumberOf(ValueOf(0, number).substr(0, value.size() - 1), 0), 0u);
  }
}

TEST(RefusalsTest, ARefusalNamesWhatCanBeDone) {
  EXPECT_TRUE(
      NamesAWayOut("replica 127.0.0.2:4000 is out of reach: Connection refused; check the address, "
                   "or start it: hyperloop-replica --listen 127.0.0.2:4000 …"));
  EXPECT_TRUE(
      NamesAWayOut("replica 127.0.0.2:4000 did not answer SealRequest: no answer; open again when "
                   "all replicas and RNIC daemons run (hyperloopctl status says what it cannot "
                   "reach)"));
  EXPECT_TRUE(
      NamesAWayOut("no RNIC daemon listens at /tmp/rnicd.sock: start one with "
                   "`hyperloop-rnicd --socket /tmp/rnicd.sock`"));
}

TEST(RefusalsTest, ThePlaceOfAPartIsNoWayOut) {
  EXPECT_FALSE(NamesAWayOut("replica 127.0.0.2:4000 is out of reach: Connection refused"));
  EXPECT_FALSE(NamesAWayOut("the RNIC daemon at /tmp/rnicd.sock did not answer within 20 s"));
  EXPECT_FALSE(NamesAWayOut("No space left on device"));
}

TEST(RefusalsTest, AWayOutOfAnotherRefusalIsNone) {
  EXPECT_FALSE(NamesAWayOut("the group is held by a living primary; list all of them"));
}

}  // namespace
}  // namespace hyperloop::chaos
