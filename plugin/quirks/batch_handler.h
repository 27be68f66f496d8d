// BatchHandler: goes through the operations of a write batch, of which only the column families and
// the marks of transactions count.
#pragma once

#include <rocksdb/write_batch.h>

#include <cstdint>

namespace hyperloop::plugin {

class BatchHandler : public rocksdb::WriteBatch::Handler {
 public:
  rocksdb::Status PutCF(uint32_t family, const rocksdb::Slice&, const rocksdb::Slice&) override {
    return Entry(family);
  }
  rocksdb::Status PutEntityCF(uint32_t family, const rocksdb::Slice&,
                              const rocksdb::Slice&) override {
    return Entry(family);
  }
  rocksdb::Status DeleteCF(uint32_t family, const rocksdb::Slice&) override {
    return Entry(family);
  }
  rocksdb::Status SingleDeleteCF(uint32_t family, const rocksdb::Slice&) override {
    return Entry(family);
  }
  rocksdb::Status DeleteRangeCF(uint32_t family, const rocksdb::Slice&,
                                const rocksdb::Slice&) override {
    return Entry(family);
  }
  rocksdb::Status MergeCF(uint32_t family, const rocksdb::Slice&, const rocksdb::Slice&) override {
    return Entry(family);
  }
  rocksdb::Status PutBlobIndexCF(uint32_t family, const rocksdb::Slice&,
                                 const rocksdb::Slice&) override {
    return Entry(family);
  }
  void LogData(const rocksdb::Slice&) override {}
  rocksdb::Status MarkNoop(bool) override { return rocksdb::Status::OK(); }
  rocksdb::Status MarkCommitWithTimestamp(const rocksdb::Slice& name,
                                          const rocksdb::Slice&) override {
    return MarkCommit(name);
  }

 protected:
  // An entry of a memtable of this column family.
  virtual rocksdb::Status Entry(uint32_t family) = 0;
};

}  // namespace hyperloop::plugin
