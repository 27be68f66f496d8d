#include "files/local_scrub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace hyperloop {
namespace {

using testing::IsEmpty;

class LocalScrubTest : public testing::Test {
 protected:
  WholeFile Make(const std::string& name, const std::string& bytes) {
    FileChecksum checksum;
    checksum.Add(bytes);
    local_[name] = bytes;
    listed_.push_back({name, bytes.size(), checksum.value()});
    return listed_.back();
  }
  void Pass() {
    const uint64_t before = scrub_.passes();
    while (scrub_.passes() == before) scrub_.Tick();
  }
  Result<uint64_t> Read(const std::string& name, uint64_t offset, std::span<char> out) {
    if (name == broken_) return Corruption("the disk cannot read it");
    if (name == closed_) return Internal("too many open files");
    const auto found = local_.find(name);
    if (found == local_.end()) return NotFound("gone");
    if (offset >= found->second.size()) return uint64_t{0};
    return uint64_t{found->second.copy(out.data(), out.size(), offset)};
  }

  std::map<std::string, std::string> local_;
  std::string broken_, closed_;
  std::vector<WholeFile> listed_, mended_;
  LocalScrub scrub_{{[this] { return listed_; },
                     [this](const std::string& name, uint64_t offset, std::span<char> out) {
                       return Read(name, offset, out);
                     },
                     [this](const WholeFile& file) { mended_.push_back(file); }}};
};

TEST_F(LocalScrubTest, OnlyFilesThatAreDamagedOrGoneAreMended) {
  Make("a", "sound");
  Make("empty", "");
  Make("large", std::string(3 * LocalScrub::kBudget + 1, 'x'));
  const WholeFile rotten = Make("rotten", std::string(2u << 20, 'y')), cut = Make("cut", "bytes"),
                  unread = Make("unread", "bytes"), gone = Make("gone", "bytes");
  Make("unopened", "bytes");
  Pass();
  EXPECT_THAT(mended_, IsEmpty());
  local_["rotten"][1u << 20] = 'z';
  local_["cut"] = "byt";
  local_.erase("gone");
  broken_ = "unread";
  closed_ = "unopened";
  Pass();
  EXPECT_THAT(mended_, testing::UnorderedElementsAre(rotten, cut, unread, gone));
}

TEST_F(LocalScrubTest, ItRestsBetweenPassesAndReadsAFewBytesAtATime) {
  Make("large", std::string(2 * LocalScrub::kBudget, 'x'));
  for (int tick = 0; tick < LocalScrub::kFirstTicks + 1; ++tick) scrub_.Tick();
  EXPECT_EQ(scrub_.passes(), 0u);
  scrub_.Tick();
  EXPECT_EQ(scrub_.passes(), 1u);
  for (int tick = 0; tick < LocalScrub::kRestTicks; ++tick) scrub_.Tick();
  EXPECT_EQ(scrub_.passes(), 1u);
}

}  // namespace
}  // namespace hyperloop
