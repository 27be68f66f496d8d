// The asking side, and what both sides share.
#include "verbs/connection.h"

#include <fcntl.h>
#include <netdb.h>

#include <cerrno>
#include <cstring>

#include "verbs/service_request.h"
#include "verbs/wait_readable.h"

namespace hyperloop::verbs {
namespace {

constexpr std::chrono::seconds kPatience{5};
constexpr int kResolveMs = 2000;
// Reasons of a rejection, as InfiniBand numbers them.
constexpr int kNobodyListens = 8;
constexpr int kRefusedByConsumer = 28;

struct AddressList {
  ~AddressList() {
    if (first != nullptr) freeaddrinfo(first);
  }
  addrinfo* first = nullptr;
};

Status Resolve(std::string_view host, AddressList* out) {
  const size_t colon = host.rfind(':');
  if (colon == std::string_view::npos || colon == 0 || colon + 1 == host.size()) {
    return InvalidArgument("\"" + std::string(host) +
                           "\" is not the ADDRESS:PORT of a publishing RDMA device");
  }
  std::string address(host.substr(0, colon));
  if (address.size() > 2 && address.front() == '[' && address.back() == ']') {
    address = address.substr(1, address.size() - 2);
  }
  const std::string port(host.substr(colon + 1));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  const int error = getaddrinfo(address.c_str(), port.c_str(), &hints, &out->first);
  if (error == 0) return {};
  return NotFound("\"" + std::string(host) + "\": " + gai_strerror(error));
}

}  // namespace

Result<std::unique_ptr<CmConnection>> CmConnection::Ask(std::shared_ptr<VerbsContext> context,
                                                        std::string_view host,
                                                        std::string_view service,
                                                        const rdma_conn_param& parameters) {
  AddressList addresses;
  HL_RETURN_IF_ERROR(Resolve(host, &addresses));
  const std::string where = "service \"" + std::string(service) + "\" at " + std::string(host);
  const Library& lib = context->lib();
  std::unique_ptr<CmConnection> made(new CmConnection(context));
  made->deadline_ = std::chrono::steady_clock::now() + kPatience;
  made->channel_ = lib.rdma_create_event_channel();
  if (made->channel_ == nullptr) return OpenChannelError(errno);
  const int fd = made->channel_->fd;
  if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0) return FromErrno(errno, where);
  if (lib.rdma_create_id(made->channel_, &made->id_, nullptr, RDMA_PS_TCP) != 0) {
    return VerbsError(errno, where);
  }
  if (lib.rdma_resolve_addr(made->id_, nullptr, addresses.first->ai_addr, kResolveMs) != 0) {
    return Unavailable(where + ": " + std::strerror(errno));
  }
  HL_RETURN_IF_ERROR(made->Await(RDMA_CM_EVENT_ADDR_RESOLVED, where));
  const std::string device = made->id_->verbs->device->name;
  if (device != context->port().device || made->id_->port_num != context->port().number) {
    return Unavailable(where + " is reached through " + device + ":" +
                       std::to_string(made->id_->port_num) + ", not through " +
                       context->port().device + ":" + std::to_string(context->port().number) +
                       ", which is open; open that device");
  }
  if (lib.rdma_resolve_route(made->id_, kResolveMs) != 0) {
    return Unavailable(where + ": " + std::strerror(errno));
  }
  HL_RETURN_IF_ERROR(made->Await(RDMA_CM_EVENT_ROUTE_RESOLVED, where));
  const ServiceRequest request(service);
  rdma_conn_param with_name = parameters;
  with_name.private_data = request.data();
  with_name.private_data_len = request.size();
  if (lib.rdma_connect(made->id_, &with_name) != 0) {
    return Unavailable(where + ": " + std::strerror(errno));
  }
  HL_RETURN_IF_ERROR(made->Await(RDMA_CM_EVENT_CONNECT_RESPONSE, where));
  return made;
}

CmConnection::~CmConnection() {
  const Library& lib = context_->lib();
  if (id_ != nullptr) {
    lib.rdma_disconnect(id_);
    lib.rdma_destroy_id(id_);
  }
  if (channel_ != nullptr) lib.rdma_destroy_event_channel(channel_);
}

Result<CmConnection::Event> CmConnection::Next(const std::string& what) {
  rdma_cm_event* event = nullptr;
  do {
    HL_ASSIGN_OR_RETURN(const bool answered, WaitReadable(channel_->fd, deadline_));
    if (!answered) {
      return Unavailable(
          what + " did not answer within " + std::to_string(kPatience.count()) +
          " s; over provider verbs the publishing process must run (not be stopped)");
    }
    if (context_->lib().rdma_get_cm_event(channel_, &event) == 0) break;
    // librdmacm keeps some events to itself, so there may be none for us.
  } while (errno == EAGAIN || errno == EINTR);
  if (event == nullptr) return FromErrno(errno, what);
  const Event got{event->event, event->status};
  if (got.type == RDMA_CM_EVENT_CONNECT_RESPONSE) {
    private_data_ = ParseAnswer(event->param.conn.private_data, event->param.conn.private_data_len);
  }
  context_->lib().rdma_ack_cm_event(event);
  return got;
}

Status CmConnection::Await(rdma_cm_event_type expected, const std::string& what) {
  HL_ASSIGN_OR_RETURN(const Event event, Next(what));
  if (event.type == expected) return {};
  if (event.type == RDMA_CM_EVENT_REJECTED) {
    if (event.status == kRefusedByConsumer) return NotFound(what + ": it is not published there");
    if (event.status == kNobodyListens) return NotFound(what + ": nobody publishes there");
    return Unavailable(what + ": rejected, reason " + std::to_string(event.status));
  }
  return Unavailable(what + ": connection event " + std::to_string(event.type) + ", " +
                     std::strerror(event.status < 0 ? -event.status : event.status));
}

Status CmConnection::Advance(ibv_qp* qp, ibv_qp_state state) {
  return AdvanceQp(context_->lib(), id_, qp, state, 0);
}

Status CmConnection::Establish() {
  if (context_->lib().rdma_establish(id_) == 0) return {};
  return Unavailable(std::string("rdma_establish: ") + std::strerror(errno));
}

Status AdvanceQp(const Library& lib, rdma_cm_id* id, ibv_qp* qp, ibv_qp_state state,
                 unsigned access) {
  ibv_qp_attr attr{};
  attr.qp_state = state;
  int mask = 0;
  if (lib.rdma_init_qp_attr(id, &attr, &mask) != 0) return FromErrno(errno, "rdma_init_qp_attr");
  if (state == IBV_QPS_INIT) attr.qp_access_flags = access;
  const int error = lib.ibv_modify_qp(qp, &attr, mask);
  return error == 0 ? Status::Ok() : FromErrno(error, "connecting through librdmacm");
}

Status OpenChannelError(int error) {
  if (error == ENOENT || error == ENODEV) {
    return NotSupported(
        "librdmacm finds no /dev/infiniband/rdma_cm: load the kernel module rdma_ucm");
  }
  return FromErrno(error, "librdmacm: /dev/infiniband/rdma_cm");
}

}  // namespace hyperloop::verbs
