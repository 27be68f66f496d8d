#include "hyperloop/replication/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "options/option_text.h"
#include "support/status_matchers.h"

namespace hyperloop {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

StoreOptions Valid() {
  StoreOptions options;
  EXPECT_OK(ParseStoreUri(
      "hyperloop://10.0.0.1:7000,10.0.0.2:7000?device=/run/rnicd.sock&pool=/var/p", &options));
  return options;
}

// The message of a refusal; the options must not have changed.
std::string Refusal(std::string_view name, std::string_view value) {
  StoreOptions options = Valid();
  Status status = SetStoreOption(name, value, &options);
  EXPECT_THAT(status, StatusIs(Code::kInvalidArgument))
      << name << "=" << value << ": " << status.ToString();
  EXPECT_EQ(FormatStoreUri(options), FormatStoreUri(Valid()));
  return status.message();
}

std::string UriRefusal(std::string_view uri) {
  StoreOptions options = Valid();
  Status status = ParseStoreUri(uri, &options);
  EXPECT_THAT(status, StatusIs(Code::kInvalidArgument)) << uri;
  EXPECT_EQ(FormatStoreUri(options), FormatStoreUri(Valid())) << "changed by a refused URI";
  return status.message();
}

TEST(OptionTable, DefaultsAreThoseOfTheStruct) {
  const StoreOptions defaults;
  for (const OptionInfo& info : StoreOptionTable()) {
    Result<std::string> value = GetStoreOption(info.name, defaults);
    ASSERT_OK(value) << info.name;
    EXPECT_EQ(*value, info.default_value) << info.name;
    EXPECT_FALSE(info.text.empty() || info.type.empty() || info.range.empty()) << info.name;
    EXPECT_EQ(info.text.back(), '.') << info.name;
  }
}

// A value of each option that is not its default.
constexpr std::pair<const char*, const char*> kValues[] = {{"replicas", "a:1,[::1]:65535"},
                                                           {"provider", "softrnic"},
                                                           {"device", "/d"},
                                                           {"host", "h2"},
                                                           {"gid_index", "3"},
                                                           {"mtu", "1024"},
                                                           {"traffic_class", "104"},
                                                           {"pool", "/p"},
                                                           {"keys", "/k"},
                                                           {"datapath", "fanout"},
                                                           {"ack", "sync"},
                                                           {"wait", "event"},
                                                           {"poll_us", "20"},
                                                           {"window", "4096"},
                                                           {"journal_size", "64M"},
                                                           {"region_size", "15G"},
                                                           {"table_capacity", "64"},
                                                           {"media", "pmem"},
                                                           {"local_sync", "true"},
                                                           {"local_write", "acknowledged"},
                                                           {"metrics_file", "/m/x.prom"},
                                                           {"takeover", "true"},
                                                           {"restore", "true"},
                                                           {"rebind", "true"},
                                                           {"adopt", "true"},
                                                           {"add_replica", "a:1"},
                                                           {"remove_replica", "b:2"},
                                                           {"on_replica_failure", "continue"},
                                                           {"min_replicas", "2"},
                                                           {"heartbeat_timeout", "3s"},
                                                           {"ack_timeout", "250ms"},
                                                           {"space_timeout", "3s"},
                                                           {"connect_timeout", "3600s"},
                                                           {"bulk_timeout", "1ms"}};

TEST(OptionTable, EveryOptionSetsWhatItSays) {
  ASSERT_EQ(std::size(kValues), StoreOptionTable().size());
  StoreOptions options;
  for (auto [name, value] : kValues) {
    ASSERT_OK(SetStoreOption(name, value, &options));
    EXPECT_EQ(*GetStoreOption(name, options), value);
  }
  EXPECT_THAT(options.replicas, ElementsAre("a:1", "[::1]:65535"));
  EXPECT_EQ(options.ack, AckMode::kSync);
  EXPECT_EQ(options.window, 4096u);
  EXPECT_EQ(options.journal_size, 64ull << 20);
  EXPECT_EQ(options.region_size, 15ull << 30);
  EXPECT_EQ(options.ack_timeout, milliseconds(250));
  EXPECT_EQ(options.space_timeout, milliseconds(3000));
  EXPECT_TRUE(options.local_sync && options.takeover && options.restore && options.rebind &&
              options.adopt);
  EXPECT_EQ(options.local_write, LocalWrite::kAcknowledged);
  EXPECT_EQ(options.on_replica_failure, OnReplicaFailure::kContinue);
  options.ack = AckMode::kAppend;  // which local_write=acknowledged needs
  options.remove_replica.clear();  // which add_replica excludes
  EXPECT_THAT(ValidateStoreOptions(options),
              StatusIs(Code::kInvalidArgument, HasSubstr("adopt=true fills the group")));
  options.restore = false;
  EXPECT_OK(ValidateStoreOptions(options));
  options.min_replicas = 3;
  EXPECT_THAT(ValidateStoreOptions(options),
              StatusIs(Code::kInvalidArgument, HasSubstr("min_replicas=3 of 2")));
  options.min_replicas = 2;
  options.on_replica_failure = OnReplicaFailure::kBlock;
  EXPECT_THAT(ValidateStoreOptions(options),
              StatusIs(Code::kInvalidArgument, HasSubstr("needs on_replica_failure=continue")));
  options.on_replica_failure = OnReplicaFailure::kContinue;

  StoreOptions again;
  ASSERT_OK(ParseStoreUri(FormatStoreUri(options), &again));
  EXPECT_EQ(FormatStoreUri(again), FormatStoreUri(options));
}

TEST(OptionSet, UnknownNameNamesTheNearest) {
  EXPECT_THAT(Refusal("ack_timout", "1s"),
              AllOf(HasSubstr("\"ack_timout\""), HasSubstr("\"ack_timeout\"")));
  EXPECT_THAT(Refusal("Window", "1"), HasSubstr("\"window\""));
  EXPECT_THAT(Refusal("", "1"), HasSubstr("unknown option"));
  StoreOptions options;
  EXPECT_THAT(GetStoreOption("journalsize", options), StatusIs(Code::kInvalidArgument));
}

TEST(OptionSet, BadValuesAreRefusedWithWhatIsAccepted) {
  const std::pair<const char*, const char*> kBad[] = {{"window", "0"},
                                                      {"heartbeat_timeout", "2999ms"},
                                                      {"heartbeat_timeout", "3601s"},
                                                      {"heartbeat_timeout", "soon"},
                                                      {"metrics_file", "x.prom"},
                                                      {"metrics_file", "/m/.prom"},
                                                      {"metrics_file", "/etc/passwd"},
                                                      {"window", "8193"},
                                                      {"window", "-1"},
                                                      {"window", "1.5"},
                                                      {"window", ""},
                                                      {"window", " 4"},
                                                      {"window", "4294967297"},
                                                      {"window", "99999999999999999999"},
                                                      {"journal_size", "4"},
                                                      {"journal_size", "5G"},
                                                      {"journal_size", "32MB"},
                                                      {"journal_size", "M"},
                                                      {"region_size", "1M"},
                                                      {"region_size", "16G"},
                                                      {"region_size", "0x1000000"},
                                                      {"region_size", "17179869185G"},
                                                      {"ack_timeout", "0"},
                                                      {"ack_timeout", "2h"},
                                                      {"ack_timeout", "s"},
                                                      {"ack_timeout", "3601s"},
                                                      {"local_sync", "maybe"},
                                                      {"local_sync", "True"},
                                                      {"ack", "never"},
                                                      {"wait", "forever"},
                                                      {"media", "disk"},
                                                      {"datapath", "fanouts"},
                                                      {"provider", "hardware"},
                                                      {"gid_index", "256"},
                                                      {"gid_index", "-1"},
                                                      {"mtu", "1500"},
                                                      {"traffic_class", "256"},
                                                      {"host", ""},
                                                      {"device", ""},
                                                      {"table_capacity", "1"},
                                                      {"table_capacity", "1048577"},
                                                      {"pool", "a\nb"}};
  for (auto [name, value] : kBad) {
    EXPECT_THAT(Refusal(name, value),
                AllOf(HasSubstr(name), HasSubstr(std::string("\"") + value + "\""),
                      HasSubstr("accepted: ")));
  }
  EXPECT_THAT(Refusal("host", std::string(64, 'x')), HasSubstr("1 to 63"));
  EXPECT_THAT(Refusal("pool", std::string(5000, 'x')), HasSubstr("too long"));
}

TEST(OptionSet, Replicas) {
  EXPECT_THAT(Refusal("replicas", "a:1,b:2,c:3,d:4,e:5,f:6,g:7,h:8,i:9"),
              HasSubstr("9 replicas, more than 8"));
  EXPECT_THAT(Refusal("replicas", "a:1,a:1"), HasSubstr("a:1 twice"));
  EXPECT_THAT(Refusal("replicas", "a"), HasSubstr("no \":port\""));
  EXPECT_THAT(Refusal("replicas", ""), HasSubstr("no \":port\""));
  EXPECT_THAT(Refusal("replicas", "a:1,"), HasSubstr("no \":port\""));
  EXPECT_THAT(Refusal("replicas", ":1"), HasSubstr("no host"));
  EXPECT_THAT(Refusal("replicas", "::1:7000"), HasSubstr("brackets"));
  const std::string longest(74, 'h');
  EXPECT_EQ(option_text::CheckEndpoint(longest + ":7000"), "");
  EXPECT_THAT(Refusal("replicas", longest + "h:7000"), HasSubstr("has 80 bytes, more than the 79"));
  EXPECT_THAT(Refusal("replicas", "a:0"), HasSubstr("1 to 65535"));
  EXPECT_THAT(Refusal("replicas", "a:65536"), HasSubstr("1 to 65535"));
  EXPECT_THAT(Refusal("replicas", "a b:1"), HasSubstr("space"));
  StoreOptions options;
  EXPECT_OK(SetStoreOption("replicas", "a:1,b:2,c:3,d:4,e:5,f:6,g:7,h:8", &options));
  EXPECT_EQ(options.replicas.size(), 8u);
}

TEST(OptionUri, Parses) {
  StoreOptions options;
  ASSERT_OK(
      ParseStoreUri("hyperloop://h1:1,h2:2?pool=/a%20b%26c%3Dd%25&ack=sync&device=/x;y", &options));
  EXPECT_THAT(options.replicas, ElementsAre("h1:1", "h2:2"));
  EXPECT_EQ(options.pool, "/a b&c=d%");
  EXPECT_EQ(options.device, "/x;y");
  EXPECT_EQ(options.ack, AckMode::kSync);
  StoreOptions again;
  ASSERT_OK(ParseStoreUri(FormatStoreUri(options), &again));
  EXPECT_EQ(again.pool, options.pool);
  EXPECT_EQ(FormatStoreUri(options).find(';'), std::string::npos)
      << "a ';' would end the id in a RocksDB option string";

  for (const char* bare : {"hyperloop", "hyperloop:", "hyperloop://"}) {
    StoreOptions unchanged = Valid();
    ASSERT_OK(ParseStoreUri(bare, &unchanged)) << bare;
    EXPECT_EQ(FormatStoreUri(unchanged), FormatStoreUri(Valid()));
  }
  StoreOptions by_name;
  ASSERT_OK(ParseStoreUri("hyperloop://?replicas=h1:1", &by_name));
  EXPECT_THAT(by_name.replicas, ElementsAre("h1:1"));
}

TEST(OptionUri, Refusals) {
  EXPECT_THAT(UriRefusal("hyperloops://h:1"), HasSubstr("not a hyperloop URI"));
  EXPECT_THAT(UriRefusal("hyperloop:/h:1"), HasSubstr("not a hyperloop URI"));
  EXPECT_THAT(UriRefusal(""), HasSubstr("not a hyperloop URI"));
  EXPECT_THAT(UriRefusal("hyperloop://h:1?window=3&window=3"), HasSubstr("sets window twice"));
  EXPECT_THAT(UriRefusal("hyperloop://h:1?replicas=h:1"), HasSubstr("sets replicas twice"));
  EXPECT_THAT(UriRefusal("hyperloop://h:1?windw=3"), HasSubstr("\"window\""));
  EXPECT_THAT(UriRefusal("hyperloop://h:1?window"), HasSubstr("name=value"));
  EXPECT_THAT(UriRefusal("hyperloop://h:1?=3"), HasSubstr("name=value"));
  EXPECT_THAT(UriRefusal("hyperloop://h:1?"), HasSubstr("name=value"));
  EXPECT_THAT(UriRefusal("hyperloop://h:1?window=3&"), HasSubstr("name=value"));
  EXPECT_THAT(UriRefusal("hyperloop://h:1/?window=3"), HasSubstr("1 to 65535"));
  for (const char* bad : {"%", "%4", "%4g", "%00", "x%"}) {
    EXPECT_THAT(UriRefusal(std::string("hyperloop://h:1?pool=") + bad),
                HasSubstr("percent-encoding in the value of pool"));
  }
}

TEST(OptionValidate, AcrossOptions) {
  EXPECT_OK(ValidateStoreOptions(Valid()));
  EXPECT_THAT(ValidateStoreOptions(StoreOptions{}).message(), HasSubstr("no replicas"));
  StoreOptions options = Valid();
  options.device.clear();
  EXPECT_THAT(ValidateStoreOptions(options).message(), HasSubstr("option device is not set"));
  options.provider = "verbs";
  EXPECT_OK(ValidateStoreOptions(options));
  options.datapath = Datapath::kOffload;
  EXPECT_THAT(ValidateStoreOptions(options).message(), HasSubstr("datapath=offload"));
  options = Valid();
  options.pool.clear();
  EXPECT_THAT(ValidateStoreOptions(options).message(), HasSubstr("option pool is not set"));
  options = Valid();
  options.region_size = 32 << 20;
  EXPECT_THAT(ValidateStoreOptions(options).message(), HasSubstr("no room for data"));
  // Set in code, without the parser.
  options = Valid();
  options.window = 0;
  EXPECT_THAT(ValidateStoreOptions(options).message(), HasSubstr("window=\"0\""));
  options = Valid();
  options.replicas.push_back(options.replicas[0]);
  EXPECT_THAT(ValidateStoreOptions(options).message(), HasSubstr("twice"));
  options = Valid();
  options.host.clear();
  EXPECT_THAT(ValidateStoreOptions(options).message(), HasSubstr("host"));
  options = Valid();
  options.add_replica = options.replicas[0];
  EXPECT_OK(ValidateStoreOptions(options));
  options.remove_replica = "10.0.0.9:7000";
  EXPECT_THAT(ValidateStoreOptions(options).message(), HasSubstr("one replica at a time"));
  options.add_replica.clear();
  EXPECT_OK(ValidateStoreOptions(options));
  options.remove_replica = options.replicas[0];
  EXPECT_THAT(ValidateStoreOptions(options).message(), HasSubstr("is listed"));
  options = Valid();
  options.add_replica = "10.0.0.9:7000";
  EXPECT_THAT(ValidateStoreOptions(options).message(), HasSubstr("is not listed"));
  options = Valid();
  options.local_write = LocalWrite::kAcknowledged;
  EXPECT_OK(ValidateStoreOptions(options));
  options.ack = AckMode::kSync;
  EXPECT_THAT(ValidateStoreOptions(options).message(), HasSubstr("needs ack=append"));
}

TEST(OptionText, Bytes) {
  using option_text::FormatBytes;
  using option_text::ParseBytes;
  EXPECT_EQ(ParseBytes("1k"), 1024u);
  EXPECT_EQ(ParseBytes("3G"), 3ull << 30);
  EXPECT_EQ(ParseBytes("17179869183G"), 17179869183ull << 30);
  EXPECT_EQ(ParseBytes("17179869184G"), std::nullopt);
  EXPECT_EQ(ParseBytes("K"), std::nullopt);
  for (uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{1024}, uint64_t{1025},
                         uint64_t{3} << 20, ~uint64_t{0}}) {
    EXPECT_EQ(ParseBytes(FormatBytes(bytes)), bytes);
  }
}

