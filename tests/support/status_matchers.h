// Expectations of a Status or a Result. A failure shows the status as text.
//
//   ASSERT_OK(group.Wait(ticket));
//   EXPECT_THAT(Store::Open(options), StatusIs(Code::kBusy));
//   EXPECT_THAT(status, StatusIs(Code::kNoSpace, HasSubstr("extents")));
//
// All of them take RocksDB's statuses, too, and their codes or subcodes:
//
//   ASSERT_OK(db->Flush(FlushOptions()));
//   EXPECT_THAT(file->Sync(IOOptions(), nullptr), StatusIs(rocksdb::Status::kIOError));
//   EXPECT_THAT(db->Put(WriteOptions(), "a", "1"), StatusIs(rocksdb::Status::kNoSpace));
#pragma once

#include <gmock/gmock.h>

#include <ostream>
#include <string>
#include <type_traits>

#include "hyperloop/core/status.h"

#define ASSERT_OK(expression) ASSERT_THAT(expression, ::hyperloop::IsOk())
#define EXPECT_OK(expression) EXPECT_THAT(expression, ::hyperloop::IsOk())

namespace hyperloop {

inline const Status& StatusOf(const Status& status) { return status; }
template <class T>
const Status& StatusOf(const Result<T>& result) {
  return result.status();
}
// Another library's status.
template <class S>
requires requires(const S& status) {
  status.code();
  status.ToString();
}
const S& StatusOf(const S& status) { return status; }

template <class S, class C>
bool HasCode(const S& status, C code) {
  if constexpr (std::is_same_v<decltype(status.code()), C>) {
    return status.code() == code;
  } else {
    static_assert(std::is_same_v<decltype(status.subcode()), C>);
    return status.subcode() == code;
  }
}

inline std::string MessageOf(const Status& status) { return status.message(); }
template <class S>
std::string MessageOf(const S& status) {
  return status.ToString();
}

template <class C>
std::string NameOfCode(C code) {
  if constexpr (std::is_same_v<C, Code>) {
    return std::string(CodeName(code));
  } else {
    return "of code " + std::to_string(static_cast<int>(code));
  }
}

// gtest prints our statuses with these functions. It finds no such function for another library's
// statuses, so the matchers add their text to a failure (Explain).
inline void PrintTo(const Status& status, std::ostream* out) { *out << status.ToString(); }
template <class T>
void PrintTo(const Result<T>& result, std::ostream* out) {
  *out << (result.ok() ? "a value" : result.status().ToString());
}
inline void Explain(const Status&, ::testing::MatchResultListener*) {}
template <class S>
void Explain(const S& status, ::testing::MatchResultListener* out) {
  *out << status.ToString();
}

MATCHER(IsOk, negation ? "is not ok" : "is ok") {
  Explain(StatusOf(arg), result_listener);
  return arg.ok();
}

MATCHER_P(StatusIs, code, (negation ? "is not " : "is ") + NameOfCode(code)) {
  Explain(StatusOf(arg), result_listener);
  return HasCode(StatusOf(arg), code);
}
// `message`: a value or a matcher of the text behind the code; of another library's status, of its
// whole text.
MATCHER_P2(StatusIs, code, message,
           (negation ? "is not " : "is ") + NameOfCode(code) + " with a message that " +
               ::testing::DescribeMatcher<std::string>(message, false)) {
  Explain(StatusOf(arg), result_listener);
  return HasCode(StatusOf(arg), code) &&
         ::testing::ExplainMatchResult(message, MessageOf(StatusOf(arg)), result_listener);
}

// `value`: a value or a matcher of what an ok result holds.
MATCHER_P(IsOkAndHolds, value, "is ok and holds what is expected") {
  if (!arg.ok()) return false;
  return testing::ExplainMatchResult(value, *arg, result_listener);
}

}  // namespace hyperloop
