#include "hyperloop/metrics/server.h"

#include <gtest/gtest.h>
#include <poll.h>
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
  std::unique_ptr<Server> Start(Server::MakePage page,
                                std::chrono::milliseconds patience = ServerOptions().patience) {
    auto server = Server::Start({"127.0.0.1:0", false, patience}, std::move(page), log_);
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

TEST_F(ServerTest, ShowsSeveralPages) {
  const auto answer = [](std::string_view path) -> Answer {
    if (path == "/none") return {200, Answer::kText, nullptr};
    const bool known = path == "/yes";
    return {known ? 200 : 503, known ? Answer::kJson : Answer::kText,
            std::make_shared<const std::string>(known ? "{}" : "not now")};
  };
  const auto started = Server::Start({"127.0.0.1:0"}, Server::MakeAnswer(answer), log_);
  ASSERT_TRUE(started.ok()) << started.status().ToString();
  const std::string& address = (*started)->address();
  const std::string yes = test::HttpGet(address, "/yes");
  EXPECT_TRUE(yes.starts_with("HTTP/1.1 200 OK\r\n")) << yes;
  EXPECT_NE(yes.find("Content-Type: application/json\r\n"), std::string::npos) << yes;
  EXPECT_TRUE(yes.ends_with("\r\n\r\n{}")) << yes;
  const std::string no = test::HttpGet(address, "/no?of=it");
  EXPECT_TRUE(no.starts_with("HTTP/1.1 503 Service Unavailable\r\n")) << no;
  EXPECT_TRUE(no.ends_with("not now")) << no;
  EXPECT_TRUE(test::HttpGet(address, "/none").starts_with("HTTP/1.1 503 "));
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

// Strangers who say nothing, or never end what they say, have all threads, and are given up. Two of
// them end at once.
TEST_F(ServerTest, StrangersAreGivenUpAndDoNotWriteTheLog) {
  const auto server = Start(Shows("a 1\n"));
  log_.Clear();
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < Server::kThreads + 2; ++i)
    strangers.push_back(test::ConnectToPort(server->address()));
  const std::string endless = "GET /metrics HTTP/1.1\r\nHost: " + std::string(20000, 'x');
  send(strangers[0].get(), endless.data(), endless.size(), MSG_NOSIGNAL);
  send(strangers[1].get(), "\x16\x03\x01\x00\xff", 5, MSG_NOSIGNAL);
  const std::string answer = test::HttpGet(server->address(), "/metrics");
  EXPECT_TRUE(answer.ends_with("\r\n\r\na 1\n")) << answer;
  EXPECT_EQ(log_.lines(), std::vector<std::string>());
}

// They have all threads, and send their headers byte by byte until they are given up.
TEST_F(ServerTest, WhoDripsAHeaderIsGivenUp) {
  const auto server = Start(Shows("a 1\n"));
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < Server::kThreads; ++i)
    strangers.push_back(test::ConnectToPort(server->address()));
  std::atomic<bool> stop{false};
  std::thread dripping([&] {
    while (!stop) {
      std::vector<pollfd> ended;
      for (const UniqueFd& each : strangers) {
        if (send(each.get(), "G", 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1)
          ended.push_back({each.get(), POLLIN, 0});
      }
      poll(ended.data(), ended.size(), 50);
    }
  });
  const std::string answer = test::HttpGet(server->address(), "/metrics");
  EXPECT_TRUE(answer.ends_with("\r\n\r\na 1\n")) << answer;
  stop = true;
  dripping.join();
}

// Nobody is given up. So who is answered did not wait for any of them.
constexpr std::chrono::hours kForEver{1};

TEST_F(ServerTest, ManyWhoDripHeadersHoldUpNobody) {
  const auto server = Start(Shows("a 1\n"), kForEver);
  std::vector<UniqueFd> strangers(Server::kThreads - 4);
  for (UniqueFd& each : strangers) {
    each = test::ConnectToPort(server->address());
    send(each.get(), "G", 1, MSG_NOSIGNAL);
  }
  for (int i = 0; i < 3; ++i) {
    const std::string answer = test::HttpGet(server->address(), "/metrics");
    EXPECT_TRUE(answer.ends_with("\r\n\r\na 1\n")) << answer;
  }
}

// More of them than there are threads.
TEST_F(ServerTest, ManyWhoDripBodiesHoldUpNobody) {
  const auto server = Start(Shows("a 1\n"), kForEver);
  const std::string request = "GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n";
  std::vector<UniqueFd> strangers(Server::kThreads + 16);
  for (UniqueFd& each : strangers) {
    each = test::ConnectToPort(server->address());
    send(each.get(), request.data(), request.size(), MSG_NOSIGNAL);
    send(each.get(), "x", 1, MSG_NOSIGNAL);
  }
  const std::string answer = test::HttpGet(server->address(), "/metrics");
  EXPECT_TRUE(answer.ends_with("\r\n\r\na 1\n")) << answer;
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
