// Tests the plugin as RocksDB's own build makes it (ROCKSDB_PLUGINS=hyperloop). If this program
// links, hyperloop.mk lists every library. If the plugin registers, RocksDB finds it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rocksdb/convenience.h>
#include <rocksdb/file_system.h>

#include "hyperloop/plugin/register.h"

namespace hyperloop::plugin {
namespace {

using testing::HasSubstr;

TEST(InTree, RegistersByNameAndByUri) {
  EXPECT_EQ(register_hyperloop(*rocksdb::ObjectLibrary::Default(), ""), 1);
  rocksdb::ConfigOptions config;
  config.ignore_unknown_options = false;
  config.ignore_unsupported_options = false;
  const auto make = [&](const std::string& name) {
    std::shared_ptr<rocksdb::FileSystem> made;
    return rocksdb::FileSystem::CreateFromString(config, name, &made).ToString();
  };
  EXPECT_THAT(make("hyperloop"), HasSubstr("no replicas given"));
  EXPECT_THAT(make("hyperloop://127.0.0.1:1"), HasSubstr("device is not set"));
}

}  // namespace
}  // namespace hyperloop::plugin
