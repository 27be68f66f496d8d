// TCP sockets of simulated threads, and what waits for descriptors.
//
// A connection is a pair of Unix sockets, in which bytes arrive as soon as they are sent. A
// listener is an eventfd that counts who waits to be accepted. So the C library's own functions
// send, receive and poll; only their waiting is the scheduler's.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "simulation/interpose.h"
#include "simulation/network.h"

// As the C library has them where buffers' sizes are known when a program is compiled.
extern "C" {
int __poll_chk(pollfd* entries, nfds_t count, int timeout, size_t size);
ssize_t __recv_chk(int fd, void* buffer, size_t size, size_t room, int flags);
}

namespace hyperloop::simulation {
namespace {

constexpr uint16_t kFirstPort = 20000;
constexpr uint16_t kFirstClientPort = 40000;

struct Listener {
  int fd = -1;
  std::deque<int> waiting;  // the servers' ends of connections
};

struct Network {
  std::map<int, uint64_t> sockets;          // the process of each socket, of either kind
  std::map<int, std::set<int>> other_ends;  // of each connection and pipe; of duplicates several
  std::map<int, std::set<int>> watched_by;  // the epolls that wait for a descriptor
  std::map<int, uint16_t> bound;            // port by descriptor
  std::map<uint16_t, Listener> listeners;
  std::map<int, uint16_t> connected;  // the port to which a client's descriptor leads
  std::set<uint16_t> cut;
  std::set<uint64_t> dead;  // processes
  uint16_t next_port = kFirstPort;
  uint16_t next_client = kFirstClientPort;
};
Network& TheNetwork() {
  static Network network;
  return network;
}

void FillAddress(uint16_t port, sockaddr* address, socklen_t* length) {
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_port = htons(port);
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::copy_n(reinterpret_cast<const char*>(&own), std::min<size_t>(*length, sizeof own),
              reinterpret_cast<char*>(address));
  *length = sizeof own;
}

void Changed(int fd) {
  Network& network = TheNetwork();
  Scheduler::Get().DescriptorChanged(fd);
  const auto found = network.watched_by.find(fd);
  if (found == network.watched_by.end()) return;
  for (const int epoll : found->second) Scheduler::Get().DescriptorChanged(epoll);
}

// Something was written to the descriptor, read from it, or closed.
void AllEndsChanged(int fd) {
  Changed(fd);
  const auto found = TheNetwork().other_ends.find(fd);
  if (found == TheNetwork().other_ends.end()) return;
  for (const int each : found->second) Changed(each);
}

void AreEnds(int one, int other) {
  TheNetwork().other_ends[one].insert(other);
  TheNetwork().other_ends[other].insert(one);
}

void ForgetEnds(int fd) {
  Network& network = TheNetwork();
  AllEndsChanged(fd);
  for (const int each : network.other_ends[fd]) network.other_ends[each].erase(fd);
  network.other_ends.erase(fd);
  network.watched_by.erase(fd);
}

// Ends listening at `fd`, if it does.
void EndListening(int fd) {
  Network& network = TheNetwork();
  const auto found = network.bound.find(fd);
  if (found == network.bound.end()) return;
  if (const auto listener = network.listeners.find(found->second);
      listener != network.listeners.end() && listener->second.fd == fd) {
    for (const int each : listener->second.waiting) {
      eventfd_t one;
      eventfd_read(fd, &one);
      ForgetEnds(each);
      HL_REAL(close)(each);
    }
    network.listeners.erase(listener);
  }
  network.bound.erase(found);
}

void Forget(int fd) {
  ForgetEnds(fd);
  TheNetwork().sockets.erase(fd);
  TheNetwork().connected.erase(fd);
  EndListening(fd);
}

uint64_t DeadlineOf(int milliseconds) {
  if (milliseconds < 0) return kNever;
  return Scheduler::Get().Now() + static_cast<uint64_t>(milliseconds) * 1'000'000;
}

// What `look` returns once it is not 0, or 0 at the deadline. `look` may be called by any thread.
template <class Look>
int LookUntil(uint64_t deadline, std::vector<int> descriptors, Look look) {
  int found = 0;
  // A look may take what it finds, so there is none after that.
  const auto ready = [&] { return found != 0 || (found = look()) != 0; };
  if (Scheduler::Get().WaitForDescriptors(ready, deadline, std::move(descriptors))) return found;
  return 0;
}

int Poll(pollfd* entries, nfds_t count, int timeout) {
  const auto look = [&] { return HL_REAL(poll)(entries, count, 0); };
  std::vector<int> descriptors;
  for (const pollfd& each : std::span(entries, count)) descriptors.push_back(each.fd);
  return LookUntil(DeadlineOf(timeout), std::move(descriptors), look);
}

}  // namespace

void SetReachable(uint16_t port, bool reachable) {
  Network& network = TheNetwork();
  if (reachable) {
    network.cut.erase(port);
    return;
  }
  network.cut.insert(port);
  for (const auto& [fd, to] : network.connected) {
    if (to != port) continue;
    HL_REAL(shutdown)(fd, SHUT_RDWR);
    AllEndsChanged(fd);
  }
}

void EndConnections(uint64_t process) {
  Network& network = TheNetwork();
  network.dead.insert(process);
  for (const auto& [fd, owner] : network.sockets) {
    if (owner != process) continue;
    HL_REAL(shutdown)(fd, SHUT_RDWR);
    AllEndsChanged(fd);
    EndListening(fd);
  }
}

bool HasDied(uint64_t process) { return TheNetwork().dead.contains(process); }

}  // namespace hyperloop::simulation

