// Which processors the RNIC daemons of this machine keep to.
#pragma once

#include <sys/types.h>

#include <vector>

namespace hyperloop {

struct PinnedDaemon {
  pid_t pid = 0;
  int cpu = 0;  // the only one on which its data thread may run
};

// Every hyperloop-rnicd that is bound to one processor, of any user, by process number. Only those
// that /proc shows to this process.
std::vector<PinnedDaemon> PinnedDaemons();

}  // namespace hyperloop
