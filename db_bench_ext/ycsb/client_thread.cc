#include "ycsb/client_thread.h"

#include <memory>

namespace hyperloop::ycsb {

using rocksdb::Status;

ClientThread::ClientThread(rocksdb::DB& db, bool sync, const CoreWorkload& workload,
                           InsertSequence& inserts, uint64_t operations, uint64_t seed)
    : db_(db), inserts_(inserts), chooser_(workload, inserts, operations, seed) {
  write_.sync = sync;
}

template <class Body>
Status ClientThread::Timed(OperationType type, Clock::time_point start, Body&& body) {
  Status status = body();
  const std::chrono::nanoseconds taken = Clock::now() - start;
  if (status.ok()) {
    latencies_[static_cast<size_t>(type)].Record(static_cast<uint64_t>(taken.count()));
  }
  return status;
}

Status ClientThread::RunOne(Clock::time_point start) {
  const OperationType type = chooser_.NextType();
  return Timed(type, start, [&] { return Execute(type); });
}

Status ClientThread::Load(uint64_t record) {
  return Timed(OperationType::kInsert, Clock::now(), [&] { return Insert(record); });
}

Status ClientThread::Execute(OperationType type) {
  if (type == OperationType::kInsert) {
    const uint64_t record = inserts_.Next();
    Status status = Insert(record);
    if (status.ok()) inserts_.Acknowledge(record);
    return status;
  }
  const std::string key = KeyOf(chooser_.NextRecord());
  switch (type) {
    case OperationType::kScan:
      return Scan(key, chooser_.NextScanLength());
    case OperationType::kUpdate:
      return Update(key);
    case OperationType::kReadModifyWrite:
      // The read of its own that YCSB makes before the update.
      if (Status status = Read(key); !status.ok()) return status;
      return Update(key);
    default:
      return Read(key);
  }
}

Status ClientThread::Insert(uint64_t record) {
  value_.resize(kRecordBytes);
  FillRandomly(value_.data(), kRecordBytes);
  return db_.Put(write_, KeyOf(record), value_);
}

Status ClientThread::Read(const std::string& key) {
  Status status = db_.Get(rocksdb::ReadOptions(), key, &value_);
  if (status.IsNotFound()) return Status::NotFound("no record " + key);
  if (status.ok() && value_.size() != kRecordBytes) {
    return Status::Corruption("record " + key + " has " + std::to_string(value_.size()) +
                              " B, not " + std::to_string(kRecordBytes));
  }
  return status;
}

Status ClientThread::Update(const std::string& key) {
  if (Status status = Read(key); !status.ok()) return status;
  const uint64_t field = UniformBelow(chooser_.random(), kFields);
  FillRandomly(value_.data() + field * kFieldBytes, kFieldBytes);
  return db_.Put(write_, key, value_);
}

Status ClientThread::Scan(const std::string& key, uint64_t count) {
  const std::unique_ptr<rocksdb::Iterator> at(db_.NewIterator(rocksdb::ReadOptions()));
  at->Seek(key);
  if (at->Valid() && at->key() != key)
    return Status::NotFound("no record " + key + " to scan from");
  for (; count > 0 && at->Valid(); --count, at->Next())
    value_.assign(at->value().data(), at->value().size());
  return at->status();
}

// Printable, 6 random bits a byte, as YCSB's.
void ClientThread::FillRandomly(char* at, size_t bytes) {
  uint64_t bits = 0;
  for (size_t i = 0; i < bytes; ++i, bits >>= 6) {
    if (i % 10 == 0) bits = chooser_.random()();
    at[i] = static_cast<char>(' ' + (bits & 63));
  }
}

}  // namespace hyperloop::ycsb
