// SilentPeer: a machine that takes connections and says nothing, as when a replica's process is
// stopped.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

#include "hyperloop/core/unique_fd.h"

namespace hyperloop::test {

class SilentPeer {
 public:
  SilentPeer() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener_.get(), 8), 0);
    EXPECT_EQ(getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    endpoint_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  const std::string& endpoint() const { return endpoint_; }
  void AwaitQuestion() { question_ = UniqueFd(accept(listener_.get(), nullptr, nullptr)); }

 private:
  UniqueFd listener_, question_;
  std::string endpoint_;
};

}  // namespace hyperloop::test
