// Unix SEQPACKET messages with descriptors, which carry the commands of commands.h between a client
// and hyperloop-rnicd.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "hyperloop/core/status.h"
#include "hyperloop/core/unique_fd.h"

namespace hyperloop::softrnic {

inline constexpr size_t kMaxReplyText = 128 * 1024;
inline constexpr size_t kMaxMessageFds = 4;

// Sends one message. `flags`: MSG_DONTWAIT or 0; never raises SIGPIPE.
Status SendMessage(int socket, std::span<const iovec> parts, std::span<const int> fds, int flags);

// The descriptors that came with a message; close on exec.
class MessageFds {
 public:
  size_t size() const { return size_; }
  UniqueFd& operator[](size_t i) { return fds_[i]; }
  const UniqueFd& operator[](size_t i) const { return fds_[i]; }
  // Closes what there is no room for.
  void Add(UniqueFd fd) {
    if (size_ < fds_.size()) fds_[size_++] = std::move(fd);
  }

 private:
  std::array<UniqueFd, kMaxMessageFds> fds_;
  size_t size_ = 0;
};

struct ReceivedMessage {
  size_t bytes = 0;        // 0: the peer has closed the connection
  bool truncated = false;  // longer than the buffer, or more descriptors than kMaxMessageFds
  MessageFds fds;
};
// Receives one message into `buffer`. kBusy: none came within the socket's timeout, or with
// MSG_DONTWAIT none is there. Receiving a message needs no memory.
Result<ReceivedMessage> ReceiveMessage(int socket, std::span<std::byte> buffer, int flags);

// Whether descriptors come with the next message, which stays in the socket. Does not wait. kBusy:
// no message is there.
Result<bool> NextBringsDescriptors(int socket);

// Checks that the process that listens at the other end of a connected socket is of this user or
// root; otherwise kPermissionDenied. `path` is for the message.
Status CheckListener(int socket, const std::string& path);
// Checks that a client is of this user or root, and that this process can see it; otherwise
// kPermissionDenied. The kernel tells pid 0 of a process of a pid namespace that is not below this
// process's, and a user of its own choice of one whom this user namespace does not have.
Status CheckClient(const ucred& client);

// A socket address; kInvalidArgument if `path` is empty or too long for one.
Result<std::pair<sockaddr_un, unsigned>> UnixAddress(const std::string& path);

}  // namespace hyperloop::softrnic
