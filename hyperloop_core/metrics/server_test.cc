#include "hyperloop/metrics/server.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "hyperloop/core/unique_fd.h"
#include "support/http_get.h"
#include "support/log_lines.h"

namespace hyperloop::metrics {
namespace {

Server::MakePage Shows(const std::string& text) {
  return [page = std::make_shared<const std::string>(text)] { return page; };
}

class ServerTest : public testing::Test {
 protected:
  std::unique_ptr<Server> Start(Server::MakePage page) {
    auto server = Server::Start({"127.0.0.1:0"}, std::move(page), log_);
    EXPECT_TRUE(server.ok()) << server.status().ToString();
    return std::move(*server);
  }
  LogLines log_;
};

TEST_F(ServerTest, ShowsThePageAndNothingElse) {
  const auto server = Start(Shows("a 1\n"));
  const std::string answer = test::HttpGet(server->address(), "/metrics");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n")) << answer;
  EXPECT_NE(answer.find("Content-Type: text/plain; version=0.0.4"), std::string::npos) << answer;
  EXPECT_TRUE(answer.ends_with("\r\n\r\na 1\n")) << answer;
  for (const char* path : {"/", "/etc/passwd", "/metrics/..", "/../../etc/passwd", "/metricsx"}) {
    const std::string other = test::HttpGet(server->address(), path);
    EXPECT_TRUE(other.starts_with("HTTP/1.1 404 ")) << path << ": " << other;
  }
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS"}) {
    const std::string other = test::HttpAnswer(
        server->address(),
        std::string(method) + " /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    EXPECT_TRUE(other.starts_with("HTTP/1.1 405 ")) << method << ": " << other;
  }
}

TEST_F(ServerTest, OtherMachinesComeOnlyIfThatWasSaid) {
  for (const char* address : {"0.0.0.0:0", "[::]:0", "192.0.2.1:9464", "[2001:db8::1]:9464"}) {
    const auto refused = Server::Start({address}, Shows(""), log_);
    EXPECT_EQ(refused.status().code(), Code::kInvalidArgument) << address;
    EXPECT_NE(refused.status().message().find("--metrics-open"), std::string::npos);
  }
  const auto open = Server::Start({"0.0.0.0:0", /*open=*/true}, Shows("a 1\n"), log_);
  ASSERT_TRUE(open.ok()) << open.status().ToString();
  EXPECT_NE(test::HttpGet((*open)->address(), "/metrics").find("a 1\n"), std::string::npos);
}

TEST_F(ServerTest, WhatIsNoAddressIsRefused) {
  for (const char* address :
       {"", "9464", "localhost:9464", "127.0.0.1", "127.0.0.1:", "127.0.0.1:70000", "127.0.0.1:80s",
        "127.0.0.1:80,0.0.0.0:81", "::1:80", "[127.0.0.1]:80", "+9464"}) {
    EXPECT_EQ(Server::Start({address}, Shows(""), log_).status().code(), Code::kInvalidArgument)
        << address;
  }
  const auto first = Start(Shows(""));
  const auto second = Server::Start({first->address()}, Shows(""), log_);
  EXPECT_EQ(second.status().code(), Code::kUnavailable) << second.status().ToString();
}

TEST_F(ServerTest, LackOfMemoryEndsAnAnswerAndNotTheProgram) {
  const auto server = Start([]() -> std::shared_ptr<const std::string> { throw std::bad_alloc(); });
  const std::string answer = test::HttpGet(server->address(), "/metrics");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 503 ")) << answer;
}

// Strangers who say nothing, or never end what they say, are given up, and others are served then.
TEST_F(ServerTest, StrangersAreGivenUpAndDoNotWriteTheLog) {
  const auto server = Start(Shows("a 1\n"));
  log_.Clear();
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 4; ++i) strangers.push_back(test::ConnectToPort(server->address()));
  const std::string endless = "GET /metrics HTTP/1.1\r\nHost: " + std::string(20000, 'x');
  send(strangers[0].get(), endless.data(), endless.size(), MSG_NOSIGNAL);
  send(strangers[1].get(), "\x16\x03\x01\x00\xff", 5, MSG_NOSIGNAL);
  const std::string answer = test::HttpGet(server->address(), "/metrics");
  EXPECT_TRUE(answer.ends_with("\r\n\r\na 1\n")) << answer;
  EXPECT_EQ(log_.lines(), std::vector<std::string>());
}

// That of Prometheus.
constexpr std::chrono::seconds kScrapeTimeout{10};

// They send their headers byte by byte, and come again when they are given up.
TEST_F(ServerTest, ManyWhoDripHeadersHoldUpNobody) {
  const auto server = Start(Shows("a 1\n"));
  std::atomic<bool> stop{false};
  std::atomic<bool> all_connected{false};
  std::thread dripping([&] {
    std::vector<UniqueFd> strangers(60);
    while (!stop) {
      for (UniqueFd& each : strangers)
        if (!each || send(each.get(), "G", 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1)
          each = test::ConnectToPort(server->address());
      all_connected = true;
    }
  });
  while (!all_connected) std::this_thread::yield();
  for (int i = 0; i < 3; ++i) {
    const auto before = std::chrono::steady_clock::now();
    const std::string answer = test::HttpGet(server->address(), "/metrics");
    EXPECT_TRUE(answer.ends_with("\r\n\r\na 1\n")) << answer;
    EXPECT_LT(std::chrono::steady_clock::now() - before, kScrapeTimeout);
  }
  stop = true;
  dripping.join();
}

// More of them than there are threads.
TEST_F(ServerTest, ManyWhoDripBodiesHoldUpNobody) {
  const auto server = Start(Shows("a 1\n"));
  const std::string request = "GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n";
  std::vector<UniqueFd> strangers(80);
  for (UniqueFd& each : strangers) {
    each = test::ConnectToPort(server->address());
    send(each.get(), request.data(), request.size(), MSG_NOSIGNAL);
  }
  std::atomic<bool> stop{false};
  std::thread dripping([&] {
    while (!stop)
      for (const UniqueFd& each : strangers) send(each.get(), "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
  });
  const auto before = std::chrono::steady_clock::now();
  const std::string answer = test::HttpGet(server->address(), "/metrics");
  EXPECT_TRUE(answer.ends_with("\r\n\r\na 1\n")) << answer;
  EXPECT_LT(std::chrono::steady_clock::now() - before, kScrapeTimeout);
  stop = true;
  dripping.join();
}

TEST_F(ServerTest, EndsThoughSomebodyIsConnected) {
  auto server = Start(Shows("a 1\n"));
  const std::string address = server->address();
  const UniqueFd stranger = test::ConnectToPort(address);
  server.reset();
  EXPECT_FALSE(test::ConnectToPort(address)) << "nobody listens any more";
}

}  // namespace
}  // namespace hyperloop::metrics
