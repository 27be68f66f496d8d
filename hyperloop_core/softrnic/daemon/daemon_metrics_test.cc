#include "softrnic/daemon/daemon_metrics.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "softrnic/engine/testing/engine_test_util.h"

namespace hyperloop::softrnic {
namespace {

class DaemonMetricsTest : public testing::Test {
 protected:
  void SetUp() override {
    auto loop = EngineLoop::Create(&engine_, {.spin_us = 0});
    ASSERT_TRUE(loop.ok()) << loop.status().ToString();
    loop_ = std::move(*loop);
    thread_ = std::thread([this] { loop_->Run(); });
  }
  void TearDown() override {
    loop_->Stop();
    thread_.join();
  }

  Engine engine_{EngineOptions{}};
  Client first_{engine_, "a"}, second_{engine_, "b"};
  std::unique_ptr<EngineLoop> loop_;
  std::thread thread_;
};

TEST_F(DaemonMetricsTest, ShowsEveryHost) {
  DaemonMetrics metrics(engine_, *loop_, nullptr, "1.2.3");
  const std::string page = *metrics.Get();
  for (const char* line :
       {"hyperloop_build_info{program=\"hyperloop-rnicd\",version=\"1.2.3\"} 1\n",
        "hyperloop_rnicd_clients 2\n", "hyperloop_rnic_queue_pairs{host=\"a\"} 0\n",
        "hyperloop_rnic_wqes_executed_total{host=\"b\"} 0\n"}) {
    EXPECT_NE(page.find(line), std::string::npos) << line << "is not in\n" << page;
  }
  EXPECT_EQ(page.find("link_up"), std::string::npos);
}

TEST_F(DaemonMetricsTest, HoweverOftenItIsAskedItLooksOnceASecond) {
  DaemonMetrics metrics(engine_, *loop_, nullptr, "");
  const auto begun = std::chrono::steady_clock::now();
  std::set<std::shared_ptr<const std::string>> pages;
  for (int i = 0; i < 10'000; ++i) pages.insert(metrics.Get());
  const auto took = std::chrono::steady_clock::now() - begun;
  EXPECT_LE(static_cast<int64_t>(pages.size()), 1 + took / DaemonMetrics::kInterval);
}

}  // namespace
}  // namespace hyperloop::softrnic
