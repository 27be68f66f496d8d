#include "options_map.h"

#include <string>

#include "hyperloop/replication/options.h"
#include "local/status.h"

namespace hyperloop::plugin {
namespace {

using rocksdb::ConfigOptions;
using rocksdb::OptionTypeInfo;

OptionTypeInfo WholeStructOption() {
  // With offset 0 `address` is the whole StoreOptions. `name` says which of its options is meant.
  return OptionTypeInfo(
      0, rocksdb::OptionType::kString, rocksdb::OptionVerificationType::kNormal,
      rocksdb::OptionTypeFlags::kNone,
      [](const ConfigOptions&, const std::string& name, const std::string& value, void* address) {
        Status status = SetStoreOption(name, value, static_cast<StoreOptions*>(address));
        return rocksdb::Status(ToIOStatus(status, "hyperloop"));
      },
      [](const ConfigOptions&, const std::string& name, const void* address, std::string* value) {
        Result<std::string> text = GetStoreOption(name, *static_cast<const StoreOptions*>(address));
        if (!text.ok()) return rocksdb::Status(ToIOStatus(text.status(), "hyperloop"));
        *value = *text;
        return rocksdb::Status::OK();
      },
      [](const ConfigOptions&, const std::string& name, const void* one, const void* other,
         std::string* mismatch) {
        Result<std::string> a = GetStoreOption(name, *static_cast<const StoreOptions*>(one));
        Result<std::string> b = GetStoreOption(name, *static_cast<const StoreOptions*>(other));
        if (a.ok() && b.ok() && *a == *b) return true;
        *mismatch = name;
        return false;
      });
}

}  // namespace

const std::unordered_map<std::string, OptionTypeInfo>& RocksOptionMap() {
  static const auto* const map = [] {
    auto* made = new std::unordered_map<std::string, OptionTypeInfo>;
    for (const OptionInfo& info : StoreOptionTable())
      made->emplace(std::string(info.name), WholeStructOption());
    return made;
  }();
  return *map;
}

}  // namespace hyperloop::plugin
