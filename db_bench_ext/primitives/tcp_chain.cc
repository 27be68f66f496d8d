#include "primitives/tcp_chain.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "hyperloop/core/unique_fd.h"

namespace hyperloop::bench {
namespace {

constexpr time_t kPatienceSeconds = 10;

// Runs `work` on a thread inside a network namespace. Sockets stay in the one that they were made
// in.
Status Inside(const std::string& name, const std::function<Status()>& work) {
  if (name.empty()) return work();
  Status status;
  std::thread([&] {
    const UniqueFd network(::open(("/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC));
    if (!network || ::setns(network.get(), CLONE_NEWNET) != 0)
      status = FromErrno(errno, "network namespace " + name);
    else
      status = work();
  }).join();
  return status;
}

struct Node {
  std::string space;  // the network namespace; empty: this thread's
  in_addr address{};
  UniqueFd listener;
  uint16_t port = 0;
  UniqueFd in, out;
};

Result<UniqueFd> Socket() {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return FromErrno(errno, "socket");
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const timeval patience{kPatienceSeconds, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  return fd;
}

Status Listen(Node& node) {
  HL_ASSIGN_OR_RETURN(node.listener, Socket());
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr = node.address;
  socklen_t length = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (::bind(node.listener.get(), any, length) != 0 || ::listen(node.listener.get(), 1) != 0 ||
      ::getsockname(node.listener.get(), any, &length) != 0)
    return FromErrno(errno, "listening for the TCP chain");
  node.port = ntohs(address.sin_port);
  return Status::Ok();
}

Status ConnectTo(Node& node, Node& next) {
  HL_ASSIGN_OR_RETURN(node.out, Socket());
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr = next.address;
  address.sin_port = htons(next.port);
  if (::connect(node.out.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return FromErrno(errno, "connecting the TCP chain");
  next.in.Reset(::accept4(next.listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!next.in) return FromErrno(errno, "accepting in the TCP chain");
  const timeval patience{kPatienceSeconds, 0};
  ::setsockopt(next.in.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  return Status::Ok();
}

bool Take(int fd, std::span<std::byte> message) {
  return ::recv(fd, message.data(), message.size(), MSG_WAITALL) ==
         static_cast<ssize_t>(message.size());
}
bool Give(int fd, std::span<const std::byte> message) {
  return ::send(fd, message.data(), message.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(message.size());
}

// The nodes, the primary's first, each connected to the next and the last to the first.
Result<std::vector<Node>> MakeChain(const ClusterInfo& cluster) {
  std::vector<Node> nodes(1 + cluster.replica_count);
  ::inet_pton(AF_INET, cluster.network_address.c_str(), &nodes[0].address);
  for (size_t i = 0; i < cluster.replica_count; ++i) {
    const ClusterProcess& replica = cluster.replicas()[i];
    nodes[i + 1].space = cluster.network + "-" + replica.name;
    const std::string host = replica.listen.substr(0, replica.listen.rfind(':'));
    ::inet_pton(AF_INET, host.c_str(), &nodes[i + 1].address);
  }
  for (Node& node : nodes) HL_RETURN_IF_ERROR(Inside(node.space, [&node] { return Listen(node); }));
  for (size_t i = 0; i < nodes.size(); ++i) {
    Node& next = nodes[(i + 1) % nodes.size()];
    HL_RETURN_IF_ERROR(Inside(nodes[i].space, [&, i] { return ConnectTo(nodes[i], next); }));
  }
  return nodes;
}

// Passes messages on until the node before is gone.
void Forward(const Node& node, size_t bytes) {
  std::vector<std::byte> message(bytes);
  while (Take(node.in.get(), message) && Give(node.out.get(), message)) {
  }
  ::shutdown(node.out.get(), SHUT_RDWR);
}

}  // namespace

Result<LatencyHistogram> TcpChain(const ClusterInfo& cluster, size_t bytes, uint64_t number,
                                  const std::atomic<bool>& interrupted) {
  using Clock = std::chrono::steady_clock;
  HL_ASSIGN_OR_RETURN(const std::vector<Node> nodes, MakeChain(cluster));
  std::vector<std::thread> threads;
  for (size_t i = 1; i < nodes.size(); ++i)
    threads.emplace_back([&nodes, i, bytes] { Forward(nodes[i], bytes); });
  std::vector<std::byte> message(bytes);
  LatencyHistogram latency;
  Status status;
  for (uint64_t i = 0; i < number && status.ok(); ++i) {
    if (interrupted.load(std::memory_order_relaxed)) status = Aborted("interrupted");
    const Clock::time_point start = Clock::now();
    if (!Give(nodes[0].out.get(), message) || !Take(nodes[0].in.get(), message))
      status = TimedOut("a message of the TCP chain did not come back");
    latency.Record(static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count()));
  }
  ::shutdown(nodes[0].out.get(), SHUT_RDWR);
  for (std::thread& thread : threads) thread.join();
  if (!status.ok()) return status;
  return latency;
}

}  // namespace hyperloop::bench
