#include "ctl/preload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "ctl/elf.h"
#include "support/status_matchers.h"

namespace hyperloop::ctl {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr char kDbBench[] = "/usr/bin/db_bench";

std::string Slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class PreloadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/hyperloop_preload_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    base_ = name;
  }
  void TearDown() override { fs::remove_all(base_); }
  std::string Write(const std::string& name, const std::string& bytes, mode_t mode = 0755) {
    const std::string path = base_ + "/" + name;
    std::ofstream(path, std::ios::binary) << bytes;
    chmod(path.c_str(), mode);
    return path;
  }
  // Compiles a small program or library; `flags` may hold anything the compiler takes.
  std::string Compile(const std::string& name, const std::string& source,
                      const std::string& flags) {
    const std::string path = base_ + "/" + name;
    Write(name + ".cc", source);
    const std::string command = "g++ -o " + path + " " + path + ".cc " + flags;
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    return path;
  }
  // A stand-in for the plugin: a shared object that needs librocksdb.so.7.8.
  std::string Plugin(const std::string& soname = "librocksdb.so.7.8") {
    const std::string rocksdb = Compile("librocksdb.so", "int rocks() { return 1; }",
                                        "-shared -fPIC -Wl,-soname," + soname);
    return Compile("plugin.so", "int rocks(); int plugin() { return rocks(); }",
                   "-shared -fPIC " + rocksdb);
  }
  std::string base_;
};

TEST_F(PreloadTest, ReadsAProgramAndALibrary) {
  const Result<ElfInfo> program = ReadElf(kDbBench);
  ASSERT_OK(program);
  EXPECT_TRUE(program->has_interpreter);
  EXPECT_THAT(program->needed, Contains("librocksdb.so.7.8"));
  const Result<ElfInfo> library = ReadElf(Plugin());
  ASSERT_OK(library);
  EXPECT_FALSE(library->has_interpreter);
}

TEST_F(PreloadTest, TakesAStockProgram) { EXPECT_OK(CheckPreload(kDbBench, Plugin())); }

TEST_F(PreloadTest, TakesAProgramThatLoadsRocksDbThroughALibrary) {
  const std::string plugin = Plugin();
  const std::string middle =
      Compile("libmiddle.so", "int rocks(); int middle() { return rocks(); }",
              "-shared -fPIC " + base_ + "/librocksdb.so");
  fs::rename(base_ + "/librocksdb.so", base_ + "/librocksdb.so.7.8");
  const std::string program =
      Compile("service", "int middle(); int main() { return middle(); }",
              middle + " " + base_ + "/librocksdb.so.7.8 -Wl,--as-needed -Wl,-rpath," + base_);
  EXPECT_OK(CheckPreload(program, plugin));
}

TEST_F(PreloadTest, ExplainsAStaticProgram) {
  const std::string program = Compile("static", "int main() {}", "-static");
  EXPECT_THAT(CheckPreload(program, Plugin()),
              StatusIs(Code::kNotSupported, HasSubstr("statically linked")));
}

TEST_F(PreloadTest, ExplainsAScript) {
  EXPECT_THAT(CheckPreload(Write("run.sh", "#!/bin/sh\nexec db_bench \"$@\"\n"), Plugin()),
              StatusIs(Code::kInvalidArgument, HasSubstr("a script for /bin/sh")));
}

TEST_F(PreloadTest, ExplainsAProgramWithoutRocksDb) {
  EXPECT_THAT(CheckPreload("/bin/true", Plugin()),
              StatusIs(Code::kNotSupported, HasSubstr("does not load a shared RocksDB")));
}

// The texts by which RocksDB is recognised.
constexpr char kRocksDbInside[] =
    "#include <cstdio>\nint rocks() { return std::puts(\"unknown WriteBatch tag\") + "
    "std::puts(\"rocksdb.block.cache.miss\"); }\n";

TEST_F(PreloadTest, ExplainsARocksDbThatIsLinkedIn) {
  const std::string main = "int rocks(); int main() { return rocks(); }";
  const std::string inside = Compile("inside", kRocksDbInside + main, "");
  const std::string library = Compile("libengine.so", kRocksDbInside, "-shared -fPIC");
  const std::string through = Compile("through", main, library + " -Wl,-rpath," + base_);
  const std::string whole = Compile("whole", kRocksDbInside + main, "-static");
  const std::string plugin = Plugin();
  for (const Preloaded what : {Preloaded::kRocksDbProgram, Preloaded::kOrItsStarter}) {
    for (const std::string& program : {inside, whole}) {
      EXPECT_THAT(CheckPreload(program, plugin, what),
                  StatusIs(Code::kNotSupported, HasSubstr("has a RocksDB of its own")));
    }
    const Status status = CheckPreload(through, plugin, what);
    EXPECT_THAT(status, StatusIs(Code::kNotSupported, HasSubstr("loads " + library)));
    EXPECT_THAT(status.message(), HasSubstr("link the plugin into this one"));
  }
}

