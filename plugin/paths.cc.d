plugin/hyperloop/paths.cc.d plugin/hyperloop/paths.o \
 plugin/hyperloop/paths.o: plugin/hyperloop/paths.cc \
 plugin/hyperloop/paths.h
