// DaemonMetrics: the page of metrics of hyperloop-rnicd.
//
// It is made anew at most once in kInterval, however often it is asked for. The engine's thread
// copies the counters of one host at a time, between two turns, and does nothing else for it.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "hyperloop/core/mutex.h"
#include "hyperloop/metrics/page.h"
#include "softrnic/daemon/link_server.h"
#include "softrnic/engine/engine.h"
#include "softrnic/loop/engine_loop.h"

namespace hyperloop::softrnic {

class DaemonMetrics {
 public:
  static constexpr std::chrono::seconds kInterval{1};

  // All outlive this object; `links` may be null. `version` is the program's.
  DaemonMetrics(const Engine& engine, EngineLoop& loop, const LinkServer* links,
                std::string version);

  // Any thread but the loop's may call it, while the loop runs. Throws std::bad_alloc.
  std::shared_ptr<const std::string> Get();

 private:
  std::string Make();
  void AddHosts(metrics::Page* page);
  void AddLinks(metrics::Page* page) const;

  const Engine& engine_;
  EngineLoop& loop_;
  const LinkServer* const links_;
  const std::string version_;
  const double started_;

  Mutex mutex_;  // held while a page is made
  std::shared_ptr<const std::string> page_ HL_GUARDED_BY(mutex_);
  std::chrono::steady_clock::time_point made_ HL_GUARDED_BY(mutex_){};
};

}  // namespace hyperloop::softrnic
