// Fixture: the database of a cluster moves to another machine, for which a directory and a pool of
// their own stand.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "integration/whole_database_fixture.h"

namespace hyperloop::test {

class ElsewhereTest : public WholeDatabaseTest {
 protected:
  // Options of a primary on the other machine.
  StoreOptions Elsewhere() const {
    StoreOptions options = cluster_.Options();
    options.pool = cluster_.folder() + "/elsewhere.pool";
    return options;
  }
  std::string NewDirectory() const { return cluster_.folder() + "/elsewhere"; }
  // A database that serves in this process, with one table and records behind it.
  void Serve() {
    former_ = std::make_unique<TestDatabase>(cluster_.Options(), Directory());
    ASSERT_OK(former_->Open());
    ASSERT_OK(former_->Fill(kKeys / 2));
    ASSERT_OK(former_->db()->Flush({}));
    ASSERT_OK(former_->Fill(kKeys));
  }
  static std::vector<std::string> TablesIn(const std::string& directory) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory))
      if (entry.path().extension() == ".sst") names.push_back(entry.path().filename());
    return names;
  }
  static bool IsWholeTable(const fs::path& path) {
    return path.string().find(".sst@") != std::string::npos && path.extension() != ".part";
  }
  std::string Brought() const { return NewDirectory() + "/hyperloop-switchover"; }
  size_t CountBrought() const {
    size_t count = 0;
    if (!fs::exists(Brought())) return 0;
    for (const auto& entry : fs::recursive_directory_iterator(Brought()))
      count += IsWholeTable(entry.path()) ? 1 : 0;
    return count;
  }
  uint64_t Epoch() const {
    const auto status = cluster_.ReplicaStatus(0);
    EXPECT_OK(status);
    return status.ok() ? status->sealed_epoch : 0;
  }
  static std::string BytesOf(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void ExpectServes(int keys) {
    TestDatabase database(Elsewhere(), NewDirectory());
    ASSERT_OK(database.Open());
    EXPECT_EQ(database.FirstMissing(keys), "");
    EXPECT_OK(database.db()->VerifyChecksum());
    ASSERT_OK(database.Fill(keys + 1));
    ASSERT_OK(database.db()->Flush({}));
  }

  std::unique_ptr<TestDatabase> former_;
};

}  // namespace hyperloop::test
