// CpuPause: what a loop that polls does between two looks.
#pragma once

namespace hyperloop {

inline void CpuPause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace hyperloop
