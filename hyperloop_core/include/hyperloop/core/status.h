// Status and Result: how every layer below the plugin reports an outcome.
//
// A Status is a code that callers branch on, and a message for a person: what failed, with the
// numbers, and the remedy where there is one. Outputs are set only on success. Nothing here throws.
// A status that is ignored on purpose is ignored greppably: `status.IgnoreError()`.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace hyperloop {

enum class Code {
  kOk = 0,
  kInvalidArgument,  // the caller's value is wrong: range, alignment, option text
  kNotFound,
  kAlreadyExists,
  kPermissionDenied,
  kUnavailable,   // a peer, daemon or file is out of reach now; may come back (retryable)
  kTimedOut,      // a bounded wait ended; the outcome of what was waited for is indeterminate
  kBusy,          // window full, group held by a living primary, pool in use
  kNoSpace,       // ring, data area, table, disk or memory exhausted
  kCorruption,    // bytes that fail their check: pool, record, message
  kFenced,        // a newer epoch exists; this owner must never write again
  kProtection,    // key, bounds, access right or protection domain violated
  kNotSupported,  // the device or build lacks the capability
  kAborted,       // given up because an earlier step failed; indeterminate for writes
  kInternal,      // a bug of ours
};

std::string_view CodeName(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}
  static Status Ok() { return {}; }

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  // "kTimedOut: context: message"
  std::string ToString() const;
  // The same status with "context: " before the message. No effect on ok.
  Status WithContext(std::string_view context) const;
  void IgnoreError() const {}

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

// Convenience makers. `m` is the whole message, already formatted.
inline Status InvalidArgument(std::string m) { return {Code::kInvalidArgument, std::move(m)}; }
inline Status NotFound(std::string m) { return {Code::kNotFound, std::move(m)}; }
inline Status AlreadyExists(std::string m) { return {Code::kAlreadyExists, std::move(m)}; }
inline Status PermissionDenied(std::string m) { return {Code::kPermissionDenied, std::move(m)}; }
inline Status Unavailable(std::string m) { return {Code::kUnavailable, std::move(m)}; }
inline Status TimedOut(std::string m) { return {Code::kTimedOut, std::move(m)}; }
inline Status Busy(std::string m) { return {Code::kBusy, std::move(m)}; }
inline Status NoSpace(std::string m) { return {Code::kNoSpace, std::move(m)}; }
inline Status Corruption(std::string m) { return {Code::kCorruption, std::move(m)}; }
inline Status Fenced(std::string m) { return {Code::kFenced, std::move(m)}; }
inline Status ProtectionError(std::string m) { return {Code::kProtection, std::move(m)}; }
inline Status NotSupported(std::string m) { return {Code::kNotSupported, std::move(m)}; }
inline Status Aborted(std::string m) { return {Code::kAborted, std::move(m)}; }
inline Status Internal(std::string m) { return {Code::kInternal, std::move(m)}; }
// Code from errno (ENOSPC → kNoSpace, EACCES → kPermissionDenied, …), message "what: strerror".
Status FromErrno(int error, std::string_view what);

// A value or the Status that says why there is none. Value access requires ok().
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)
  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return *std::move(value_); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

#define HL_CONCAT_INNER(a, b) a##b
#define HL_CONCAT(a, b) HL_CONCAT_INNER(a, b)
// Returns from the enclosing function when `expr` is not ok.
#define HL_RETURN_IF_ERROR(expr)                                                   \
  do {                                                                             \
    if (::hyperloop::Status hl_status = (expr); !hl_status.ok()) return hl_status; \
  } while (0)
// HL_ASSIGN_OR_RETURN(auto x, MakeX()): declares or assigns x, or returns MakeX()'s status.
#define HL_ASSIGN_OR_RETURN(lhs, expr) \
  HL_ASSIGN_OR_RETURN_IMPL(HL_CONCAT(hl_result_, __LINE__), lhs, expr)
#define HL_ASSIGN_OR_RETURN_IMPL(result, lhs, expr) \
  auto result = (expr);                             \
  if (!result.ok()) return result.status();         \
  lhs = std::move(result).value()

}  // namespace hyperloop
