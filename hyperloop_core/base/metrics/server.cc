#include "hyperloop/metrics/server.h"

#include <arpa/inet.h>
#include <civetweb.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstring>
#include <exception>
#include <string_view>
#include <thread>
#include <utility>

#include "hyperloop/core/text.h"
#include "hyperloop/core/unique_fd.h"

namespace hyperloop::metrics {
namespace {

// Of N connections that drip their headers, and come again when they are given up, N / kThreads are
// ahead of whoever asks, for `patience` or a little more each. So 400 hold up nobody for 10 s,
// after which Prometheus gives up.
constexpr const char* kQueued = "64";
constexpr const char* kBacklog = "1024";
constexpr const char* kMostHeader = "4096";
constexpr int kLowest = 19;  // nice
constexpr std::chrono::milliseconds kKnockPause{5};
constexpr std::string_view kPath = "/metrics";
constexpr const char* kText = Answer::kText;

struct Address {
  std::string text;  // as civetweb takes it
  bool loopback = false;
  uint16_t port = 0;
  in_addr v4{};
  in6_addr v6{};
  bool is_v6 = false;
};

// Makes a connection to our own port, and closes it.
void Knock(const Address& address) {
  const UniqueFd fd(
      socket(address.is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (address.is_v6) {
    sockaddr_in6 to{};
    to.sin6_family = AF_INET6;
    to.sin6_port = htons(address.port);
    to.sin6_addr = address.v6;
    static_cast<void>(connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to));
  } else {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(address.port);
    to.sin_addr = address.v4;
    static_cast<void>(connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to));
  }
}

Result<Address> Parse(const ServerOptions& options) {
  const std::string& text = options.address;
  const auto bad = [&] {
    return InvalidArgument(Text(options.address_option, " \"", text,
                                "\": expected a numeric ADDRESS:PORT or [IPV6]:PORT"));
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return bad();
  const std::string_view port = std::string_view(text).substr(colon + 1);
  Address address;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (port.empty() || error != std::errc() || end != port.data() + port.size()) return bad();
  std::string host = text.substr(0, colon);
  if (inet_pton(AF_INET, host.c_str(), &address.v4) == 1) {
    address.loopback = ntohl(address.v4.s_addr) >> 24 == IN_LOOPBACKNET;
  } else if (host.size() > 2 && host.front() == '[' && host.back() == ']' &&
             inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &address.v6) == 1) {
    address.is_v6 = true;
    address.loopback = IN6_IS_ADDR_LOOPBACK(&address.v6);
  } else {
    return bad();
  }
  address.text = Text(host, ":", address.port);
  return address;
}

class CivetServer final : public Server {
 public:
  CivetServer(MakeAnswer answer, bool lowest) : answer_(std::move(answer)), lowest_(lowest) {
    mg_init_library(0);
  }
  ~CivetServer() override {
    if (context_ != nullptr) Stop();
    mg_exit_library();
  }
  CivetServer(const CivetServer&) = delete;
  CivetServer& operator=(const CivetServer&) = delete;

  Status Listen(const Address& address, const ServerOptions& shown) {
    mg_callbacks callbacks{};
    callbacks.begin_request = OnRequest;
    callbacks.log_message = OnMessage;
    callbacks.init_thread = OnThread;
    // There is no document root, and OnRequest answers every request: civetweb's own handling of
    // files, forms and scripts is never reached.
    const std::string threads = Text(kThreads), timeout = Text(shown.patience.count());
    const std::array<const char*, 15> options = {"listening_ports",
                                                 address.text.c_str(),
                                                 "num_threads",
                                                 threads.c_str(),
                                                 "connection_queue",
                                                 kQueued,
                                                 "listen_backlog",
                                                 kBacklog,
                                                 "request_timeout_ms",
                                                 timeout.c_str(),
                                                 "max_request_size",
                                                 kMostHeader,
                                                 "enable_keep_alive",
                                                 "no",
                                                 nullptr};
    context_ = mg_start(&callbacks, this, const_cast<const char**>(options.data()));
    starting_ = false;
    if (context_ == nullptr)
      return Unavailable(Text("cannot show ", shown.shows, " at ", address.text, ": ",
                              why_.empty() ? "the server does not start" : why_));
    mg_server_port bound{};
    bound_ = address;
    if (mg_get_server_ports(context_, 1, &bound) == 1)
      bound_.port = static_cast<uint16_t>(bound.port);
    bound_.text = Text(address.text.substr(0, address.text.rfind(':')), ":", bound_.port);
    return {};
  }

  const std::string& address() const override { return bound_.text; }

