#include "ctl/http_get.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>
#include <thread>

#include "hyperloop/core/unique_fd.h"
#include "support/status_matchers.h"

namespace hyperloop::ctl {
namespace {

using std::chrono::minutes;
using testing::HasSubstr;

// Answers one connection with a text, whatever is asked.
class Answerer {
 public:
  explicit Answerer(std::string text)
      : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), text_(std::move(text)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof at;
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
    EXPECT_EQ(listen(listener_.get(), 1), 0);
    EXPECT_EQ(getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&at), &length), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
    thread_ = std::thread([this] { Run(); });
  }
  ~Answerer() { thread_.join(); }
  const std::string& address() const { return address_; }
  // Once it has answered.
  const std::string& asked() {
    thread_.join();
    thread_ = std::thread([] {});
    return asked_;
  }

 private:
  void Run() {
    const UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    char piece[4096];
    while (!asked_.ends_with("\r\n\r\n")) {
      const ssize_t got = recv(fd.get(), piece, sizeof piece, 0);
      if (got <= 0) break;
      asked_.append(piece, static_cast<size_t>(got));
    }
    // In pieces, as a network may.
    for (size_t at = 0; at < text_.size(); at += 7)
      send(fd.get(), text_.data() + at, std::min<size_t>(7, text_.size() - at), MSG_NOSIGNAL);
  }

  const UniqueFd listener_;
  const std::string text_;
  std::string address_, asked_;
  std::thread thread_;
};

TEST(HttpGetTest, APageWithItsStatus) {
  Answerer agent("HTTP/1.1 503 Service Unavailable\r\ncontent-LENGTH:  5\r\n\r\nbody\n");
  const auto page = HttpGet(agent.address(), "/primary", minutes(5));
  ASSERT_OK(page);
  EXPECT_EQ(page->status, 503);
  EXPECT_EQ(page->body, "body\n");
  EXPECT_THAT(agent.asked(), testing::StartsWith("GET /primary HTTP/1.1\r\n"));
}

TEST(HttpGetTest, WhatIsNoPageIsRefused) {
  for (const char* answer :
       {"", "SSH-2.0-OpenSSH\r\n", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\n\r\nno length",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nbod",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nbody too long",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 abc\r\nContent-Length: 0\r\n\r\n", "HTTP/1.",
        "HTTP/1.1 2\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n"}) {
    EXPECT_EQ(ParseHttpAnswer(answer).status().code(), Code::kCorruption) << answer;
  }
}

TEST(HttpGetTest, APageWithoutAnEndIsNotReadOn) {
  Answerer agent("HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n" + std::string(99999, 'x'));
  const auto page = HttpGet(agent.address(), "/", minutes(5), 1000);
  EXPECT_EQ(page.status().code(), Code::kCorruption) << page.status().ToString();
  EXPECT_THAT(page.status().message(), HasSubstr("more than"));
}

TEST(HttpGetTest, NobodyThere) {
  std::string address;
  {
    Answerer gone("");
    address = gone.address();
    HttpGet(address, "/", minutes(5)).status().IgnoreError();
  }
  EXPECT_EQ(HttpGet(address, "/", minutes(5)).status().code(), Code::kUnavailable);
  EXPECT_EQ(HttpGet("nowhere", "/", minutes(5)).status().code(), Code::kInvalidArgument);
}

TEST(HttpGetTest, WhoSaysNothingIsGivenUp) {
  const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof at;
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  ASSERT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at), &length), 0);
  const auto page = HttpGet("127.0.0.1:" + std::to_string(ntohs(at.sin_port)), "/",
                            std::chrono::milliseconds(50));
  EXPECT_EQ(page.status().code(), Code::kTimedOut) << page.status().ToString();
}

}  // namespace
}  // namespace hyperloop::ctl
