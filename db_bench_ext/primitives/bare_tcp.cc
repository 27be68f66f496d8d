#include "primitives/bare_tcp.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
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
};

// A connection between two nodes, by its ends.
struct Link {
  UniqueFd near, far;
};

void Prepare(int socket) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const timeval patience{kPatienceSeconds, 0};
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
}

Result<UniqueFd> Socket() {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return FromErrno(errno, "socket");
  Prepare(fd.get());
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
    return FromErrno(errno, "listening for bare TCP");
  node.port = ntohs(address.sin_port);
  return Status::Ok();
}

Result<Link> Connect(const Node& from, const Node& to) {
  Link link;
  HL_RETURN_IF_ERROR(Inside(from.space, [&]() -> Status {
    HL_ASSIGN_OR_RETURN(link.near, Socket());
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr = to.address;
    address.sin_port = htons(to.port);
    if (::connect(link.near.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) !=
        0)
      return FromErrno(errno, "connecting over bare TCP");
    return Status::Ok();
  }));
  link.far.Reset(::accept4(to.listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!link.far) return FromErrno(errno, "accepting over bare TCP");
  Prepare(link.far.get());
  return link;
}

bool Take(int fd, std::span<std::byte> message) {
  return ::recv(fd, message.data(), message.size(), MSG_WAITALL) ==
         static_cast<ssize_t>(message.size());
}
bool Give(int fd, std::span<const std::byte> message) {
  return ::send(fd, message.data(), message.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(message.size());
}

// The nodes, the primary's first, each with a socket that listens.
Result<std::vector<Node>> MakeNodes(const ClusterInfo& cluster) {
  std::vector<Node> nodes(1 + cluster.replica_count);
  ::inet_pton(AF_INET, cluster.network_address.c_str(), &nodes[0].address);
  for (size_t i = 0; i < cluster.replica_count; ++i) {
    const ClusterProcess& replica = cluster.replicas()[i];
    nodes[i + 1].space = cluster.network + "-" + replica.name;
    const std::string host = replica.listen.substr(0, replica.listen.rfind(':'));
    ::inet_pton(AF_INET, host.c_str(), &nodes[i + 1].address);
  }
  for (Node& node : nodes) HL_RETURN_IF_ERROR(Inside(node.space, [&node] { return Listen(node); }));
  return nodes;
}

// Until the node before is gone: takes messages of `bytes` bytes from `in`, and sends the first
// `answer` bytes of each to `out`.
void Serve(int in, int out, size_t bytes, size_t answer) {
  std::vector<std::byte> message(bytes);
  while (Take(in, message) && Give(out, std::span(message).first(answer))) {
  }
  ::shutdown(out, SHUT_RDWR);
}

// Times `number` calls of `exchange`, which says whether it was answered.
Result<LatencyHistogram> Time(uint64_t number, const std::atomic<bool>& interrupted,
                              const std::function<bool()>& exchange) {
  using Clock = std::chrono::steady_clock;
  LatencyHistogram latency;
  for (uint64_t i = 0; i < number; ++i) {
    if (interrupted.load(std::memory_order_relaxed)) return Aborted("interrupted");
    const Clock::time_point start = Clock::now();
    if (!exchange()) return TimedOut("a message over bare TCP was not answered");
    latency.Record(static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count()));
  }
  return latency;
}

// Ends the connections, and so the threads that serve them.
void End(const std::vector<Link>& links, std::vector<std::thread>& threads) {
  for (const Link& link : links) ::shutdown(link.near.get(), SHUT_RDWR);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

Result<LatencyHistogram> TcpChain(const ClusterInfo& cluster, size_t bytes, uint64_t number,
                                  const std::atomic<bool>& interrupted) {
  HL_ASSIGN_OR_RETURN(const std::vector<Node> nodes, MakeNodes(cluster));
  std::vector<Link> links;  // from each node to the next, and from the last to the first
  for (size_t i = 0; i < nodes.size(); ++i) {
    HL_ASSIGN_OR_RETURN(links.emplace_back(), Connect(nodes[i], nodes[(i + 1) % nodes.size()]));
  }
  std::vector<std::thread> threads;
  for (size_t i = 1; i < nodes.size(); ++i)
    threads.emplace_back(Serve, links[i - 1].far.get(), links[i].near.get(), bytes, bytes);
  std::vector<std::byte> message(bytes);
  Result<LatencyHistogram> latency = Time(number, interrupted, [&] {
    return Give(links.front().near.get(), message) && Take(links.back().far.get(), message);
  });
  End(links, threads);
  return latency;
}

Result<LatencyHistogram> TcpFanout(const ClusterInfo& cluster, size_t bytes, uint64_t number,
                                   const std::atomic<bool>& interrupted) {
  HL_ASSIGN_OR_RETURN(const std::vector<Node> nodes, MakeNodes(cluster));
  std::vector<Link> links;  // from the first node to each other
  for (size_t i = 1; i < nodes.size(); ++i) {
    HL_ASSIGN_OR_RETURN(links.emplace_back(), Connect(nodes[0], nodes[i]));
  }
  std::vector<std::thread> threads;
  for (const Link& link : links)
    threads.emplace_back(Serve, link.far.get(), link.far.get(), bytes, 1);
  const std::vector<std::byte> message(bytes);
  std::byte answer{};
  const auto give = [&](const Link& link) { return Give(link.near.get(), message); };
  const auto take = [&](const Link& link) { return Take(link.near.get(), std::span(&answer, 1)); };
  Result<LatencyHistogram> latency = Time(number, interrupted, [&] {
    return std::ranges::all_of(links, give) && std::ranges::all_of(links, take);
  });
  End(links, threads);
  return latency;
}

}  // namespace hyperloop::bench
