// Tables: the whole files of a simulated database (bulk lane), as RocksDB uses them. A piece of the
// log names a table, which is a part of the database from then on; another piece gives it up.
//
// Tables are numbers. Name and bytes follow from the number, so whoever reads a table knows what it
// has to be.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "hyperloop/core/status.h"
#include "hyperloop/replication/whole_file.h"
#include "simulation/world.h"

namespace hyperloop::simulation {

std::string NameOfTable(uint64_t table);
const std::string& BytesOfTable(uint64_t table);
WholeFile FileOfTable(uint64_t table);

// What a piece says that names a table, or gives it up (see History::Begin).
std::string NamingOf(uint64_t table);
std::string GivingUpOf(uint64_t table);
// The tables that a log of such pieces has named and not given up.
std::set<uint64_t> TablesNamedBy(std::string_view log);

class Tables {
 public:
  // A new table, which lies in the directory of `host` (in kPrimaries) from now on.
  uint64_t Write(size_t host);
  uint64_t WriteLong(size_t host);
  std::set<uint64_t>& directory(size_t host) { return directories_[host]; }
  // As TakeRequest::read_local.
  Result<uint64_t> Read(size_t host, const std::string& name, uint64_t offset,
                        std::span<char> out) const;

  // Tables that the group's log names, and those that it may name.
  std::set<uint64_t>& named() { return named_; }
  const std::set<uint64_t>& named() const { return named_; }
  // Tables that some majority of the replicas did not hold when a primary was told so.
  std::set<uint64_t>& lacking() { return lacking_; }

 private:
  std::array<std::set<uint64_t>, kPrimaries.size()> directories_;
  std::set<uint64_t> named_, lacking_;
  uint64_t newest_ = 0;
};

}  // namespace hyperloop::simulation
