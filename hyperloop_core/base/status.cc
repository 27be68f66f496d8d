#include "hyperloop/core/status.h"

#include <cerrno>
#include <cstring>

namespace hyperloop {

std::string_view CodeName(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kInvalidArgument:
      return "invalid argument";
    case Code::kNotFound:
      return "not found";
    case Code::kAlreadyExists:
      return "already exists";
    case Code::kPermissionDenied:
      return "permission denied";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kTimedOut:
      return "timed out";
    case Code::kBusy:
      return "busy";
    case Code::kNoSpace:
      return "no space";
    case Code::kCorruption:
      return "corruption";
    case Code::kFenced:
      return "fenced";
    case Code::kProtection:
      return "protection error";
    case Code::kNotSupported:
      return "not supported";
    case Code::kAborted:
      return "aborted";
    case Code::kInternal:
      return "internal error";
  }
  return "unknown";
}

std::string Status::ToString() const {
  std::string text(CodeName(code_));
  if (!message_.empty()) text += ": " + message_;
  return text;
}

Status Status::WithContext(std::string_view context) const {
  if (ok()) return {};
  return {code_, std::string(context) + ": " + message_};
}

Status FromErrno(int error, std::string_view what) {
  std::string message = std::string(what) + ": " + std::strerror(error);
  switch (error) {
    case ENOENT:
      return NotFound(std::move(message));
    case EEXIST:
      return AlreadyExists(std::move(message));
    case EACCES:
    case EPERM:
      return PermissionDenied(std::move(message));
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
      return NoSpace(std::move(message));
    case EINVAL:
      return InvalidArgument(std::move(message));
    case EAGAIN:
    case EBUSY:
      return Busy(std::move(message));
    case ETIMEDOUT:
      return TimedOut(std::move(message));
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENOTCONN:
      return Unavailable(std::move(message));
    case ENOTSUP:
    case ENOSYS:
      return NotSupported(std::move(message));
    default:
      return Internal(std::move(message));
  }
}

}  // namespace hyperloop
