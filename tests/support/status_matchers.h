// Expectations of a Status or a Result. A failure shows the status as text.
//
//   ASSERT_OK(group.Wait(ticket));
//   EXPECT_THAT(Store::Open(options), StatusIs(Code::kBusy));
//   EXPECT_THAT(status, StatusIs(Code::kNoSpace, HasSubstr("extents")));
//
// ASSERT_OK and EXPECT_OK take RocksDB's statuses, too.
#pragma once

#include <gmock/gmock.h>

#include <ostream>
#include <string>

#include "hyperloop/core/status.h"

#define ASSERT_OK(expression) ASSERT_THAT(expression, ::hyperloop::IsOk())
#define EXPECT_OK(expression) EXPECT_THAT(expression, ::hyperloop::IsOk())

namespace hyperloop {

inline const Status& StatusOf(const Status& status) { return status; }
template <class T>
const Status& StatusOf(const Result<T>& result) {
  return result.status();
}

// gtest prints statuses with these functions.
inline void PrintTo(const Status& status, std::ostream* out) { *out << status.ToString(); }
template <class T>
void PrintTo(const Result<T>& result, std::ostream* out) {
  *out << (result.ok() ? "a value" : result.status().ToString());
}

MATCHER(IsOk, negation ? "is not ok" : "is ok") {
  if constexpr (!requires { StatusOf(arg); }) *result_listener << arg.ToString();
  return arg.ok();
}

MATCHER_P(StatusIs, code, (negation ? "is not " : "is ") + std::string(CodeName(code))) {
  return StatusOf(arg).code() == code;
}
// `message`: a value or a matcher of the text behind the code.
MATCHER_P2(StatusIs, code, message,
           (negation ? "is not " : "is ") + std::string(CodeName(code)) + " with a message that " +
               testing::DescribeMatcher<std::string>(message, false)) {
  return StatusOf(arg).code() == code &&
         testing::ExplainMatchResult(message, StatusOf(arg).message(), result_listener);
}

// `value`: a value or a matcher of what an ok result holds.
MATCHER_P(IsOkAndHolds, value, "is ok and holds what is expected") {
  if (!arg.ok()) return false;
  return testing::ExplainMatchResult(value, *arg, result_listener);
}

}  // namespace hyperloop
