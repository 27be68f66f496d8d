#include "support/tcp_proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace hyperloop::test {
namespace {

sockaddr_in Parse(const std::string& text) {
  sockaddr_in address{};
  const size_t colon = text.find(':');
  address.sin_family = AF_INET;
  if (inet_pton(AF_INET, text.substr(0, colon).c_str(), &address.sin_addr) != 1) {
    std::fprintf(stderr, "proxy: bad address %s\n", text.c_str());
    std::abort();
  }
  if (colon != std::string::npos)
    address.sin_port = htons(static_cast<uint16_t>(std::stoi(text.substr(colon + 1))));
  return address;
}

void NoDelay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

constexpr auto kPause = std::chrono::microseconds(200);  // between looks while something waits

}  // namespace

TcpProxy::TcpProxy(const std::string& listen_at) {
  listener_ = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in address = Parse(listen_at);
  socklen_t size = sizeof address;
  if (bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      listen(listener_.get(), 16) != 0 ||
      getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    std::perror("proxy");
    std::abort();
  }
  address_ = listen_at + ":" + std::to_string(ntohs(address.sin_port));
  thread_ = std::thread([this] { Run(); });
}

TcpProxy::~TcpProxy() {
  stop_ = true;
  thread_.join();
  ResetAll();
}

void TcpProxy::SetTarget(const std::string& address) {
  std::lock_guard lock(mutex_);
  target_ = address;
}

void TcpProxy::ResetAfter(uint64_t bytes) { reset_at_ = passed_ + bytes; }

// With SO_LINGER 0 a close is a reset.
void TcpProxy::Reset(Pair& pair) {
  for (int& fd : pair.sockets) {
    if (fd < 0) continue;
    const linger hard{1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close(fd);
    fd = -1;
  }
}

void TcpProxy::ResetAll() {
  for (auto& pair : pairs_) Reset(*pair);
  pairs_.clear();
}

void TcpProxy::Accept() {
  const int from = accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (from < 0) return;
  ++accepted_;
  auto pair = std::make_unique<Pair>();
  pair->sockets[0] = from;
  NoDelay(from);
  std::string target;
  {
    std::lock_guard lock(mutex_);
    target = target_;
  }
  if (target.empty()) return Reset(*pair);
  const int to = pair->sockets[1] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = Parse(target);
  if (connect(to, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return Reset(*pair);
  NoDelay(to);
  pairs_.push_back(std::move(pair));
}

// Takes bytes from one side and passes those that are due to the other. False: the connection is
// over.
bool TcpProxy::Move(Pair& pair, int from, Clock::time_point now) {
  Way& way = pair.ways[from];
  char buffer[16384];
  if (!way.ended && way.chunks.size() < 1000) {
    const ssize_t n = recv(pair.sockets[from], buffer, sizeof buffer, MSG_DONTWAIT);
    if (n == 0) way.ended = true;
    if (n < 0 && errno != EAGAIN) return false;
    if (n > 0)
      way.chunks.push_back({now + std::chrono::microseconds(delay_us_), {buffer, buffer + n}});
  }
  while (!way.chunks.empty() && way.chunks.front().due <= now) {
    std::vector<char>& bytes = way.chunks.front().bytes;
    const uint64_t until_reset = reset_at_ == UINT64_MAX ? UINT64_MAX : reset_at_ - passed_;
    const size_t most = std::min<uint64_t>(bytes.size(), until_reset);
    const ssize_t n =
        most == 0 ? 0
                  : send(pair.sockets[1 - from], bytes.data(), most, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno == EAGAIN) break;
    if (n < 0) return false;
    passed_ += static_cast<uint64_t>(n);
    if (passed_ >= reset_at_) return true;  // Run resets
    bytes.erase(bytes.begin(), bytes.begin() + n);
    if (bytes.empty()) way.chunks.pop_front();
  }
  return !(way.ended && way.chunks.empty());
}

void TcpProxy::Run() {
  while (!stop_) {
    std::vector<pollfd> fds = {{listener_.get(), POLLIN, 0}};
    bool waits = cut_;
    for (auto& pair : pairs_) {
      for (const int fd : pair->sockets) fds.push_back({fd, POLLIN, 0});
      waits = waits || !pair->ways[0].chunks.empty() || !pair->ways[1].chunks.empty();
    }
    if (waits) {
      std::this_thread::sleep_for(kPause);
    } else {
      poll(fds.data(), fds.size(), 5);
    }
    if (cut_) continue;
    Accept();
    const auto now = Clock::now();
    for (size_t i = 0; i < pairs_.size();) {
      const bool lives = Move(*pairs_[i], 0, now) && Move(*pairs_[i], 1, now);
      if (passed_ >= reset_at_) {
        reset_at_ = UINT64_MAX;
        ++resets_;
        ResetAll();
        break;
      }
      if (lives) {
        ++i;
        continue;
      }
      Reset(*pairs_[i]);
      pairs_.erase(pairs_.begin() + static_cast<ptrdiff_t>(i));
    }
  }
}

}  // namespace hyperloop::test
