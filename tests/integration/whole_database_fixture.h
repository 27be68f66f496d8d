// Fixture: a cluster of two replicas, which the suite shares, a database's directory, and what each
// replica alone holds.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rocksdb/db.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "support/child_process.h"
#include "support/cluster.h"
#include "support/database.h"
#include "support/shared_cluster.h"
#include "support/status_matchers.h"

namespace hyperloop::test {

namespace fs = std::filesystem;

inline constexpr int kKeys = 500;

class WholeDatabaseTest : public SharedClusterTest<2, 32 << 20> {
 protected:
  std::string Directory() const { return cluster_.folder() + "/db"; }
  std::string FilesOfReplica(uint32_t replica) const { return cluster_.pool(replica) + ".files"; }
  std::vector<fs::path> TablesOfReplica(uint32_t replica) const {
    std::vector<fs::path> tables;
    for (const auto& entry : fs::recursive_directory_iterator(FilesOfReplica(replica)))
      if (entry.path().string().find(".sst@") != std::string::npos) tables.push_back(entry.path());
    return tables;
  }
  // The directory stays, because the replica has it open.
  void RemoveFilesOfReplica(uint32_t replica) const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(FilesOfReplica(replica)))
      if (entry.is_regular_file()) files.push_back(entry.path());
    for (const fs::path& file : files) fs::remove(file);
  }
  static void Damage(const fs::path& path) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(100);
    file.put('\x7f');
  }
  struct Outcome {
    int exit_status = 0;
    std::string text;
  };
  // Runs hyperloopctl.
  Outcome Ctl(const std::string& arguments) const {
    const std::string output = cluster_.folder() + "/ctl.log";
    const std::string command =
        ProgramPath("hyperloopctl") + " " + arguments + " >" + output + " 2>&1";
    const int status = std::system(command.c_str());
    std::ifstream in(output);
    return {WEXITSTATUS(status), {std::istreambuf_iterator<char>(in), {}}};
  }
  Outcome Export(uint32_t replica, const std::string& to) const {
    return Ctl("export --dir " + cluster_.folder() + "/cluster --replica " +
               std::to_string(replica) + " --to " + to);
  }
  // Opens an export as any program would, without the plugin.
  static std::unique_ptr<rocksdb::DB> OpenPlain(const std::string& directory) {
    rocksdb::Options options;
    options.paranoid_checks = true;
    rocksdb::DB* db = nullptr;
    const rocksdb::Status opened = rocksdb::DB::Open(options, directory, &db);
    EXPECT_OK(opened);
    std::unique_ptr<rocksdb::DB> owned(db);
    if (opened.ok()) {
      EXPECT_OK(db->VerifyChecksum());
    }
    return owned;
  }
  void ExpectEveryReplicaHoldsAll(int keys) {
    for (uint32_t i = 0; i < cluster_.replicas(); ++i) {
      const std::string to = cluster_.folder() + "/export" + std::to_string(exports_++);
      const Outcome exported = Export(i, to);
      ASSERT_EQ(exported.exit_status, 0) << exported.text;
      const auto db = OpenPlain(to);
      ASSERT_NE(db, nullptr);
      std::string value;
      for (int key = 0; key < keys; ++key) {
        ASSERT_OK(db->Get({}, TestDatabase::KeyOf(key), &value)) << "replica " << i << " " << key;
        ASSERT_EQ(value, TestDatabase::ValueOf(key));
      }
    }
  }

  int exports_ = 0;
};

}  // namespace hyperloop::test
