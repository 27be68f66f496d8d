// RocksDB's own files with any content: WAL and MANIFEST, as the judge of a directory reads them.
//
// An input is a list of records, framed with the right checksum or without, and raw bytes. Rules:
// every call returns; records with right frames are read back unchanged, up to the first wrong
// frame.
#include <rocksdb/db.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "fuzz/fuzz.h"
#include "hyperloop/replication/crc32c.h"
#include "hyperloop/replication/rocksdb_log.h"
#include "quirks/log_marker.h"

namespace hyperloop::fuzz {
namespace {

namespace stdfs = std::filesystem;

constexpr size_t kBlock = 32768, kHeader = 7;
constexpr uint64_t kNumber = 12;
enum Part : uint8_t { kFull = 1, kFirst = 2, kMiddle = 3, kLast = 4 };

void AppendPhysical(std::string* file, uint8_t type, std::string_view payload, uint32_t wrong) {
  const std::string checked = static_cast<char>(type) + std::string(payload);
  const uint32_t crc = ~Crc32c(~0u, checked.data(), checked.size());
  const uint32_t masked = (((crc >> 15) | (crc << 17)) + 0xa282ead8u) ^ wrong;
  for (int i = 0; i < 4; ++i) file->push_back(static_cast<char>(masked >> (8 * i)));
  file->push_back(static_cast<char>(payload.size()));
  file->push_back(static_cast<char>(payload.size() >> 8));
  file->append(checked);
}

// As RocksDB's writer would: over as many blocks as it takes.
void AppendRecord(std::string* file, std::string_view payload) {
  bool first = true;
  do {
    size_t room = kBlock - file->size() % kBlock;
    if (room < kHeader) {
      file->append(room, '\0');
      room = kBlock;
    }
    const size_t n = std::min(payload.size(), room - kHeader);
    const bool last = n == payload.size();
    AppendPhysical(file, first ? (last ? kFull : kFirst) : (last ? kLast : kMiddle),
                   payload.substr(0, n), 0);
    payload.remove_prefix(n);
    first = false;
  } while (!payload.empty());
}

struct File {
  std::string bytes;
  std::vector<std::string> records;
  bool regular = true;  // nothing but whole records so far
};

File Build(Reader& in) {
  File file;
  for (int i = 0; i < 64 && !in.done(); ++i) {
    const uint8_t how = in.U8();
    const auto raw = in.Bytes(in.U16() % 4096);
    std::string payload(raw.begin(), raw.end());
    if (how >= 250) payload.resize(payload.size() + kBlock, 'x');
    if (how < 200 || how >= 250) {
      AppendRecord(&file.bytes, payload);
      if (file.regular) file.records.push_back(payload);
      continue;
    }
    file.regular = false;
    if (how < 220) {
      AppendPhysical(&file.bytes, how % 16, payload, (how & 16) != 0 ? 1 : 0);
    } else {
      file.bytes += payload;
    }
  }
  return file;
}

ReadAt ReaderOf(const std::string& bytes) {
  return [&bytes](uint64_t offset, std::span<char> out) -> Result<uint64_t> {
    if (offset >= bytes.size()) return uint64_t{0};
    const uint64_t n = std::min<uint64_t>(out.size(), bytes.size() - offset);
    std::memcpy(out.data(), bytes.data() + offset, n);
    return n;
  };
}

std::vector<std::string> RecordsOf(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  std::vector<std::string> records;
  const auto each = [&](std::string record) -> Result<bool> {
    records.push_back(std::move(record));
    return true;
  };
  HL_FUZZ_CHECK(ForEachRecord(ReaderOf(bytes), bytes.size(), kNumber, each).ok(), path);
  return records;
}

// Files that RocksDB itself wrote.
std::vector<Input> Seeds() {
  std::string folder = stdfs::temp_directory_path() / "hyperloop-fuzz-XXXXXX";
  HL_FUZZ_CHECK(mkdtemp(folder.data()) != nullptr, "mkdtemp");
  rocksdb::Options options;
  options.create_if_missing = true;
  rocksdb::DB* opened = nullptr;
  HL_FUZZ_CHECK(rocksdb::DB::Open(options, folder + "/db", &opened).ok(), "open");
  const std::unique_ptr<rocksdb::DB> db(opened);
  rocksdb::ColumnFamilyHandle* family = nullptr;
  HL_FUZZ_CHECK(db->CreateColumnFamily(options, "two", &family).ok(), "column family");
  for (int i = 0; i < 3; ++i) {
    HL_FUZZ_CHECK(db->Put({}, family, "key", std::to_string(i)).ok(), "put");
    HL_FUZZ_CHECK(db->Flush({}, family).ok(), "flush");
  }
  HL_FUZZ_CHECK(db->Put({}, "in", "the log").ok(), "put");
  HL_FUZZ_CHECK(db->DropColumnFamily(family).ok(), "drop");
  std::vector<Input> seeds = {{}};
  for (const auto& entry : stdfs::directory_iterator(folder + "/db")) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("MANIFEST-") && !name.ends_with(".log")) continue;
    Writer out;
    for (const std::string& record : RecordsOf(entry.path()))
      out.U8(0).U16(static_cast<unsigned>(record.size())).Bytes(record.data(), record.size());
    seeds.push_back(out.Finish());
  }
  db->DestroyColumnFamilyHandle(family).PermitUncheckedError();
  stdfs::remove_all(folder);
  seeds.push_back(Writer().U8(251).U16(3).Bytes("abc", 3).U8(0).U16(2).Bytes("de", 2).Finish());
  seeds.push_back(Writer().U8(201).U16(3).Bytes("abc", 3).U8(230).U16(2).Bytes("de", 2).Finish());
  return seeds;
}

const FuzzTarget kFuzzTarget("rocksdb_log", Seeds, [](Reader& in) {
  const File file = Build(in);
  const ReadAt read = ReaderOf(file.bytes);
  size_t index = 0;
  const auto each = [&](std::string record) -> Result<bool> {
    if (index < file.records.size())
      HL_FUZZ_CHECK(record == file.records[index], "another record than was written");
    ++index;
    plugin::LeadsToSpace(record, index == 1);
    return true;
  };
  const Status all = ForEachRecord(read, file.bytes.size(), kNumber, each);
  HL_FUZZ_CHECK(index >= file.records.size(), "a whole record was not found");
  HL_FUZZ_CHECK(!file.regular || (all.ok() && index == file.records.size()), all.ToString());
  ParseManifest(read).status().IgnoreError();
  for (uint64_t offset :
       {uint64_t{0}, file.bytes.size() / 2, file.bytes.size(), uint64_t{kBlock}}) {
    const auto sound = IsSoundRecord(read, offset);
    HL_FUZZ_CHECK(sound.ok(), sound.status().ToString());
    HL_FUZZ_CHECK(
        !file.regular || offset >= file.bytes.size() || offset % kBlock > kBlock - 8 || *sound,
        "a sound record is not seen as one");
  }
  plugin::LeadsToSpace(file.bytes, true);
});

}  // namespace
}  // namespace hyperloop::fuzz
