// HL_THREAD_SANITIZER: this is compiled for TSan, which must be told of an order between
// threads that no lock and no atomic shows it.
#pragma once

#if defined(__SANITIZE_THREAD__)
#define HL_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HL_THREAD_SANITIZER 1
#endif
#endif

#if defined(HL_THREAD_SANITIZER)
extern "C" void __tsan_acquire(void* at);
extern "C" void __tsan_release(void* at);
#endif
