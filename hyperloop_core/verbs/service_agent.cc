// The answering side: it accepts with a queue pair of the service's protection domain.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "hyperloop/core/out_of_memory.h"
#include "verbs/connection.h"
#include "verbs/service_request.h"

namespace hyperloop::verbs {
namespace {

constexpr int kBacklog = 16;
constexpr size_t kMaxReaders = 64;

// The IP address that the GID stands for.
Result<sockaddr_in6> AddressOf(const VerbsContext& context) {
  const rnic::Gid& gid = context.port().gid;
  if (gid.raw[0] == 0xfe) {
    return NotSupported(context.port().device + ": GID " +
                        std::to_string(context.port().gid_index) +
                        " is link-local, services need an address that others can be given; choose "
                        "another GID index");
  }
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(context.options().service_port);
  std::copy(gid.raw.begin(), gid.raw.end(), address.sin6_addr.s6_addr);
  if (IN6_IS_ADDR_V4MAPPED(&address.sin6_addr)) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = address.sin6_port;
    std::copy_n(gid.raw.begin() + 12, 4, reinterpret_cast<uint8_t*>(&v4.sin_addr));
    address = {};
    std::memcpy(&address, &v4, sizeof v4);
  }
  return address;
}

}  // namespace

Result<std::unique_ptr<ServiceAgent>> ServiceAgent::Start(VerbsContext& context) {
  std::unique_ptr<ServiceAgent> agent(new ServiceAgent(context));
  HL_RETURN_IF_ERROR(agent->Listen());
  agent->thread_ = std::thread([raw = agent.get()] { raw->Run(); });
  return agent;
}

Status ServiceAgent::Listen() {
  const Library& lib = context_.lib();
  const uint16_t port = context_.options().service_port;
  if (port == 0) {
    return InvalidArgument(
        "provider verbs publishes services at a port of its own; give one (service_port)");
  }
  HL_ASSIGN_OR_RETURN(sockaddr_in6 address, AddressOf(context_));
  const std::string where = context_.port().device + ", service port " + std::to_string(port);
  stop_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (stop_ < 0) return FromErrno(errno, "eventfd");
  channel_ = lib.rdma_create_event_channel();
  if (channel_ == nullptr) return OpenChannelError(errno);
  if (fcntl(channel_->fd, F_SETFL, fcntl(channel_->fd, F_GETFL) | O_NONBLOCK) != 0) {
    return FromErrno(errno, where);
  }
  if (lib.rdma_create_id(channel_, &listener_, nullptr, RDMA_PS_TCP) != 0 ||
      lib.rdma_bind_addr(listener_, reinterpret_cast<sockaddr*>(&address)) != 0 ||
      lib.rdma_listen(listener_, kBacklog) != 0) {
    return FromErrno(errno, where);
  }
  cq_ =
      lib.ibv_create_cq(context_.device(), 2 * static_cast<int>(kMaxReaders), nullptr, nullptr, 0);
  if (cq_ == nullptr) return VerbsError(errno, where);
  return {};
}

ServiceAgent::~ServiceAgent() {
  if (!context_.IsOwner()) {  // in a forked child: thread and queues are the parent's
    if (thread_.joinable()) thread_.detach();
    return;
  }
  if (thread_.joinable()) {
    const uint64_t one = 1;
    while (write(stop_, &one, sizeof one) < 0 && errno == EINTR) {
    }
    thread_.join();
  }
  const Library& lib = context_.lib();
  while (!readers_.empty()) Drop(readers_.begin()->first);
  if (listener_ != nullptr) lib.rdma_destroy_id(listener_);
  if (channel_ != nullptr) lib.rdma_destroy_event_channel(channel_);
  if (cq_ != nullptr) lib.ibv_destroy_cq(cq_);
  if (stop_ >= 0) close(stop_);
}

void ServiceAgent::Publish(std::string_view service, ibv_pd* pd,
                           std::span<const std::byte> private_data) {
  const MutexLock lock(mutex_);
  services_[std::string(service)] = {pd, {private_data.begin(), private_data.end()}};
}

