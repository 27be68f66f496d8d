#include "verbs/library.h"

#include <dlfcn.h>

#include <string>

namespace hyperloop::verbs {
namespace {

Status Missing(const char* what, const char* package) {
  const char* reason = dlerror();
  return NotSupported(std::string("provider verbs needs ") + what + " (" +
                      (reason != nullptr ? reason : "not found") + "); install the package " +
                      package);
}

template <class Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

Status Fill(Library* library) {
  void* verbs = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  if (verbs == nullptr) return Missing("libibverbs", "libibverbs1 and ibverbs-providers");
  void* cm = dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL);
  if (cm == nullptr) return Missing("librdmacm", "librdmacm1");
#define HL_FIND(name) \
  if (!Find(verbs, #name, &library->name)) return Missing(#name, "libibverbs1");
  HL_VERBS_FUNCTIONS(HL_FIND)
#undef HL_FIND
#define HL_FIND(name) \
  if (!Find(cm, #name, &library->name)) return Missing(#name, "librdmacm1");
  HL_RDMACM_FUNCTIONS(HL_FIND)
#undef HL_FIND
  // Must come before any registration. Unless the kernel copies pinned pages at fork, registered
  // memory is then left out of children, which may not use it anyway.
  if (const int error = library->ibv_fork_init(); error != 0) {
    return FromErrno(error, "ibv_fork_init");
  }
  return {};
}

}  // namespace

Result<const Library*> Library::Load() {
  static Library library;
  static const Status status = Fill(&library);
  if (!status.ok()) return status;
  return &library;
}

}  // namespace hyperloop::verbs
