// StoreOptionTable as RocksDB's option map.
#pragma once

#include <rocksdb/utilities/options_type.h>

#include <string>
#include <unordered_map>

namespace hyperloop::plugin {

// The map for RegisterOptions with a StoreOptions that is a member of the registering object.
// Values are parsed by SetStoreOption and printed by GetStoreOption.
const std::unordered_map<std::string, rocksdb::OptionTypeInfo>& RocksOptionMap();

}  // namespace hyperloop::plugin
