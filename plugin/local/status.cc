#include "status.h"

#include <string>

namespace hyperloop::plugin {

using rocksdb::IOStatus;

IOStatus ToIOStatus(const Status& status, std::string_view context) {
  if (status.ok()) return IOStatus::OK();
  const std::string text = std::string(context) + ": " + status.ToString();
  switch (status.code()) {
    case Code::kFenced:
      return IOStatus::IOFenced(text);
    case Code::kNoSpace:
      return IOStatus::NoSpace(text);
    case Code::kInvalidArgument:
      return IOStatus::InvalidArgument(text);
    case Code::kBusy:
      return IOStatus::Busy(text);
    case Code::kNotFound:
      return IOStatus::NotFound(text);
    case Code::kNotSupported:
      return IOStatus::NotSupported(text);
    case Code::kCorruption:
      return IOStatus::Corruption(text);
    case Code::kUnavailable:
    case Code::kTimedOut:
    case Code::kAborted: {
      IOStatus retryable = IOStatus::IOError(text);
      retryable.SetRetryable(true);
      return retryable;
    }
    default:
      return IOStatus::IOError(text);
  }
}

Status FromIOStatus(const IOStatus& status, std::string_view context) {
  if (status.ok()) return Status::Ok();
  const std::string text = std::string(context) + ": " + status.ToString();
  if (status.IsNotFound() || status.IsPathNotFound()) return NotFound(text);
  if (status.IsNoSpace()) return NoSpace(text);
  if (status.IsCorruption()) return Corruption(text);
  if (status.IsNotSupported()) return NotSupported(text);
  return Internal(text);
}

}  // namespace hyperloop::plugin
