// Fixture: the database of a cluster moves to another machine, for which a directory and a pool of
// their own stand.
#pragma once

#include <string>

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
};

}  // namespace hyperloop::test
