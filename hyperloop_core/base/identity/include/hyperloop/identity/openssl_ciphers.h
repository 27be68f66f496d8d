// OpenSSL's ciphers, which seal long frames two to three times as fast as libsodium's. A library of
// its own, because it needs libcrypto: only programs link it, nothing that other programs load.
#pragma once

#include "hyperloop/identity/ciphers.h"

namespace hyperloop::identity {

// With AES-256-GCM where the processor has instructions for it, without which it is slow and its
// time tells of the key, and where OpenSSL's configuration allows it.
Ciphers OpenSslCiphers();

}  // namespace hyperloop::identity
