// The C interface: its own part (arguments, errors, lifetimes), over a daemon in this process. What
// the primitives do is group_test's; examples/primitives.c shows them all from C.
#include "hyperloop/core/hyperloop.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "hyperloop/core/log.h"
#include "softrnic/daemon/client_server.h"

namespace hyperloop {
namespace {

using testing::HasSubstr;

std::string LastError() {
  std::string text(hl_last_error(nullptr, 0), '\0');
  hl_last_error(text.data(), text.size() + 1);
  return text;
}

#define EXPECT_HL(code, call)                                               \
  do {                                                                      \
    const hl_code hl_got = (call);                                          \
    EXPECT_EQ(hl_got, code) << hl_code_name(hl_got) << ": " << LastError(); \
  } while (0)
#define ASSERT_HL_OK(call)                                                   \
  do {                                                                       \
    const hl_code hl_got = (call);                                           \
    ASSERT_EQ(hl_got, HL_OK) << hl_code_name(hl_got) << ": " << LastError(); \
  } while (0)

class CInterface : public testing::Test {
 protected:
  CInterface() {
    folder_ = std::filesystem::temp_directory_path() / "hyperloop-test-XXXXXX";
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    socket_ = folder_ + "/rnicd.sock";
    loop_ = std::move(softrnic::EngineLoop::Create(&engine_, {.spin_us = 0})).value();
    server_ = std::move(softrnic::ClientServer::Listen(socket_, &engine_, loop_.get(),
                                                       StderrLog("rnicd", LogLevel::kError)))
                  .value();
    engine_thread_ = std::thread([this] { loop_->Run(); });
    control_thread_ = std::thread([this] { server_->Run(); });
  }
  ~CInterface() override {
    server_->Stop();
    control_thread_.join();
    loop_->Stop();
    engine_thread_.join();
    server_.reset();
    std::filesystem::remove_all(folder_);
  }

  void Open(const char* host, hl_device** device, hl_region** region) {
    ASSERT_HL_OK(hl_device_open_softrnic(socket_.c_str(), host, device));
    ASSERT_HL_OK(hl_region_create(*device, 4096, region));
  }
  // A group of one replica; devices' and regions' handles are closed at once.
  void MakeGroup(hl_group** group, hl_member** member, void** primary, void** replica,
                 const char* datapath = "offload") {
    hl_options options;
    hl_options_init(&options);
    options.datapath = datapath;
    options.window = 4;
    hl_device *device_p, *device_r;
    hl_region *region_p, *region_r;
    ASSERT_NO_FATAL_FAILURE(Open("p", &device_p, &region_p));
    ASSERT_NO_FATAL_FAILURE(Open("r", &device_r, &region_r));
    ASSERT_HL_OK(hl_group_create(region_p, &options, group));
    ASSERT_HL_OK(hl_member_create(region_r, &options, 0, member));
    hl_info info_p, info_r;
    ASSERT_HL_OK(hl_group_info(*group, &info_p));
    ASSERT_HL_OK(hl_member_info(*member, &info_r));
    ASSERT_HL_OK(hl_member_connect(*member, &info_p, &info_r, 1));
    ASSERT_HL_OK(hl_group_connect(*group, &info_r, 1));
    *primary = hl_region_data(region_p);
    *replica = hl_region_data(region_r);
    hl_device_close(device_p);
    hl_device_close(device_r);
    hl_region_destroy(region_p);
    hl_region_destroy(region_r);
  }

