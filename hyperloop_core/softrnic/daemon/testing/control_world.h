// A daemon's engine and client server in the test's process, and clients that speak its protocol
// without the driver.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "hyperloop/core/name.h"
#include "hyperloop/core/status.h"
#include "hyperloop/core/unique_fd.h"
#include "softrnic/commands/commands.h"
#include "softrnic/commands/unix_socket.h"
#include "softrnic/daemon/client_server.h"
#include "softrnic/engine/engine.h"
#include "softrnic/loop/engine_loop.h"
#include "support/log_lines.h"
#include "support/must.h"

namespace hyperloop::softrnic {

inline UniqueFd ConnectToDaemon(const std::string& path) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const auto address = *UnixAddress(path);
  const timeval patience{.tv_sec = 30, .tv_usec = 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.first), address.second) != 0)
    socket.Reset(-1);
  return socket;
}

// Another process, which makes connections: the daemon's clients are processes.
class OtherProcess {
 public:
  // `user`: the user under which it runs; −1: this process's.
  explicit OtherProcess(uid_t user = static_cast<uid_t>(-1)) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    pid_ = fork();
    if (pid_ == 0) {
      close(ends[0]);
      if (setresuid(user, user, user) != 0) _exit(1);
      Serve(UniqueFd(ends[1]));
    }
    close(ends[1]);
    channel_.Reset(ends[0]);
  }
  ~OtherProcess() {
    channel_.Reset(-1);
    waitpid(pid_, nullptr, 0);
  }
  UniqueFd Connect(const std::string& path) {
    EXPECT_EQ(send(channel_.get(), path.data(), path.size(), 0), static_cast<ssize_t>(path.size()));
    char ignored;
    auto answer = ReceiveMessage(channel_.get(), std::as_writable_bytes(std::span(&ignored, 1)), 0);
    EXPECT_TRUE(answer.ok() && answer->fds.size() == 1);
    return std::move(answer->fds[0]);
  }

 private:
  [[noreturn]] static void Serve(UniqueFd channel) {
    char path[200];
    for (;;) {
      const ssize_t n = recv(channel.get(), path, sizeof path, 0);
      if (n <= 0) _exit(0);
      const UniqueFd made = ConnectToDaemon(std::string(path, static_cast<size_t>(n)));
      const int fd = made.get();
      const iovec part{path, 1};
      SendMessage(channel.get(), {&part, 1}, {&fd, 1}, 0).IgnoreError();
    }
  }

  pid_t pid_ = -1;
  UniqueFd channel_;
};

class RawClient {
 public:
  explicit RawClient(UniqueFd socket) : socket_(std::move(socket)) {}

  static Command Make(Op op) {
    Command command;
    command.op = op;
    return command;
  }
  static Command MakeOpen(const std::string& host) {
    Command open = Make(Op::kOpen);
    host.copy(open.args.open.host, kNameBytes - 1);
    return open;
  }
  void Say(const Command& command, const std::vector<int>& fds = {}) {
    const iovec part{const_cast<Command*>(&command), sizeof command};
    SendMessage(socket_.get(), {&part, 1}, fds, 0).IgnoreError();
  }
  // The next answer. kAborted: the connection ended.
  Status Hear() {
    auto message = ReceiveMessage(socket_.get(), buffer_, 0);
    // Of an end that left messages unread, the kernel tells before it gives the end's last message.
    if (message.status().code() == Code::kUnavailable)
      message = ReceiveMessage(socket_.get(), buffer_, 0);
    EXPECT_NE(message.status().code(), Code::kBusy) << "neither answer nor end";
    if (!message.ok() || message->bytes < sizeof reply) return Aborted("closed");
    std::memcpy(&reply, buffer_.data(), sizeof reply);
    const auto* const text = reinterpret_cast<const char*>(buffer_.data()) + sizeof reply;
    return {static_cast<Code>(reply.code), std::string(text, reply.text_length)};
  }
  // Whether Hear has something to return.
  bool answered() const {
    pollfd ready{socket_.get(), POLLIN, 0};
    return poll(&ready, 1, 0) != 0;
  }
  Status Call(const Command& command, const std::vector<int>& fds = {}) {
    Say(command, fds);
    return Hear();
  }
  Status Open(const std::string& host) { return Call(MakeOpen(host)); }
  Status AllocPd() { return Call(Make(Op::kAllocPd)); }

  Reply reply;

 private:
  UniqueFd socket_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(sizeof(Reply) + kMaxReplyText);
};

// The engine and the client server have a thread each.
struct World {
  // `starts`: else the clients' messages wait until Start.
  explicit World(const std::string& path, const ClientLimits& client = {},
                 const ClientServerLimits& control = {}, bool starts = true)
      : socket(path), engine(EngineOptions{.limits = client}) {
    loop = Must(EngineLoop::Create(&engine, {.spin_us = 0}));
    server = Must(ClientServer::Listen(socket, &engine, loop.get(), log, control));
    if (starts) Start();
  }
  void Start() {
    threads[0] = std::thread([this] { loop->Run(); });
    threads[1] = std::thread([this] { server->Run(); });
  }
  ~World() {
    server->Stop();
    threads[1].join();
    loop->Stop();
    threads[0].join();
  }

  const std::string socket;
  std::shared_ptr<LogLines> log = std::make_shared<LogLines>();
  Engine engine;
  std::unique_ptr<EngineLoop> loop;
  std::unique_ptr<ClientServer> server;
  std::thread threads[2];
};

}  // namespace hyperloop::softrnic
