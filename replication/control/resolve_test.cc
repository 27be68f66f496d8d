#include "control/resolve.h"

#include <dlfcn.h>
#include <netdb.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "control/endpoint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace {

// The system's resolver, as far as this test needs one: a name that ends with ".test" is 127.0.0.1,
// and the answer waits as long as the resolver is held up.
class Resolver {
 public:
  void HoldUp(bool on) {
    const std::lock_guard lock(mutex_);
    held_up_ = on;
    changed_.notify_all();
  }
  void Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !held_up_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_up_ = false;
};

Resolver& TheResolver() {
  static auto* const resolver = new Resolver;
  return *resolver;
}

}  // namespace

// In place of the C library's, for this whole program.
extern "C" int getaddrinfo(const char* host, const char* service, const addrinfo* hints,
                           addrinfo** list) {
  using Function = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "getaddrinfo"));
  const bool numeric = hints != nullptr && (hints->ai_flags & AI_NUMERICHOST) != 0;
  if (numeric) return real(host, service, hints, list);
  TheResolver().Wait();
  const bool named = host != nullptr && std::string_view(host).ends_with(".test");
  return real(named ? "127.0.0.1" : host, service, hints, list);
}

namespace hyperloop::control {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class ResolveTest : public testing::Test {
 protected:
  void SetUp() override {
    Endpoint bound;
    auto listener = ListenOn({"127.0.0.1", 0}, &bound);
    ASSERT_OK(listener);
    listener_ = std::move(*listener);
    port_ = bound.port;
  }
  void TearDown() override { TheResolver().HoldUp(false); }
  // Of a host that was never looked up.
  Endpoint Stranger() const {
    static int count = 0;
    return {"stranger" + std::to_string(++count) + ".test", port_};
  }

  UniqueFd listener_;
  uint16_t port_ = 0;
};

TEST_F(ResolveTest, AResolverThatDoesNotAnswerIsNotWaitedFor) {
  TheResolver().HoldUp(true);
  const Endpoint stranger = Stranger();
  Status refused = ConnectTo(stranger, Clock::now() + 5ms).status();
  ASSERT_THAT(refused, StatusIs(Code::kTimedOut, HasSubstr("resolver")));
  for (int i = 0; i < kMostLookups && refused.code() == Code::kTimedOut; ++i)
    refused = ConnectTo(stranger, Clock::now() + 5ms).status();
  EXPECT_THAT(refused, StatusIs(Code::kUnavailable)) << "threads without end wait for it";
  const Deadline until = Clock::now() + 20s;
  const auto connect = [&] { return ConnectTo(stranger, until); };
  TheResolver().HoldUp(false);
  while (!connect().ok() && Clock::now() < until) std::this_thread::yield();
  EXPECT_OK(connect()) << "the threads have ended";
}

TEST_F(ResolveTest, WhatIsKnownServesUntilTheResolverAnswersAgain) {
  const Endpoint known = Stranger();
  ASSERT_OK(ConnectTo(known, Clock::now() + 20s));
  TheResolver().HoldUp(true);
  EXPECT_OK(ConnectTo(known, Clock::now() + 2s));
}

TEST_F(ResolveTest, NumbersNeedNoResolver) {
  TheResolver().HoldUp(true);
  EXPECT_OK(ConnectTo({"127.0.0.1", port_}, Clock::now() + 2s));
}

}  // namespace
}  // namespace hyperloop::control
