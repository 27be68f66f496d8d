// LogLines: a Log that keeps what is written. Thread safe.
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "hyperloop/core/log.h"

namespace hyperloop {

class LogLines final : public Log {
 public:
  void Write(LogLevel, std::string_view text) override {
    const std::lock_guard lock(mutex_);
    lines_.emplace_back(text);
  }
  std::vector<std::string> lines() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  bool Has(std::string_view text) const {
    const std::lock_guard lock(mutex_);
    for (const std::string& line : lines_) {
      if (line.find(text) != std::string::npos) return true;
    }
    return false;
  }
  void Clear() {
    const std::lock_guard lock(mutex_);
    lines_.clear();
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

}  // namespace hyperloop