using namespace hyperloop::simulation;  // NOLINT(google-build-using-namespace)

#pragma GCC visibility push(default)
extern "C" {

int socket(int family, int type, int protocol) {
  const auto real = HL_REAL(socket);
  if (!Scheduler::Simulates() || (family != AF_INET && family != AF_INET6))
    return real(family, type, protocol);
  const int fd = real(AF_UNIX, type, 0);
  TheNetwork().sockets[fd] = Scheduler::Process();
  return fd;
}

int bind(int fd, const sockaddr* address, socklen_t length) {
  if (!TheNetwork().sockets.contains(fd)) return HL_REAL(bind)(fd, address, length);
  Network& network = TheNetwork();
  uint16_t port = ntohs(reinterpret_cast<const sockaddr_in*>(address)->sin_port);
  if (port == 0) port = network.next_port++;
  if (network.listeners.contains(port)) {
    errno = EADDRINUSE;
    return -1;
  }
  network.bound[fd] = port;
  return 0;
}

int listen(int fd, int backlog) {
  if (!TheNetwork().sockets.contains(fd)) return HL_REAL(listen)(fd, backlog);
  const int counter = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
  dup3(counter, fd, O_CLOEXEC);
  HL_REAL(close)(counter);
  TheNetwork().listeners[TheNetwork().bound.at(fd)].fd = fd;
  return 0;
}

int getsockname(int fd, sockaddr* address, socklen_t* length) {
  const auto found = TheNetwork().bound.find(fd);
  if (found == TheNetwork().bound.end()) return HL_REAL(getsockname)(fd, address, length);
  FillAddress(found->second, address, length);
  return 0;
}

int setsockopt(int fd, int level, int name, const void* value, socklen_t size) {
  if (TheNetwork().sockets.contains(fd)) return 0;
  return HL_REAL(setsockopt)(fd, level, name, value, size);
}

int connect(int fd, const sockaddr* address, socklen_t length) {
  Network& network = TheNetwork();
  if (!network.sockets.contains(fd)) return HL_REAL(connect)(fd, address, length);
  Scheduler::Get().Point();
  const uint16_t port = ntohs(reinterpret_cast<const sockaddr_in*>(address)->sin_port);
  const auto listener = network.listeners.find(port);
  int ends[2];
  if (listener == network.listeners.end() || network.cut.contains(port) ||
      network.dead.contains(network.sockets.at(fd)) ||
      socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) {
    errno = ECONNREFUSED;
    return -1;
  }
  dup3(ends[0], fd, O_CLOEXEC);
  HL_REAL(close)(ends[0]);
  network.connected[fd] = port;
  AreEnds(fd, ends[1]);
  listener->second.waiting.push_back(ends[1]);
  eventfd_write(listener->second.fd, 1);
  return 0;
}

int accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
  Network& network = TheNetwork();
  if (!network.sockets.contains(fd)) return HL_REAL(accept4)(fd, address, length, flags);
  const auto bound = network.bound.find(fd);
  if (bound == network.bound.end() || network.listeners.at(bound->second).waiting.empty()) {
    errno = EAGAIN;
    return -1;
  }
  std::deque<int>& waiting = network.listeners.at(bound->second).waiting;
  const int accepted = waiting.front();
  waiting.pop_front();
  eventfd_t one;
  eventfd_read(fd, &one);
  network.sockets[accepted] = Scheduler::Process();
  FillAddress(network.next_client++, address, length);
  return accepted;
}

