#include "conformance/provider.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "hyperloop/core/log.h"
#include "hyperloop/core/softrnic.h"
#include "hyperloop/core/verbs.h"
#include "softrnic/daemon/client_server.h"
#include "softrnic/embedded/embedded.h"
#include "support/child_process.h"
#include "support/status_matchers.h"

namespace hyperloop::test {
namespace {

class SteppedProvider final : public Provider {
 public:
  Result<std::unique_ptr<rnic::Device>> Open(const std::string& host) override {
    return rnic_.OpenDevice(host);
  }
  void Drive() override {
    while (rnic_.engine().Step()) {
    }
  }
  bool stepped() const override { return true; }

 private:
  softrnic::EmbeddedRnic rnic_{softrnic::EngineOptions{}};
};

class ThreadProvider final : public Provider {
 public:
  ThreadProvider() { EXPECT_OK(rnic_.StartThread({.spin_us = 0})); }
  Result<std::unique_ptr<rnic::Device>> Open(const std::string& host) override {
    return rnic_.OpenDevice(host);
  }
  void Drive() override { std::this_thread::yield(); }

 private:
  softrnic::EmbeddedRnic rnic_{softrnic::EngineOptions{}};
};

// A directory for a socket, removed with the object.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::string path = std::filesystem::temp_directory_path() / "hyperloop-test-XXXXXX";
    EXPECT_NE(mkdtemp(path.data()), nullptr);
    path_ = path;
  }
  ~ScratchDirectory() { std::filesystem::remove_all(path_); }
  std::string socket() const { return path_ + "/rnicd.sock"; }

 private:
  std::string path_;
};

class InProcessDaemonProvider final : public Provider {
 public:
  InProcessDaemonProvider() {
    auto loop = softrnic::EngineLoop::Create(&engine_, {.spin_us = 0});
    EXPECT_OK(loop);
    loop_ = std::move(*loop);
    auto server = softrnic::ClientServer::Listen(folder_.socket(), &engine_, loop_.get(),
                                                 StderrLog("rnicd", LogLevel::kWarn));
    EXPECT_OK(server);
    server_ = std::move(*server);
    engine_thread_ = std::thread([this] { loop_->Run(); });
    control_thread_ = std::thread([this] { server_->Run(); });
  }
  ~InProcessDaemonProvider() override {
    server_->Stop();
    control_thread_.join();
    loop_->Stop();
    engine_thread_.join();
  }
  Result<std::unique_ptr<rnic::Device>> Open(const std::string& host) override {
    return softrnic::OpenDaemonDevice({folder_.socket(), host});
  }
  void Drive() override { std::this_thread::yield(); }

 private:
  ScratchDirectory folder_;
  softrnic::Engine engine_{softrnic::EngineOptions{}};
  std::unique_ptr<softrnic::EngineLoop> loop_;
  std::unique_ptr<softrnic::ClientServer> server_;
  std::thread engine_thread_;
  std::thread control_thread_;
};

// One daemon serves all tests, as it would serve one client after the other.
class Daemon {
 public:
  Daemon()
      : process_(ChildProcess::Spawn({ProgramPath("hyperloop-rnicd"), "--socket", folder_.socket(),
                                      "--spin-us", "0", "--priority", "none"})) {
    EXPECT_EQ(process_.ReadLine(), "ready " + folder_.socket());
  }
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;
  ~Daemon() {
    process_.Signal(SIGTERM);
    EXPECT_EQ(process_.Wait(), 0);
  }
  std::string socket() const { return folder_.socket(); }

 private:
  ScratchDirectory folder_;
  ChildProcess process_;
};

std::unique_ptr<Daemon> g_daemon;

// Ends the daemon after the last test; how it ended is part of the result.
class StopDaemon final : public testing::Environment {
  void TearDown() override { g_daemon.reset(); }
};

class DaemonProvider final : public Provider {
 public:
  DaemonProvider() {
    if (g_daemon == nullptr) g_daemon = std::make_unique<Daemon>();
  }
  Result<std::unique_ptr<rnic::Device>> Open(const std::string& host) override {
    return softrnic::OpenDaemonDevice({g_daemon->socket(), host});
  }
  void Drive() override { std::this_thread::yield(); }
};

// All hosts are one device, told apart by their service ports.
class VerbsProvider final : public Provider {
 public:
  VerbsProvider(std::string device, std::string address)
      : device_(std::move(device)), address_(std::move(address)) {}
  Result<std::unique_ptr<rnic::Device>> Open(const std::string& host) override {
    return verbs::OpenDevice({.device = device_, .service_port = PortOf(host)});
  }
  std::string ServiceHost(const std::string& host) override {
    return address_ + ":" + std::to_string(PortOf(host));
  }
  // Soft-RoCE calls some failures by less precise names.
  bool Reports(rnic::WcStatus expected, rnic::WcStatus got) const override {
    using enum rnic::WcStatus;
    if (got == kLocalQpOperation) return expected == kLocalProtection || expected == kLocalLength;
    if (got == kRemoteOperation) return expected == kRemoteInvalidRequest;
    return got == expected;
  }
  void Drive() override { std::this_thread::yield(); }

 private:
  uint16_t PortOf(const std::string& host) {
    const auto next = static_cast<uint16_t>(20000 + ports_.size());
    return ports_.try_emplace(host, next).first->second;
  }

  const std::string device_;
  const std::string address_;
  std::map<std::string, uint16_t> ports_;
};

std::vector<ProviderKind> MakeProviders() {
  std::vector<ProviderKind> kinds = {
      {"softrnic_stepped", [] { return std::make_unique<SteppedProvider>(); }},
      {"softrnic_thread", [] { return std::make_unique<ThreadProvider>(); }},
      {"softrnic_daemon_in_process", [] { return std::make_unique<InProcessDaemonProvider>(); }},
      {"softrnic_daemon", [] { return std::make_unique<DaemonProvider>(); }},
  };
  const char* device = std::getenv("HYPERLOOP_VERBS_DEVICE");
  const char* address = std::getenv("HYPERLOOP_VERBS_ADDRESS");
  if (device != nullptr && address != nullptr) {
    kinds.push_back({"verbs", [=] { return std::make_unique<VerbsProvider>(device, address); }});
  }
  return kinds;
}

}  // namespace

const std::vector<ProviderKind>& Providers() {
  static const std::vector<ProviderKind> kinds = [] {
    testing::AddGlobalTestEnvironment(new StopDaemon);
    return MakeProviders();
  }();
  return kinds;
}

std::string AllowedSkip(const std::string& provider, const std::string& test) {
  std::ifstream file(HYPERLOOP_ALLOWED_SKIPS);
  EXPECT_TRUE(file.is_open()) << HYPERLOOP_ALLOWED_SKIPS;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#') || line.empty()) continue;
    std::istringstream fields(line);
    std::string listed_provider, listed_test, reason;
    std::getline(fields, listed_provider, '\t');
    std::getline(fields, listed_test, '\t');
    std::getline(fields, reason);
    EXPECT_FALSE(reason.empty()) << HYPERLOOP_ALLOWED_SKIPS << ": \"" << line << '"';
    if (listed_provider == provider && listed_test == test) return reason;
  }
  return "";
}

}  // namespace hyperloop::test