void ServiceAgent::Withdraw(ibv_pd* pd) {
  const MutexLock lock(mutex_);
  std::erase_if(services_, [pd](const auto& each) { return each.second.pd == pd; });
  // The ids stay until events tell that the readers have disconnected, because only the agent's
  // thread may destroy ids.
  for (auto& [id, reader] : readers_) {
    if (reader.pd != pd || reader.qp == nullptr) continue;
    context_.lib().ibv_destroy_qp(reader.qp);
    reader = {};
    context_.lib().rdma_disconnect(id);
  }
}

void ServiceAgent::Run() {
  for (;;) {
    pollfd fds[] = {{stop_, POLLIN, 0}, {channel_->fd, POLLIN, 0}};
    if (poll(fds, 2, -1) < 0 && errno != EINTR) return;
    if (fds[0].revents != 0) return;
    rdma_cm_event* event = nullptr;
    while (context_.lib().rdma_get_cm_event(channel_, &event) == 0) {
      const rdma_cm_event copy = *event;
      // Handle may destroy the id, which is allowed only after its events are acknowledged. The
      // acknowledgement frees the private data, so Handle gets a copy.
      std::array<std::byte, UINT8_MAX> data{};
      static_assert(sizeof copy.param.conn.private_data_len == 1);
      if (copy.event == RDMA_CM_EVENT_CONNECT_REQUEST && copy.param.conn.private_data != nullptr) {
        const auto* first = static_cast<const std::byte*>(copy.param.conn.private_data);
        std::copy_n(first, copy.param.conn.private_data_len, data.begin());
      }
      context_.lib().rdma_ack_cm_event(event);
      rdma_cm_event own = copy;
      own.param.conn.private_data = data.data();
      Handle(own);
    }
  }
}

void ServiceAgent::Handle(const rdma_cm_event& event) {
  const MutexLock lock(mutex_);
  switch (event.event) {
    case RDMA_CM_EVENT_CONNECT_REQUEST: {
      const rdma_conn_param& asked = event.param.conn;
      const auto service = ServiceRequest::Parse(asked.private_data, asked.private_data_len);
      bool accepted = false;
      // If memory runs out, the reader is refused, too.
      static_cast<void>(RanOutOfMemory([&] {
        mutex_.known_held();
        accepted = service && Accept(event.id, asked, *service).ok();
      }));
      if (accepted) return;
      context_.lib().rdma_reject(event.id, nullptr, 0);
      if (readers_.contains(event.id)) {
        Drop(event.id);
      } else {
        context_.lib().rdma_destroy_id(event.id);
      }
      return;
    }
    case RDMA_CM_EVENT_DISCONNECTED:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_REJECTED:
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      if (event.id != listener_) Drop(event.id);
      return;
    default:
      return;
  }
}

Status ServiceAgent::Accept(rdma_cm_id* id, const rdma_conn_param& asked,
                            std::string_view service) {
  const auto found = services_.find(service);
  if (found == services_.end()) return NotFound("no such service");
  if (readers_.size() >= kMaxReaders) return NoSpace("too many readers");
  const Library& lib = context_.lib();
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq_;
  init.qp_type = IBV_QPT_RC;
  init.cap = {1, 1, 1, 1, 0};
  Reader& reader = readers_[id];  // has the queue pair, whatever fails behind it
  reader.pd = found->second.pd;
  reader.qp = lib.ibv_create_qp(found->second.pd, &init);
  if (reader.qp == nullptr) return VerbsError(errno, "a queue pair for a reader");
  ibv_qp* const qp = reader.qp;
  for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
    HL_RETURN_IF_ERROR(AdvanceQp(lib, id, qp, state, IBV_ACCESS_REMOTE_READ));
  }
  rdma_conn_param answer{};
  const std::vector<std::byte> data = MakeAnswer(found->second.private_data);
  answer.private_data = data.data();
  answer.private_data_len = static_cast<uint8_t>(data.size());
  answer.responder_resources = asked.initiator_depth;
  answer.initiator_depth = asked.responder_resources;
  answer.rnr_retry_count = 7;
  answer.qp_num = qp->qp_num;
  if (lib.rdma_accept(id, &answer) != 0) return FromErrno(errno, "rdma_accept");
  return {};
}

void ServiceAgent::Drop(rdma_cm_id* id) {
  const auto found = readers_.find(id);
  if (found == readers_.end()) return;
  if (found->second.qp != nullptr) context_.lib().ibv_destroy_qp(found->second.qp);
  readers_.erase(found);
  context_.lib().rdma_destroy_id(id);
}

}  // namespace hyperloop::verbs