ssize_t send(int fd, const void* data, size_t size, int flags) {
  const ssize_t sent = HL_REAL(send)(fd, data, size, flags);
  AllEndsChanged(fd);
  return sent;
}

ssize_t recv(int fd, void* buffer, size_t size, int flags) {
  const ssize_t got = HL_REAL(recv)(fd, buffer, size, flags);
  AllEndsChanged(fd);
  return got;
}

ssize_t __recv_chk(int fd, void* buffer, size_t size, size_t, int flags) {
  return recv(fd, buffer, size, flags);
}

ssize_t write(int fd, const void* data, size_t size) {
  const ssize_t written = HL_REAL(write)(fd, data, size);
  AllEndsChanged(fd);
  return written;
}

int eventfd_write(int fd, eventfd_t value) {
  return write(fd, &value, sizeof value) == sizeof value ? 0 : -1;
}

int close(int fd) {
  Forget(fd);
  return HL_REAL(close)(fd);
}

int pipe2(int* ends, int flags) {
  const int error = HL_REAL(pipe2)(ends, flags);
  if (error == 0) AreEnds(ends[0], ends[1]);
  return error;
}

int fcntl(int fd, int command, ...) {
  va_list list;
  va_start(list, command);
  const long argument = va_arg(list, long);
  va_end(list);
  const int result = HL_REAL(fcntl)(fd, command, argument);
  if (command == F_DUPFD_CLOEXEC && result >= 0) {
    const std::set<int> others = TheNetwork().other_ends[fd];
    for (const int each : others) AreEnds(result, each);
  }
  return result;
}

int epoll_ctl(int epoll, int operation, int fd, epoll_event* event) {
  if (operation != EPOLL_CTL_DEL) TheNetwork().watched_by[fd].insert(epoll);
  Changed(fd);
  return HL_REAL(epoll_ctl)(epoll, operation, fd, event);
}

int poll(pollfd* entries, nfds_t count, int timeout) {
  if (!Scheduler::Simulates()) return HL_REAL(poll)(entries, count, timeout);
  return Poll(entries, count, timeout);
}

int __poll_chk(pollfd* entries, nfds_t count, int timeout, size_t) {
  return poll(entries, count, timeout);
}

int epoll_wait(int fd, epoll_event* events, int most, int timeout) {
  if (!Scheduler::Simulates()) return HL_REAL(epoll_wait)(fd, events, most, timeout);
  const auto look = [&] { return HL_REAL(epoll_wait)(fd, events, most, 0); };
  return LookUntil(DeadlineOf(timeout), {fd}, look);
}

}  // extern "C"
#pragma GCC visibility pop
