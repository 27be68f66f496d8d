plugin/hyperloop/info_log.cc.d plugin/hyperloop/info_log.o \
 plugin/hyperloop/info_log.o: plugin/hyperloop/info_log.cc \
 plugin/hyperloop/info_log.h include/rocksdb/env.h \
 include/rocksdb/customizable.h include/rocksdb/configurable.h \
 include/rocksdb/rocksdb_namespace.h include/rocksdb/status.h \
 include/rocksdb/slice.h include/rocksdb/cleanable.h \
 include/rocksdb/functor_wrapper.h include/rocksdb/thread_status.h \
 /work/wt/rdb/hyperloop_core/include/hyperloop/core/log.h