  std::string folder_, socket_;
  softrnic::Engine engine_{softrnic::EngineOptions{}};
  std::unique_ptr<softrnic::EngineLoop> loop_;
  std::unique_ptr<softrnic::ClientServer> server_;
  std::thread engine_thread_, control_thread_;
};

TEST_F(CInterface, HandlesMayGoInAnyOrder) {
  hl_group* group = nullptr;
  hl_member* member = nullptr;
  void *primary, *replica;
  ASSERT_NO_FATAL_FAILURE(MakeGroup(&group, &member, &primary, &replica));
  // Devices and regions are closed already; the group works.
  std::memcpy(primary, "abcdefgh", 8);
  hl_ticket ticket = 0, done = 0;
  ASSERT_HL_OK(hl_write(group, 0, 8, 1, &ticket));
  EXPECT_EQ(ticket, 1u);
  ASSERT_HL_OK(hl_wait(group, ticket, nullptr));
  EXPECT_EQ(0, std::memcmp(replica, "abcdefgh", 8));
  uint64_t original = 0, was;
  std::memcpy(&was, "abcdefgh", 8);
  ASSERT_HL_OK(hl_cas(group, 0, 1, 2, 1, &ticket));
  ASSERT_HL_OK(hl_wait(group, ticket, &original));
  EXPECT_EQ(original, was);
  ASSERT_HL_OK(hl_memcopy(group, 0, 64, 8, 1, &ticket));
  ASSERT_HL_OK(hl_flush(group, 0, 4096, &ticket));
  ASSERT_HL_OK(hl_wait_all(group));
  ASSERT_HL_OK(hl_poll(group, &done));
  EXPECT_EQ(done, ticket);
  EXPECT_EQ(0, std::memcmp(static_cast<char*>(replica) + 64, "abcdefgh", 8));
  hl_member_destroy(member);
  hl_group_destroy(group);
}

TEST_F(CInterface, RefusalsHaveACodeAndAReasonAndSetNothing) {
  hl_group* group = nullptr;
  hl_member* member = nullptr;
  void *primary, *replica;
  ASSERT_NO_FATAL_FAILURE(MakeGroup(&group, &member, &primary, &replica));
  hl_ticket ticket = 4711;
  EXPECT_HL(HL_INVALID_ARGUMENT, hl_write(group, 4096, 1, 0, &ticket));
  EXPECT_THAT(LastError(), HasSubstr("hl_write"));
  EXPECT_THAT(LastError(), HasSubstr("4096"));
  EXPECT_HL(HL_INVALID_ARGUMENT, hl_write(group, 0, 0, 0, &ticket));
  EXPECT_HL(HL_INVALID_ARGUMENT, hl_write(group, 0, 8, 0, nullptr));
  EXPECT_HL(HL_INVALID_ARGUMENT, hl_memcopy(group, 0, 4, 8, 0, &ticket));
  EXPECT_HL(HL_INVALID_ARGUMENT, hl_memcopy(group, 0, 64, 0, 0, &ticket));
  EXPECT_HL(HL_INVALID_ARGUMENT, hl_cas(group, 4, 0, 1, 1, &ticket));
  EXPECT_HL(HL_INVALID_ARGUMENT, hl_flush(group, 0, 4097, &ticket));
  EXPECT_HL(HL_INVALID_ARGUMENT, hl_wait(group, 1, nullptr));  // never given out
  EXPECT_EQ(ticket, 4711u);
  // None of that broke the group.
  EXPECT_HL(HL_OK, hl_write(group, 0, 8, 0, &ticket));
  EXPECT_HL(HL_OK, hl_wait_all(group));
  hl_group_destroy(group);
  hl_member_destroy(member);
}

TEST_F(CInterface, NullIsAnErrorNotACrash) {
  hl_device* device = nullptr;
  hl_region* region = nullptr;
  hl_info info;
  hl_ticket ticket;
  EXPECT_HL(HL_INVALID_ARGUMENT, hl_device_open_softrnic(nullptr, "h", &device));
  EXPECT_HL(HL_INVALID_ARGUMENT, hl_device_open_softrnic(socket_.c_str(), nullptr, &device));
  EXPECT_HL(HL_INVALID_ARGUMENT, hl_device_open_softrnic(socket_.c_str(), "h", nullptr));
  EXPECT_HL(HL_INVALID_ARGUMENT, hl_region_create(nullptr, 64, &region));
  EXPECT_HL(HL_INVALID_ARGUMENT, hl_member_create(nullptr, nullptr, 0, nullptr));
  EXPECT_HL(HL_INVALID_ARGUMENT, hl_member_info(nullptr, &info));
  EXPECT_HL(HL_INVALID_ARGUMENT, hl_group_create(nullptr, nullptr, nullptr));
  EXPECT_HL(HL_INVALID_ARGUMENT, hl_group_connect(nullptr, &info, 1));
  EXPECT_HL(HL_INVALID_ARGUMENT, hl_write(nullptr, 0, 1, 0, &ticket));
  EXPECT_HL(HL_INVALID_ARGUMENT, hl_wait_all(nullptr));
  EXPECT_HL(HL_INVALID_ARGUMENT, hl_poll(nullptr, &ticket));
  EXPECT_EQ(hl_device_alive(nullptr), 0);
  EXPECT_EQ(hl_region_data(nullptr), nullptr);
  EXPECT_EQ(hl_region_size(nullptr), 0u);
  hl_options_init(nullptr);
  hl_group_destroy(nullptr);
  hl_member_destroy(nullptr);
  hl_region_destroy(nullptr);
  hl_device_close(nullptr);
}

TEST_F(CInterface, SetUpIsChecked) {
  hl_device* device;
  hl_region* region;
  ASSERT_NO_FATAL_FAILURE(Open("h", &device, &region));
  hl_options options;
  hl_options_init(&options);
  hl_member* member = nullptr;
  hl_group* group = nullptr;
  hl_region* small = nullptr;
  EXPECT_HL(HL_INVALID_ARGUMENT, hl_region_create(device, 63, &small));
  EXPECT_HL(HL_INVALID_ARGUMENT, hl_member_create(region, &options, 1, &member));  // of 1
  options.group_size = HL_MAX_GROUP_SIZE + 1;
  EXPECT_HL(HL_INVALID_ARGUMENT, hl_group_create(region, &options, &group));
  options.group_size = 1;
  options.datapath = "telepathy";
  EXPECT_HL(HL_INVALID_ARGUMENT, hl_group_create(region, &options, &group));
  EXPECT_THAT(LastError(), HasSubstr("telepathy"));
  options.datapath = nullptr;
  EXPECT_HL(HL_INVALID_ARGUMENT, hl_member_create(region, &options, 0, &member));
  options.datapath = "offload";
  options.ack_timeout_ms = 0;
  EXPECT_HL(HL_INVALID_ARGUMENT, hl_group_create(region, &options, &group));
  options.ack_timeout_ms = 1000;
  ASSERT_HL_OK(hl_group_create(region, &options, &group));
  ASSERT_HL_OK(hl_member_create(region, &options, 0, &member));
  hl_info primary, own;
  ASSERT_HL_OK(hl_group_info(group, &primary));
  ASSERT_HL_OK(hl_member_info(member, &own));
  // Infos that were cut, mixed up or multiplied.
  hl_info cut = own;
  cut.size -= 1;
  EXPECT_HL(HL_INVALID_ARGUMENT, hl_member_connect(member, &own, &primary, 1));
  EXPECT_HL(HL_INVALID_ARGUMENT, hl_member_connect(member, &primary, &cut, 1));
  EXPECT_HL(HL_INVALID_ARGUMENT, hl_member_connect(member, &primary, &own, 0));
  EXPECT_HL(HL_INVALID_ARGUMENT, hl_group_connect(group, &own, 1000000));
  hl_ticket ticket;
  EXPECT_NE(hl_write(group, 0, 8, 0, &ticket), HL_OK) << "not connected";
  hl_group_destroy(group);
  hl_member_destroy(member);
  hl_region_destroy(region);
  hl_device_close(device);
}

// As the header has it: in a forked child calls fail, and letting handles go there is no business
// of the parent's.
TEST_F(CInterface, AForkedChildIsRefusedAndItsParentGoesOn) {
  for (const char* datapath : {"offload", "fanout", "cpu-polling", "cpu-event"}) {
    hl_group* group = nullptr;
    hl_member* member = nullptr;
    void *primary, *replica;
    ASSERT_NO_FATAL_FAILURE(MakeGroup(&group, &member, &primary, &replica, datapath));
    hl_ticket done = 0;
    ASSERT_HL_OK(hl_cas(group, 0, 0, 0, 1, &done));
    ASSERT_HL_OK(hl_wait_all(group));
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      hl_ticket ticket = 0;
      uint64_t original = 0;
      const hl_code codes[] = {hl_write(group, 0, 8, 1, &ticket),
                               hl_memcopy(group, 0, 64, 8, 0, &ticket),
                               hl_cas(group, 0, 0, 1, 1, &ticket),
                               hl_flush(group, 0, 8, &ticket),
                               hl_wait(group, done, &original),
                               hl_wait_all(group),
                               hl_poll(group, &ticket)};
      int passed = 0;
      for (const hl_code code : codes) passed += code != HL_UNAVAILABLE;
      hl_group_destroy(group);
      hl_member_destroy(member);
      _exit(passed);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status)) << datapath << ": the child died of signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 0) << datapath << ": calls that were not refused";
    hl_ticket ticket;
    std::memcpy(primary, datapath, 6);
    EXPECT_HL(HL_OK, hl_write(group, 0, 6, 1, &ticket));
    EXPECT_HL(HL_OK, hl_wait_all(group));
    EXPECT_EQ(std::memcmp(replica, datapath, 6), 0) << datapath;
    hl_group_destroy(group);
    hl_member_destroy(member);
  }
}