 private:
  // The thread that accepts looks whether it shall end when somebody has connected, and else every
  // two seconds. So somebody connects.
  void Stop() {
    std::atomic<bool> stopped{false};
    std::thread knocking;
    try {
      knocking = std::thread([&] {
        while (!stopped) {
          Knock(bound_);
          std::this_thread::sleep_for(kKnockPause);
        }
      });
    } catch (const std::exception&) {  // no thread can be made: it takes the two seconds
    }
    mg_stop(context_);
    stopped = true;
    if (knocking.joinable()) knocking.join();
  }

  static CivetServer& Of(mg_connection* connection) {
    return *static_cast<CivetServer*>(mg_get_request_info(connection)->user_data);
  }

  // No exception may leave it, because its callers are written in C.
  static int OnRequest(mg_connection* connection) noexcept {
    const mg_request_info& request = *mg_get_request_info(connection);
    // Else civetweb reads the body that the request announced, however long that takes.
    mg_disable_connection_keep_alive(connection);
    if (std::strcmp(request.request_method, "GET") != 0)
      return Send(connection, 405, "Method Not Allowed", kText, "only GET is answered\n");
    const std::string_view path = request.local_uri == nullptr ? "" : request.local_uri;
    try {
      const metrics::Answer answer = Of(connection).answer_(path);
      if (answer.body != nullptr)
        return Send(connection, answer.status, ReasonOf(answer.status), answer.type, *answer.body);
    } catch (const std::exception&) {  // memory ran out
    }
    return Send(connection, 503, ReasonOf(503), kText, "there is nothing to show now\n");
  }

  static const char* ReasonOf(int status) {
    return status == 200 ? "OK" : status == 404 ? "Not Found" : "Service Unavailable";
  }

  static int Send(mg_connection* connection, int status, const char* reason, const char* type,
                  std::string_view body) noexcept {
    mg_printf(connection,
              "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
              "Cache-Control: no-store\r\nConnection: close\r\n\r\n",
              status, reason, type, body.size());
    mg_write(connection, body.data(), body.size());
    return status;
  }

  // Only the thread that starts the server is told anything: strangers must not write the log.
  static int OnMessage(const mg_connection* connection, const char* message) noexcept {
    const mg_context* const context = mg_get_context(connection);
    if (context == nullptr || mg_get_user_data(context) == nullptr) return 1;
    auto& server = *static_cast<CivetServer*>(mg_get_user_data(context));
    try {
      if (server.starting_ && pthread_equal(server.starter_, pthread_self()) != 0)
        server.why_ = message;
    } catch (const std::exception&) {
    }
    return 1;
  }

  static void* OnThread(const mg_context* context, int type) noexcept {
    if (type == 0 || type == 1) {  // the thread that accepts, or one that serves
      sigset_t all;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, nullptr);
      const auto* const server = static_cast<const CivetServer*>(mg_get_user_data(context));
      const auto thread = static_cast<id_t>(syscall(SYS_gettid));
      // Where a filter of system calls forbids it, the priority stays.
      if (server->lowest_) static_cast<void>(setpriority(PRIO_PROCESS, thread, kLowest));
    }
    return nullptr;
  }

  const MakeAnswer answer_;
  const bool lowest_;
  const pthread_t starter_ = pthread_self();
  bool starting_ = true;
  std::string why_;  // civetweb's last message while it started
  Address bound_;    // with the real port
  mg_context* context_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<Server>> Server::Start(const ServerOptions& options, MakePage page,
                                              Log& log) {
  const auto answer = [page = std::move(page)](std::string_view path) {
    static const auto kElsewhere =
        std::make_shared<const std::string>("the metrics are at /metrics\n");
    return path == kPath ? Answer{200, Answer::kPage, page()}
                         : Answer{404, Answer::kText, kElsewhere};
  };
  return Start(options, MakeAnswer(answer), log);
}

Result<std::unique_ptr<Server>> Server::Start(const ServerOptions& options, MakeAnswer answer,
                                              Log& log) {
  HL_ASSIGN_OR_RETURN(const Address address, Parse(options));
  if (!address.loopback && !options.open) {
    return InvalidArgument(
        Text(options.address_option, " ", options.address,
             " is not loopback: whoever reaches it reads the names of hosts and groups, and how "
             "they are, without proving who he is. Give a loopback address, or ",
             options.open_option, " if that is meant"));
  }
  auto server = std::make_unique<CivetServer>(std::move(answer), options.lowest_priority);
  HL_RETURN_IF_ERROR(server->Listen(address, options));
  log.Write(address.loopback ? LogLevel::kInfo : LogLevel::kWarn,
            Text(options.shows, " at http://", server->address(), options.first_path,
                 address.loopback ? "" : ", for everybody who reaches that address"));
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace hyperloop::metrics
