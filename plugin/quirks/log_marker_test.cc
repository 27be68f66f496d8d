#include "log_marker.h"

#include <string>

#include "gtest/gtest.h"

namespace hyperloop::plugin {
namespace {

std::string Text(const std::string& text) { return static_cast<char>(text.size()) + text; }
// `entries`: as many as RocksDB counts in a batch.
std::string Record(const std::string& operations, int entries = 0, char type = 1) {
  const std::string count{static_cast<char>(entries), '\0', '\0', '\0'};
  const std::string batch = "sequence" + count + operations;
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

bool Leads(const std::string& data) { return LeadsToSpace(data, false); }

TEST(LogMarker, TheEndOfATransactionLeadsToSpace) {
  EXPECT_TRUE(Leads(Record(kRollback)));
  EXPECT_TRUE(Leads(Record(kCommit)));
  EXPECT_TRUE(Leads(Record(kRollback, 0, 5)));
  EXPECT_TRUE(Leads(Record("\xd" + kCommit + kRollback)));
  EXPECT_TRUE(Leads(Record("\x15" + Text("stamp") + Text("name"))));
  // The operations that restore the values from before the transaction are a part of the rollback.
  EXPECT_TRUE(Leads(Record(kPut + kRollback, 1)));
  EXPECT_TRUE(Leads(Record("\x4\x9" + Text("key") + "\x3" + Text("a word") + kCommit, 1)));
  // Behind the zeros at the end of a block.
  EXPECT_TRUE(Leads(std::string(6, '\0') + Record(kRollback)));
}

TEST(LogMarker, NothingElseDoes) {
  EXPECT_FALSE(Leads(Record(kPut, 1)));
  EXPECT_FALSE(Leads(Record("")));
  EXPECT_FALSE(Leads(Record("\x9" + kPut + "\xa" + Text("name"), 1)));
  EXPECT_FALSE(Leads(Record("\x9" + kPut + "\xa" + Text("name") + kCommit, 1)));
  EXPECT_FALSE(Leads(Record(kCommit + "\x9" + kPut + "\xa" + Text("name"), 1)));
  // A marker's bytes inside a value are a value.
  EXPECT_FALSE(Leads(Record("\x1" + Text("key") + Text(kRollback), 1)));
  EXPECT_FALSE(Leads(std::string(7, '\0') + Record(kRollback)));
}

TEST(LogMarker, CutOrDamagedBytesDoNot) {
  const std::string whole = Record(kPut + kRollback, 1);
  for (size_t cut = 0; cut < whole.size(); ++cut) EXPECT_FALSE(Leads(whole.substr(0, cut))) << cut;
  EXPECT_FALSE(Leads(whole + "x"));
  EXPECT_FALSE(Leads(Record(kRollback, 0, 2)));  // the first part of several
  EXPECT_FALSE(Leads(Record("\xc\xff\xff\xff\xff\xff")));
}

TEST(LogMarker, AnEmptyBatchDoesAtTheBeginningOfALog) {
  EXPECT_TRUE(LeadsToSpace(Record(""), true));
  EXPECT_TRUE(LeadsToSpace(Record("", 0, 5), true));
  EXPECT_FALSE(LeadsToSpace(Record(kPut, 1), true));
  EXPECT_FALSE(LeadsToSpace(Record("\xd"), true));
  EXPECT_FALSE(LeadsToSpace(Record("") + "x", true));
  EXPECT_FALSE(LeadsToSpace(Record("").substr(0, 18), true));
}

TEST(LogMarker, SoDoRecordsWithoutABatch) {
  for (const char type : {'\x9', '\xa', '\x82'}) {
    const std::string record = std::string("crc4\4\0", 6) + type + "body";
    EXPECT_TRUE(LeadsToSpace(record, true));
    EXPECT_FALSE(LeadsToSpace(record, false));
    EXPECT_FALSE(LeadsToSpace(record + "x", true));
    EXPECT_FALSE(LeadsToSpace(record.substr(0, 10), true));
  }
  for (const char type : {'\xb', '\x83'}) {
    const std::string record = std::string("crc4\4\0", 6) + type + "log#body";
    EXPECT_TRUE(LeadsToSpace(record, true));
    EXPECT_FALSE(LeadsToSpace(record.substr(0, 11), true));
  }
  EXPECT_FALSE(LeadsToSpace(Record(kPut, 1, 5), true));
  EXPECT_FALSE(LeadsToSpace("crc4", true));
}

}  // namespace
}  // namespace hyperloop::plugin
