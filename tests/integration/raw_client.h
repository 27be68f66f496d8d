// RawClient: a connection to the RNIC daemon that can send anything.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>
#include <string>
#include <vector>

#include "softrnic/commands/commands.h"
#include "softrnic/commands/unix_socket.h"

namespace hyperloop::test {

class RawClient {
 public:
  explicit RawClient(const std::string& path)
      : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    auto address = softrnic::UnixAddress(path);
    const timeval patience{.tv_sec = 10, .tv_usec = 0};
    setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    connected_ =
        address.ok() &&
        connect(socket_.get(), reinterpret_cast<sockaddr*>(&address->first), address->second) == 0;
  }
  int fd() const { return socket_.get(); }
  bool connected() const { return connected_; }
  // False: the connection is closed.
  bool Send(const void* data, size_t size, const std::vector<int>& fds = {}) {
    const iovec part{const_cast<void*>(data), size};
    return softrnic::SendMessage(socket_.get(), {&part, 1}, fds, 0).ok();
  }
  struct Answer {
    bool closed = false;
    Code code = Code::kOk;
    std::string text;
    softrnic::Reply reply;
    softrnic::MessageFds fds;
  };
  Answer Receive() {
    std::vector<std::byte> buffer(sizeof(softrnic::Reply) + softrnic::kMaxReplyText);
    auto message = softrnic::ReceiveMessage(socket_.get(), buffer, 0);
    Answer answer;
    if (!message.ok()) {
      EXPECT_NE(message.status().code(), Code::kBusy) << "neither answer nor end within 10 s";
      answer.closed = true;
      return answer;
    }
    if (message->bytes < sizeof(softrnic::Reply)) {
      EXPECT_EQ(message->bytes, 0u);
      answer.closed = true;
      return answer;
    }
    std::memcpy(&answer.reply, buffer.data(), sizeof(softrnic::Reply));
    EXPECT_EQ(answer.reply.magic, softrnic::kCommandMagic);
    EXPECT_EQ(answer.reply.text_length, message->bytes - sizeof(softrnic::Reply));
    answer.code = static_cast<Code>(answer.reply.code);
    answer.text.assign(reinterpret_cast<char*>(buffer.data()) + sizeof(softrnic::Reply),
                       answer.reply.text_length);
    answer.fds = std::move(message->fds);
    return answer;
  }
  Answer Call(const softrnic::Command& command, const std::vector<int>& fds = {}) {
    Send(&command, sizeof command, fds);
    return Receive();
  }
  Answer Attach() {
    softrnic::Command open = Make(softrnic::Op::kOpen);
    std::strcpy(open.args.open.host, "raw");
    return Call(open);
  }
  static softrnic::Command Make(softrnic::Op op) {
    softrnic::Command command;
    command.op = op;
    return command;
  }

 private:
  UniqueFd socket_;
  bool connected_ = false;
};

}  // namespace hyperloop::test
