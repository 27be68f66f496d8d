#include "primary/pairing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/status_matchers.h"

namespace hyperloop {
namespace {

using testing::HasSubstr;

constexpr char kGroup[] = "11111111-1111-4111-8111-111111111111";
constexpr char kOther[] = "22222222-2222-4222-8222-222222222222";

class PairingTest : public testing::Test {
 protected:
  Status Check(size_t files) {
    return CheckPairing(request_, words_, *ParseUuid(kGroup), binding_, files);
  }
  TakeRequest request_{"/db", true, {}};
  Binding binding_{*ParseUuid(kOther), "/old"};
  StoreOptions words_;
};

TEST_F(PairingTest, NewDirectoryAndEmptyGroupMayPair) { EXPECT_OK(Check(0)); }

TEST_F(PairingTest, EmptyDirectoryDoesNotSwallowAGroup) {
  EXPECT_THAT(Check(5),
              StatusIs(Code::kInvalidArgument, HasSubstr("restore=true and rebind=true")));
  // `restore` fills a directory, but does not take the group from another one.
  words_.restore = true;
  EXPECT_THAT(Check(5), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(Check(5).message(), testing::AllOf(HasSubstr("/old"), HasSubstr("rebind=true")));
  words_.rebind = true;
  EXPECT_OK(Check(5));
  words_.restore = false;
  EXPECT_THAT(Check(5), StatusIs(Code::kInvalidArgument));
}

// A mistaken rebinding is undone by `rebind` in the former directory.
TEST_F(PairingTest, TheFormerDirectoryComesBackWithAWord) {
  request_.directory_empty = false;
  request_.pairing = {kGroup, kGroup};
  EXPECT_THAT(Check(5), StatusIs(Code::kInvalidArgument, HasSubstr("rebind=true")));
  words_.rebind = true;
  EXPECT_OK(Check(5));
  request_.pairing = {kOther, kGroup};
  EXPECT_THAT(Check(5), StatusIs(Code::kInvalidArgument));
}

TEST_F(PairingTest, KnownPairIsAcceptedWhateverIsLeftOfTheDirectory) {
  request_.pairing = {kGroup, kOther};
  EXPECT_OK(Check(5));
  request_.directory_empty = false;
  EXPECT_OK(Check(5));
  EXPECT_OK(Check(0));
}

TEST_F(PairingTest, ForeignPairsAreRefused) {
  words_.restore = true;
  request_.pairing = {kOther, kOther};
  EXPECT_THAT(Check(0), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(Check(5), StatusIs(Code::kInvalidArgument));
  request_.pairing = {kGroup, kGroup};
  EXPECT_THAT(Check(5), StatusIs(Code::kInvalidArgument));
}

TEST_F(PairingTest, DatabaseFromOutsideIsRefused) {
  request_.directory_empty = false;
  EXPECT_THAT(Check(0), StatusIs(Code::kInvalidArgument));
  words_.restore = true;
  EXPECT_THAT(Check(3), StatusIs(Code::kInvalidArgument));
}

TEST_F(PairingTest, AnEmptyGroupAdoptsADatabaseFromOutside) {
  request_.directory_empty = false;
  EXPECT_THAT(Check(0).message(), HasSubstr("hyperloopctl adopt"));
  words_.adopt = true;
  EXPECT_OK(Check(0));
  EXPECT_THAT(Check(3), StatusIs(Code::kInvalidArgument, HasSubstr("hyperloopctl reset")));
  request_.pairing = {kOther, kOther};
  EXPECT_THAT(Check(0), StatusIs(Code::kInvalidArgument));
}

}  // namespace
}  // namespace hyperloop
