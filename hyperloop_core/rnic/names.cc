#include "hyperloop/core/rnic.h"

namespace hyperloop::rnic {

std::string_view WcStatusName(WcStatus status) {
  switch (status) {
    case WcStatus::kSuccess:
      return "success";
    case WcStatus::kLocalLength:
      return "local length error";
    case WcStatus::kLocalQpOperation:
      return "local queue pair operation error";
    case WcStatus::kLocalProtection:
      return "local protection error";
    case WcStatus::kFlushed:
      return "flushed";
    case WcStatus::kLocalAccess:
      return "local access error";
    case WcStatus::kRemoteInvalidRequest:
      return "remote invalid request";
    case WcStatus::kRemoteAccess:
      return "remote access error";
    case WcStatus::kRemoteOperation:
      return "remote operation error";
    case WcStatus::kRetryExceeded:
      return "transport retry exceeded";
    case WcStatus::kRnrRetryExceeded:
      return "receiver-not-ready retry exceeded";
    case WcStatus::kRemoteAborted:
      return "remote aborted";
    case WcStatus::kOther:
      return "other error";
  }
  return "unknown";
}

}  // namespace hyperloop::rnic
