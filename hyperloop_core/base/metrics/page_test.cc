#include "hyperloop/metrics/page.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <set>

namespace hyperloop::metrics {
namespace {

TEST(PageTest, SamplesOfAMetricStandTogetherBehindItsHelpAndType) {
  Page page;
  page.Add("hyperloop_rnic_sends_total", uint64_t{18446744073709551615u}, {{"host", "a"}});
  page.Add("hyperloop_rnicd_clients", 2);
  page.Add("hyperloop_rnic_sends_total", 7u, {{"host", "b"}});
  page.Add("hyperloop_replica_heartbeat_age_seconds", 0.25);
  EXPECT_EQ(page.Text(),
            "# HELP hyperloop_rnic_sends_total SENDs that succeeded\n"
            "# TYPE hyperloop_rnic_sends_total counter\n"
            "hyperloop_rnic_sends_total{host=\"a\"} 18446744073709551615\n"
            "hyperloop_rnic_sends_total{host=\"b\"} 7\n"
            "# HELP hyperloop_rnicd_clients Connections of clients that are served\n"
            "# TYPE hyperloop_rnicd_clients gauge\n"
            "hyperloop_rnicd_clients 2\n"
            "# HELP hyperloop_replica_heartbeat_age_seconds Time since this node saw the owner's "
            "heartbeat move, by its own clock\n"
            "# TYPE hyperloop_replica_heartbeat_age_seconds gauge\n"
            "hyperloop_replica_heartbeat_age_seconds 0.25\n");
}

TEST(PageTest, ALabelCannotForgeALine) {
  Page page;
  page.Add("hyperloop_rnicd_link_up", 1, {{"peer", "a\"} 5\nhyperloop_rnicd_clients 99\\\xff"}});
  EXPECT_NE(page.Text().find("hyperloop_rnicd_link_up{peer=\"a\\\"} 5?hyperloop_rnicd_clients "
                             "99\\\\?\"} 1\n"),
            std::string::npos)
      << page.Text();
}

TEST(PageTest, BucketsCountAllThatIsAtMostTheirLimit) {
  Histogram histogram;
  for (const uint64_t ns : {0u, 1000u, 1001u, 2000u, 2001u, 4000u}) histogram.Add(ns);
  histogram.Add(3'600'000'000'000u);
  Page page;
  page.Add("hyperloop_primary_acknowledgement_seconds", histogram.Read(), {{"group", "g"}});
  const std::string text = page.Text();
  const auto has = [&](const std::string& line) {
    EXPECT_NE(text.find("hyperloop_primary_acknowledgement_seconds" + line + "\n"),
              std::string::npos)
        << line << " is not in\n"
        << text;
  };
  has("_bucket{group=\"g\",le=\"1e-06\"} 2");
  has("_bucket{group=\"g\",le=\"2e-06\"} 4");
  has("_bucket{group=\"g\",le=\"4e-06\"} 6");
  has("_bucket{group=\"g\",le=\"8.388608\"} 6");
  has("_bucket{group=\"g\",le=\"+Inf\"} 7");
  has("_count{group=\"g\"} 7");
  has("_sum{group=\"g\"} 3600.000010002");
}

TEST(TableTest, NamesAreThoseThatPrometheusTakesAndStandThereOnce) {
  std::set<std::string_view> names;
  for (const Info& info : kTable) {
    const std::string name(info.name);
    EXPECT_TRUE(names.insert(info.name).second) << name;
    EXPECT_TRUE(std::regex_match(name, std::regex("[a-z][a-z0-9_]*"))) << name;
    EXPECT_EQ(info.name.ends_with("_total"), info.type == Type::kCounter) << name;
    EXPECT_EQ(info.help.find_first_of("\"\\\n"), std::string_view::npos) << name;
    EXPECT_NE(info.shown_by, 0) << name;
  }
}

TEST(TableTest, ThePageOfTheDocumentationIsMadeOfIt) {
  std::ifstream file(HYPERLOOP_SOURCE_DIR "/docs/metrics.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(page, Markdown()) << "cmake --build build --target metrics-page writes it anew";
}

}  // namespace
}  // namespace hyperloop::metrics