// What the system refuses comes back as an error with its reason, not as an exception.
TEST_F(CInterface, AThreadThatCannotStartIsAnErrorWithAReason) {
  hl_device* device;
  hl_region* region;
  ASSERT_NO_FATAL_FAILURE(Open("h", &device, &region));
  hl_options options;
  hl_options_init(&options);
  options.datapath = "cpu-event";
  hl_member* member = nullptr;
  hl_group* group = nullptr;
  ASSERT_HL_OK(hl_member_create(region, &options, 0, &member));
  ASSERT_HL_OK(hl_group_create(region, &options, &group));
  hl_info primary, own;
  ASSERT_HL_OK(hl_group_info(group, &primary));
  ASSERT_HL_OK(hl_member_info(member, &own));
  pthread_attr_t usual, beyond;  // no address space holds such a stack
  ASSERT_EQ(pthread_getattr_default_np(&usual), 0);
  ASSERT_EQ(pthread_getattr_default_np(&beyond), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&beyond, size_t{1} << 56), 0);
  ASSERT_EQ(pthread_setattr_default_np(&beyond), 0);
  const hl_code code = hl_member_connect(member, &primary, &own, 1);
  ASSERT_EQ(pthread_setattr_default_np(&usual), 0);
  EXPECT_EQ(code, HL_NO_SPACE) << LastError();
  EXPECT_THAT(LastError(), HasSubstr("thread"));
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  EXPECT_EQ(sigismember(&blocked, SIGTERM), 0);
  pthread_attr_destroy(&usual);
  pthread_attr_destroy(&beyond);
  hl_group_destroy(group);
  hl_member_destroy(member);
  hl_region_destroy(region);
  hl_device_close(device);
}

