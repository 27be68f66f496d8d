// Must is for fixtures, benchmarks and fuzz targets, which cannot go on after a failure. Tests
// themselves use support/status_matchers.h.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "hyperloop/core/status.h"

namespace hyperloop {

// An error ends the program; its place and its text go to stderr.
inline void Must(const Status& status, const char* file = __builtin_FILE(),
                 int line = __builtin_LINE()) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s:%d: %s\n", file, line, status.ToString().c_str());
  std::abort();
}
template <class T>
T Must(Result<T> result, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (!result.ok()) Must(result.status(), file, line);
  return std::move(result).value();
}

}  // namespace hyperloop
