plugin/hyperloop/status.cc.d plugin/hyperloop/status.o \
 plugin/hyperloop/status.o: plugin/hyperloop/status.cc \
 plugin/hyperloop/status.h include/rocksdb/io_status.h \
 include/rocksdb/slice.h include/rocksdb/cleanable.h \
 include/rocksdb/rocksdb_namespace.h include/rocksdb/status.h \
 /work/wt/rdb/hyperloop_core/include/hyperloop/core/status.h
