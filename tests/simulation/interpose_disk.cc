#include <errno.h>
#include <sys/mman.h>

#include <utility>

#include "simulation/disk.h"
#include "simulation/interpose.h"

namespace hyperloop::simulation {
namespace {

Sync& TheSync() {
  static Sync sync;
  return sync;
}

}  // namespace

void SetSync(Sync sync) { TheSync() = std::move(sync); }

}  // namespace hyperloop::simulation

using namespace hyperloop::simulation;  // NOLINT(google-build-using-namespace)

#pragma GCC visibility push(default)
extern "C" {

int msync(void* data, size_t size, int flags) {
  if (!Scheduler::Simulates() || !TheSync()) return HL_REAL(msync)(data, size, flags);
  Scheduler::Get().Point();
  const int error = TheSync()(data, size);
  if (error == 0) return 0;
  errno = error;
  return -1;
}

}  // extern "C"
#pragma GCC visibility pop
