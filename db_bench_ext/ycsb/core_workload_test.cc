#include "ycsb/core_workload.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <set>

namespace hyperloop::ycsb {
namespace {

constexpr uint64_t kOperationsDrawn = 200'000;

TEST(CoreWorkloadTest, MixesTheOperationsThatYcsbDefines) {
  using Shares = std::array<double, kOperationTypes>;  // read update insert scan rmw
  const std::map<std::string, Shares> expected = {
      {"a", {0.5, 0.5, 0, 0, 0}},   {"b", {0.95, 0.05, 0, 0, 0}}, {"c", {1, 0, 0, 0, 0}},
      {"d", {0.95, 0, 0.05, 0, 0}}, {"e", {0, 0, 0.05, 0.95, 0}}, {"f", {0.5, 0, 0, 0, 0.5}}};
  for (const auto& [name, shares] : expected) {
    const auto workload = FindWorkload(name);
    ASSERT_TRUE(workload.has_value()) << name;
    InsertSequence inserts(1000);
    Chooser chooser(*workload, inserts, kOperationsDrawn, 1);
    Shares drawn{};
    for (uint64_t i = 0; i < kOperationsDrawn; ++i)
      drawn[static_cast<size_t>(chooser.NextType())] += 1.0 / kOperationsDrawn;
    for (size_t type = 0; type < kOperationTypes; ++type) {
      const double share = shares[type];
      EXPECT_NEAR(drawn[type], share, 4 * std::sqrt(share * (1 - share) / kOperationsDrawn) + 1e-9)
          << name << " " << TypeName(static_cast<OperationType>(type));
    }
  }
  EXPECT_TRUE(FindWorkload("F").has_value());
  for (const char* name : {"", "g", "ab", "`"})
    EXPECT_FALSE(FindWorkload(name).has_value()) << name;
}

TEST(CoreWorkloadTest, KeysAreYcsbs) {
  EXPECT_EQ(KeyOf(0),
            "user6284781860667377211");  // a hash that is negative as YCSB's signed number
  EXPECT_EQ(KeyOf(1), "user8517097267634966620");
  std::set<std::string> keys;
  for (uint64_t record = 0; record < 100'000; ++record) keys.insert(KeyOf(record));
  EXPECT_EQ(keys.size(), 100'000u);
}

TEST(InsertSequenceTest, CountsWhatIsThereWithoutAGap) {
  InsertSequence inserts(10);
  const uint64_t a = inserts.Next(), b = inserts.Next(), c = inserts.Next();
  EXPECT_EQ(a, 10u);
  inserts.Acknowledge(c);
  inserts.Acknowledge(b);
  EXPECT_EQ(inserts.complete(), 10u);
  inserts.Acknowledge(a);
  EXPECT_EQ(inserts.complete(), 13u);
}

// Records that another thread has taken but not yet inserted are never chosen. Inserted ones are
// chosen soon.
TEST(ChooserTest, ChoosesRecordsThatAreThere) {
  for (const char* name : {"d", "e"}) {
    InsertSequence inserts(1000);
    Chooser chooser(*FindWorkload(name), inserts, 20'000, 7);
    std::set<uint64_t> inserted_and_chosen;
    for (int i = 0; i < 20'000; ++i) {
      if (i % 20 == 0) inserts.Acknowledge(inserts.Next());
      const uint64_t in_flight = inserts.complete();
      const uint64_t record = chooser.NextRecord();
      ASSERT_LT(record, in_flight);
      if (record >= 1000) inserted_and_chosen.insert(record);
    }
    EXPECT_GT(inserted_and_chosen.size(), 300u) << name;
  }
}

TEST(ChooserTest, ScansOneToAHundredRecords) {
  InsertSequence inserts(1000);
  Chooser chooser(*FindWorkload("e"), inserts, kOperationsDrawn, 1);
  double sum = 0;
  std::set<uint64_t> lengths;
  for (uint64_t i = 0; i < kOperationsDrawn; ++i) {
    const uint64_t length = chooser.NextScanLength();
    sum += static_cast<double>(length);
    lengths.insert(length);
  }
  EXPECT_EQ(*lengths.begin(), 1u);
  EXPECT_EQ(*lengths.rbegin(), kMaxScan);
  EXPECT_EQ(lengths.size(), kMaxScan);
  EXPECT_NEAR(sum / kOperationsDrawn, 50.5, 4 * 28.9 / std::sqrt(kOperationsDrawn));
}

}  // namespace
}  // namespace hyperloop::ycsb
