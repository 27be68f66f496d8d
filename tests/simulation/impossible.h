// What the simulation itself needs and cannot be refused.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "hyperloop/core/status.h"

namespace hyperloop::simulation {

inline void MustBeOk(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "the simulation itself failed: %s\n", status.ToString().c_str());
  std::abort();
}

}  // namespace hyperloop::simulation