TEST_F(PreloadTest, WhatStartsAProgramNeedsNoRocksDb) {
  const std::string plugin = Plugin();
  const std::string script = Write("run.sh", "#!/bin/sh\nexec db_bench \"$@\"\n");
  for (const std::string& program :
       {std::string("/bin/true"), script, Compile("static", "int main() {}", "-static")}) {
    EXPECT_FALSE(CheckPreload(program, plugin).ok()) << program;
    EXPECT_OK(CheckPreload(program, plugin, Preloaded::kOrItsStarter)) << program;
  }
  EXPECT_THAT(CheckPreload(kDbBench, Plugin("librocksdb.so.8.1"), Preloaded::kOrItsStarter),
              StatusIs(Code::kNotSupported, HasSubstr("loads librocksdb.so.7.8")));
  const std::string suid = Write("suid", Slurp("/bin/true"), 04755);
  EXPECT_THAT(CheckPreload(suid, plugin, Preloaded::kOrItsStarter),
              StatusIs(Code::kNotSupported, HasSubstr("let it start hyperloopctl exec")));
}

TEST_F(PreloadTest, ExplainsAnotherRocksDb) {
  const Status status = CheckPreload(kDbBench, Plugin("librocksdb.so.8.1"));
  EXPECT_THAT(status, StatusIs(Code::kNotSupported, HasSubstr("loads librocksdb.so.7.8")));
  EXPECT_THAT(status.message(), HasSubstr("built for librocksdb.so.8.1"));
}

TEST_F(PreloadTest, ExplainsASetUserIdProgram) {
  const std::string program = Write("suid", Slurp(kDbBench), 04755);
  EXPECT_THAT(CheckPreload(program, Plugin()),
              StatusIs(Code::kNotSupported, HasSubstr("set-user-id")));
}

TEST_F(PreloadTest, FindsProgramsAsTheShellDoes) {
  EXPECT_THAT(FindProgram("no-such-program"), StatusIs(Code::kNotFound));
  EXPECT_THAT(FindProgram("/no/such/program"), StatusIs(Code::kNotFound));
  EXPECT_THAT(FindProgram(Write("plain", "x", 0644)), StatusIs(Code::kPermissionDenied));
  EXPECT_EQ(FindProgram(kDbBench).value(), kDbBench);
  EXPECT_THAT(FindProgram("db_bench").value(), HasSubstr("/db_bench"));
}

TEST_F(PreloadTest, DamagedFilesAreRefused) {
  EXPECT_THAT(ReadElf(base_), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(ReadElf(Write("empty", "")), StatusIs(Code::kInvalidArgument));
  const std::string whole = Slurp(kDbBench);
  EXPECT_THAT(ParseElf(whole.substr(0, 40), "f"), StatusIs(Code::kInvalidArgument));
  EXPECT_THAT(ParseElf(whole.substr(0, 100), "f"), StatusIs(Code::kCorruption));
  // No damage in the headers and the dynamic section leads to a crash (the sanitizer build checks).
  for (size_t at = 0; at < 1024; ++at) {
    for (const char value : {'\x00', '\xff', '\x7f'}) {
      std::string damaged = whole.substr(0, 65536);
      damaged[at] = value;
      ParseElf(damaged, "f").status().IgnoreError();
    }
  }
}

TEST(CommandLineTest, AddsTheUriOnceAndFirst) {
  EXPECT_THAT(CommandLine({"ldb", "--db=x", "scan"}, "hyperloop://h:1", true),
              ElementsAre("ldb", "--fs_uri=hyperloop://h:1", "--db=x", "scan"));
  EXPECT_THAT(CommandLine({"ldb", "--fs_uri=other", "scan"}, "u", true),
              ElementsAre("ldb", "--fs_uri=other", "scan"));
  EXPECT_THAT(CommandLine({"ldb", "scan"}, "u", false), ElementsAre("ldb", "scan"));
}

}  // namespace
}  // namespace hyperloop::ctl
