#include "files/bulk_service.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "control/owner.h"
#include "support/log_lines.h"
#include "support/status_matchers.h"

namespace hyperloop {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::string_view kContent = "content";

class BulkServiceTest : public testing::Test {
 protected:
  BulkServiceTest() {
    std::string pattern = testing::TempDir() + "/hyperloop-bulk-XXXXXX";
    root_ = mkdtemp(pattern.data());
    service_ = std::make_unique<BulkService>(root_, &log_);
    NodeState state;
    state.group.fill(1);
    owner_.fill(2);
    state.sealed_owner = OwnerDigest(owner_);
    state.sealed_epoch = state.installed.epoch = 1;
    service_->Publish(state);
    in_the_way_ = root_ + "/" + FormatUuid(state.group);
  }
  ~BulkServiceTest() override { std::filesystem::remove_all(root_); }

  Status Put(std::string_view content = kContent) {
    FileChecksum checksum;
    checksum.Add(kContent);
    control::PutFileRequestT request;
    request.epoch = 1;
    request.owner_id.assign(owner_.begin(), owner_.end());
    request.file = std::make_unique<control::StoredFileT>();
    request.file->name = "000007.sst";
    request.file->size = kContent.size();
    request.file->checksum = checksum.value();
    request.bytes.assign(content.begin(), content.end());
    const auto answer = service_->Handle(control::MakeBody(std::move(request)));
    const auto* error = control::As<control::ErrorT>(answer);
    return error == nullptr ? Status() : control::ErrorStatus(*error);
  }

  std::string root_;
  std::string in_the_way_;  // a file here keeps the directory of the group's files away
  Uuid owner_{};
  LogLines log_;
  std::unique_ptr<BulkService> service_;
};

// Whoever looks at the replica sees it there, and not only at its primary.
TEST_F(BulkServiceTest, SaysSinceWhenAndWhyItTakesNoFiles) {
  EXPECT_THAT(service_->refusal(), IsEmpty());
  std::ofstream(in_the_way_) << "a file";
  EXPECT_FALSE(Put().ok());
  const std::string refusal = service_->refusal();
  EXPECT_THAT(refusal, testing::ContainsRegex("since 20[0-9-]*T[0-9:]*Z: "));
  EXPECT_TRUE(log_.Has("no file of the database is taken since"));
  EXPECT_FALSE(Put().ok());
  EXPECT_EQ(service_->refusal(), refusal) << "it says when it began";
  std::filesystem::remove(in_the_way_);
  EXPECT_FALSE(Put("another").ok()) << "these bytes are not the file's";
  EXPECT_EQ(service_->refusal(), refusal);
  EXPECT_OK(Put());
  EXPECT_THAT(service_->refusal(), IsEmpty());
  EXPECT_TRUE(log_.Has("files of the database are taken again"));
}

}  // namespace
}  // namespace hyperloop
