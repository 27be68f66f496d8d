#include "simulation/tables.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <random>
#include <unordered_map>

namespace hyperloop::simulation {
namespace {

constexpr char kNames = '+', kGivesUp = '!';
// Most tables are short. A long one goes to the replicas in two pieces.
constexpr uint64_t kShort = 5000, kLong = 300'000, kTablesPerLong = 16;

uint64_t NumberIn(std::string_view text) {
  uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

}  // namespace

std::string NameOfTable(uint64_t table) {
  std::array<char, 32> name;
  snprintf(name.data(), name.size(), "%06llu.sst", static_cast<unsigned long long>(table));
  return name.data();
}

const std::string& BytesOfTable(uint64_t table) {
  static std::unordered_map<uint64_t, std::string> made;
  const auto [found, is_new] = made.try_emplace(table);
  std::string& bytes = found->second;
  if (!is_new) return bytes;
  std::minstd_rand random(static_cast<uint32_t>(table));
  const uint64_t most = table % kTablesPerLong == 0 ? kLong : kShort;
  bytes.resize(1 + random() % most);
  std::ranges::generate(bytes, [&random] { return static_cast<char>(random()); });
  return bytes;
}

WholeFile FileOfTable(uint64_t table) {
  const std::string& bytes = BytesOfTable(table);
  FileChecksum checksum;
  checksum.Add(bytes);
  return {NameOfTable(table), bytes.size(), checksum.value()};
}

std::string NamingOf(uint64_t table) { return kNames + std::to_string(table); }
std::string GivingUpOf(uint64_t table) { return kGivesUp + std::to_string(table); }

std::set<uint64_t> TablesNamedBy(std::string_view log) {
  std::set<uint64_t> named;
  while (!log.empty()) {
    const size_t end = std::min(log.find(';'), log.size() - 1);
    const std::string_view piece = log.substr(0, end);
    if (const size_t at = piece.find(kNames); at != std::string_view::npos)
      named.insert(NumberIn(piece.substr(at + 1)));
    if (const size_t at = piece.find(kGivesUp); at != std::string_view::npos)
      named.erase(NumberIn(piece.substr(at + 1)));
    log.remove_prefix(end + 1);
  }
  return named;
}

uint64_t Tables::Write(size_t host) {
  directories_[host].insert(++newest_);
  return newest_;
}

uint64_t Tables::WriteLong(size_t host) {
  newest_ += kTablesPerLong - 1 - newest_ % kTablesPerLong;
  return Write(host);
}

Result<uint64_t> Tables::Read(size_t host, const std::string& name, uint64_t offset,
                              std::span<char> out) const {
  const uint64_t table = NumberIn(name);
  if (!directories_[host].contains(table)) return NotFound(name + " is gone");
  const std::string& bytes = BytesOfTable(table);
  if (offset >= bytes.size()) return uint64_t{0};
  return uint64_t{bytes.copy(out.data(), out.size(), offset)};
}

}  // namespace hyperloop::simulation
