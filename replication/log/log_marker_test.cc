#include "log/log_marker.h"

#include <string>

#include "gtest/gtest.h"

namespace hyperloop {
namespace {

std::string Text(const std::string& text) { return static_cast<char>(text.size()) + text; }
std::string Record(const std::string& operations, char type = 1) {
  const std::string batch = std::string(12, '\x7') + operations;
  std::string record = "crc4";
  record += static_cast<char>(batch.size());
  record += '\0';
  record += type;
  if (type == 5) record += "log#";
  return record + batch;
}
const std::string kRollback = "\xc" + Text("name");
const std::string kCommit = "\xb" + Text("name");
const std::string kPut = "\x1" + Text("key") + Text("value");

TEST(LogMarker, CommitsAndRollbacksEndATransaction) {
  EXPECT_TRUE(EndsPreparedTransaction(Record(kRollback)));
  EXPECT_TRUE(EndsPreparedTransaction(Record(kCommit)));
  EXPECT_TRUE(EndsPreparedTransaction(Record(kRollback, 5)));
  EXPECT_TRUE(EndsPreparedTransaction(Record("\xd" + kCommit + kRollback)));
  EXPECT_TRUE(EndsPreparedTransaction(Record("\x15" + Text("stamp") + Text("name"))));
  // The operations that restore the values from before the transaction are a part of the rollback.
  EXPECT_TRUE(EndsPreparedTransaction(Record(kPut + kRollback)));
  // Behind the zeros at the end of a block.
  EXPECT_TRUE(EndsPreparedTransaction(std::string(6, '\0') + Record(kRollback)));
}

TEST(LogMarker, NothingElseDoes) {
  EXPECT_FALSE(EndsPreparedTransaction(Record(kPut)));
  EXPECT_FALSE(EndsPreparedTransaction(Record("")));
  EXPECT_FALSE(EndsPreparedTransaction(Record("\x9" + kPut + "\xa" + Text("name"))));
  EXPECT_FALSE(EndsPreparedTransaction(Record("\x9" + kPut + "\xa" + Text("name") + kCommit)));
  // A marker's bytes inside a value are a value.
  EXPECT_FALSE(EndsPreparedTransaction(Record("\x1" + Text("key") + Text(kRollback))));
  EXPECT_FALSE(EndsPreparedTransaction(std::string(7, '\0') + Record(kRollback)));
}

TEST(LogMarker, CutOrDamagedBytesDoNot) {
  const std::string whole = Record(kPut + kRollback);
  for (size_t cut = 0; cut < whole.size(); ++cut)
    EXPECT_FALSE(EndsPreparedTransaction(whole.substr(0, cut))) << cut;
  EXPECT_FALSE(EndsPreparedTransaction(whole + "x"));
  EXPECT_FALSE(EndsPreparedTransaction(Record(kRollback, 2)));  // the first part of several
  EXPECT_FALSE(EndsPreparedTransaction(Record("\xc\xff\xff\xff\xff\xff")));
}

TEST(LogMarker, AnEmptyBatchHasNoOperation) {
  EXPECT_TRUE(IsEmptyBatch(Record("")));
  EXPECT_TRUE(IsEmptyBatch(Record("", 5)));
  EXPECT_FALSE(IsEmptyBatch(Record(kPut)));
  EXPECT_FALSE(IsEmptyBatch(Record("\xd")));
  EXPECT_FALSE(IsEmptyBatch(Record("") + "x"));
  EXPECT_FALSE(IsEmptyBatch(Record("").substr(0, 18)));
}

TEST(LogMarker, RecordsWithoutABatchDescribeTheLog) {
  for (const char type : {'\x9', '\xa', '\x82'}) {
    const std::string record = std::string("crc4\4\0", 6) + type + "body";
    EXPECT_TRUE(DescribesLog(record));
    EXPECT_FALSE(DescribesLog(record + "x"));
    EXPECT_FALSE(DescribesLog(record.substr(0, 10)));
  }
  for (const char type : {'\xb', '\x83'}) {
    const std::string record = std::string("crc4\4\0", 6) + type + "log#body";
    EXPECT_TRUE(DescribesLog(record));
    EXPECT_FALSE(DescribesLog(record.substr(0, 11)));
  }
  EXPECT_FALSE(DescribesLog(Record("")));
  EXPECT_FALSE(DescribesLog(Record(kPut, 5)));
  EXPECT_FALSE(DescribesLog("crc4"));
}

}  // namespace
}  // namespace hyperloop
