// SelfCheck: looks again and again whether this host could take the group (ctl/takeover_check.h),
// and what its files say, on a thread of its own: a disk that hangs holds up nothing else.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "agent/boot_clock.h"
#include "agent/side_thread.h"
#include "ctl/takeover_check.h"

namespace hyperloop::agent {

struct SelfChecked {
  BootClock::time_point when{};
  std::vector<std::string> lacks;  // as TakeoverLacks says them
  ctl::FileDigests files;
  std::string files_error;  // why there are no digests; empty: there are, or no files are used
};

class SelfCheck {
 public:
  // `folder` and `group`: of this host's files; an empty group: none are used.
  SelfCheck(ctl::TakeoverPlace place, std::string folder, std::string group,
            std::chrono::milliseconds interval = std::chrono::seconds(30));
  ~SelfCheck();
  SelfCheck(const SelfCheck&) = delete;
  SelfCheck& operator=(const SelfCheck&) = delete;

  // From the next look on.
  void SetRegionSize(uint64_t size);
  // What was found last; null: nothing yet.
  std::shared_ptr<const SelfChecked> found() const;

 private:
  struct Work;
  const std::shared_ptr<Work> work_;
  SideThread thread_;
};

}  // namespace hyperloop::agent
