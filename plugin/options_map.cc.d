plugin/hyperloop/options_map.cc.d plugin/hyperloop/options_map.o \
 plugin/hyperloop/options_map.o: plugin/hyperloop/options_map.cc \
 plugin/hyperloop/options_map.h include/rocksdb/utilities/options_type.h \
 include/rocksdb/convenience.h include/rocksdb/compression_type.h \
 include/rocksdb/rocksdb_namespace.h include/rocksdb/db.h \
 include/rocksdb/block_cache_trace_writer.h include/rocksdb/options.h \
 include/rocksdb/advanced_options.h include/rocksdb/cache.h \
 include/rocksdb/memory_allocator.h include/rocksdb/customizable.h \
 include/rocksdb/configurable.h include/rocksdb/status.h \
 include/rocksdb/slice.h include/rocksdb/cleanable.h \
 include/rocksdb/statistics.h include/rocksdb/memtablerep.h \
 include/rocksdb/universal_compaction.h include/rocksdb/comparator.h \
 include/rocksdb/data_structure.h include/rocksdb/env.h \
 include/rocksdb/functor_wrapper.h include/rocksdb/thread_status.h \
 include/rocksdb/file_checksum.h include/rocksdb/listener.h \
 include/rocksdb/compaction_job_stats.h include/rocksdb/io_status.h \
 include/rocksdb/table_properties.h include/rocksdb/types.h \
 include/rocksdb/sst_partitioner.h include/rocksdb/version.h \
 include/rocksdb/write_buffer_manager.h include/rocksdb/system_clock.h \
 include/rocksdb/table_reader_caller.h \
 include/rocksdb/trace_reader_writer.h include/rocksdb/trace_record.h \
 include/rocksdb/iterator.h include/rocksdb/wide_columns.h \
 include/rocksdb/metadata.h include/rocksdb/snapshot.h \
 include/rocksdb/sst_file_writer.h include/rocksdb/transaction_log.h \
 include/rocksdb/write_batch.h include/rocksdb/write_batch_base.h \
 include/rocksdb/table.h \
 /work/wt/rdb/replication/include/hyperloop/replication/options.h \
 /work/wt/rdb/hyperloop_core/include/hyperloop/core/group.h \
 /work/wt/rdb/hyperloop_core/include/hyperloop/core/rnic.h \
 /work/wt/rdb/hyperloop_core/include/hyperloop/core/status.h \
 plugin/hyperloop/status.h
