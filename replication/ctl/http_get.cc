#include "ctl/http_get.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <optional>

#include "control/endpoint.h"
#include "hyperloop/core/text.h"

namespace hyperloop::ctl {
namespace {

constexpr size_t kMostHeaderBytes = 16 << 10;

Status SendAll(int fd, std::string_view text, control::Deadline deadline) {
  while (!text.empty()) {
    const ssize_t sent = send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      text.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      HL_RETURN_IF_ERROR(control::WaitReady(fd, POLLOUT, deadline));
    } else if (errno != EINTR) {
      return Unavailable("the connection is closed");
    }
  }
  return {};
}

// Until the other end closes.
Result<std::string> ReceiveAll(int fd, size_t most, control::Deadline deadline) {
  std::string all;
  std::array<char, 16384> piece;
  while (true) {
    const ssize_t got = recv(fd, piece.data(), piece.size(), 0);
    if (got == 0) return all;
    if (got > 0) all.append(piece.data(), static_cast<size_t>(got));
    if (all.size() > most) return Corruption(Text("the page has more than ", most, " bytes"));
    if (got > 0 || errno == EINTR) continue;
    if (errno != EAGAIN) return Unavailable("the connection was cut");
    HL_RETURN_IF_ERROR(control::WaitReady(fd, POLLIN, deadline));
  }
}

std::optional<size_t> Number(std::string_view text) {
  size_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return {};
  return number;
}

// The value of "Content-Length", in any case of letters; nothing: there is none, or no number.
std::optional<size_t> LengthIn(std::string_view header) {
  constexpr std::string_view kName = "\r\ncontent-length:";
  const auto found =
      std::search(header.begin(), header.end(), kName.begin(), kName.end(),
                  [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; });
  if (found == header.end()) return {};
  std::string_view value = header.substr(static_cast<size_t>(found - header.begin()));
  value.remove_prefix(kName.size());
  value = value.substr(0, value.find("\r\n"));
  while (value.starts_with(' ')) value.remove_prefix(1);
  return Number(value);
}

}  // namespace

Result<HttpPage> ParseHttpAnswer(std::string_view answer) {
  constexpr std::string_view kVersion = "HTTP/1.";  // behind it one digit, a blank, the status
  constexpr size_t kStatus = kVersion.size() + 2;
  const size_t end = answer.find("\r\n\r\n");
  if (!answer.starts_with(kVersion) || end == std::string_view::npos || end > kMostHeaderBytes)
    return Corruption("what answers does not speak HTTP");
  const std::optional<size_t> status = Number(answer.substr(kStatus, 3));
  const std::optional<size_t> length = LengthIn(answer.substr(0, end + 2));
  const std::string_view body = answer.substr(end + 4);
  if (!status.has_value() || *status < 100 || !length.has_value())
    return Corruption("what answers does not speak HTTP as an agent does");
  if (body.size() != *length)
    return Corruption(Text("the page was cut: ", body.size(), " of ", *length, " bytes came"));
  return HttpPage{static_cast<int>(*status), std::string(body)};
}

Result<HttpPage> HttpGet(const std::string& address, const std::string& path,
                         std::chrono::milliseconds patience, size_t most) {
  HL_ASSIGN_OR_RETURN(const control::Endpoint endpoint, control::ParseEndpoint(address));
  const control::Deadline deadline = control::Clock::now() + patience;
  HL_ASSIGN_OR_RETURN(const UniqueFd fd, control::ConnectTo(endpoint, deadline));
  const std::string request = Text("GET ", path, " HTTP/1.1\r\nHost: ", endpoint.ToString(),
                                   "\r\nConnection: close\r\n\r\n");
  HL_RETURN_IF_ERROR(SendAll(fd.get(), request, deadline).WithContext(address));
  Result<std::string> answer = ReceiveAll(fd.get(), most + kMostHeaderBytes, deadline);
  if (!answer.ok()) return answer.status().WithContext(address);
  Result<HttpPage> page = ParseHttpAnswer(*answer);
  return page.ok() ? std::move(page) : page.status().WithContext(address);
}

}  // namespace hyperloop::ctl
