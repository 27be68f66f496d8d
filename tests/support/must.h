// Must is for fixtures, benchmarks and fuzz targets, which cannot go on after a failure. Tests
// themselves use support/status_matchers.h.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <source_location>
#include <utility>

#include "hyperloop/core/status.h"

namespace hyperloop {

// An error ends the program; its place and its text go to stderr.
inline void Must(const Status& status,
                 const std::source_location& at = std::source_location::current()) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s:%u: %s\n", at.file_name(), at.line(), status.ToString().c_str());
  std::abort();
}
template <class T>
T Must(Result<T> result, const std::source_location& at = std::source_location::current()) {
  if (!result.ok()) Must(result.status(), at);
  return std::move(result).value();
}

}  // namespace hyperloop
