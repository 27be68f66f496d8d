// StoreOptionTable as RocksDB's option map.
#pragma once

#include <rocksdb/utilities/options_type.h>

#include <string>
#include <unordered_map>

namespace hyperloop::plugin {

// For RegisterOptions with a StoreOptions that is a member of the registering object. Parsing goes
// through SetStoreOption, so texts and refusals are those of the table.
const std::unordered_map<std::string, rocksdb::OptionTypeInfo>& RocksOptionMap();

}  // namespace hyperloop::plugin