TEST(OptionText, Milliseconds) {
  using option_text::ParseMilliseconds;
  EXPECT_EQ(ParseMilliseconds("7"), milliseconds(7));
  EXPECT_EQ(ParseMilliseconds("7ms"), milliseconds(7));
  EXPECT_EQ(ParseMilliseconds("7s"), milliseconds(7000));
  EXPECT_EQ(ParseMilliseconds("ms"), std::nullopt);
  EXPECT_EQ(ParseMilliseconds("18446744073709551615"), std::nullopt);
  EXPECT_EQ(ParseMilliseconds("18446744073709551615s"), std::nullopt);
}

TEST(OptionsPage, CommittedPageIsTheTable) {
  std::ifstream file(HYPERLOOP_SOURCE_DIR "/docs/options.md");
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_EQ(page.str(), StoreOptionsMarkdown())
      << "write it anew: cmake --build build --target options-page";
}

TEST(OptionOnReplicaFailure, ThreeReplicasGoOnWithoutOneByDefault) {
  StoreOptions options;
  options.replicas = {"a:1", "b:1"};
  EXPECT_FALSE(GoesOnWithoutSome(options)) << "one of two is no majority";
  options.replicas.emplace_back("c:1");
  EXPECT_TRUE(GoesOnWithoutSome(options));
  ASSERT_OK(SetStoreOption("on_replica_failure", "block", &options));
  EXPECT_FALSE(GoesOnWithoutSome(options));
}

}  // namespace
}  // namespace hyperloop