TEST_F(CInterface, MemoryOfTheCallersNeedsItsFile) {
  hl_device* device;
  ASSERT_HL_OK(hl_device_open_softrnic(socket_.c_str(), "h", &device));
  EXPECT_EQ(hl_device_alive(device), 1);
  const std::string path = folder_ + "/region";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(ftruncate(fd, 8192), 0);
  void* const memory = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  hl_region* region = nullptr;
  EXPECT_HL(HL_INVALID_ARGUMENT, hl_region_register(device, memory, 8192, -1, 0, HL_FILE, &region));
  EXPECT_HL(HL_INVALID_ARGUMENT,
            hl_region_register(device, memory, 8192, fd, 0, static_cast<hl_media>(9), &region));
  ASSERT_HL_OK(hl_region_register(device, memory, 8192, fd, 0, HL_FILE, &region));
  close(fd);
  EXPECT_EQ(hl_region_data(region), memory);
  EXPECT_EQ(hl_region_size(region), 8192u);
  hl_region_destroy(region);
  hl_device_close(device);
  munmap(memory, 8192);
}

TEST(CErrors, LastErrorIsPerThreadAndCutToTheBuffer) {
  hl_device* device = nullptr;
  EXPECT_EQ(hl_device_open_softrnic("/nowhere/rnicd.sock", "h", &device), HL_UNAVAILABLE);
  EXPECT_EQ(device, nullptr);
  const std::string whole = LastError();
  EXPECT_THAT(whole, HasSubstr("/nowhere/rnicd.sock"));
  EXPECT_THAT(whole, HasSubstr("hyperloop-rnicd")) << "no remedy: " << whole;
  char small[8];
  std::memset(small, 'x', sizeof(small));
  EXPECT_EQ(hl_last_error(small, 5), whole.size());
  EXPECT_EQ(std::string(small), whole.substr(0, 4));
  EXPECT_EQ(small[5], 'x');
  std::thread([] { EXPECT_EQ(hl_last_error(nullptr, 0), 0u); }).join();
  EXPECT_EQ(LastError(), whole);
  EXPECT_STREQ(hl_code_name(HL_UNAVAILABLE), std::string(CodeName(Code::kUnavailable)).c_str());
  EXPECT_STREQ(hl_code_name(static_cast<hl_code>(99)), "unknown");
}

}  // namespace
}  // namespace hyperloop
