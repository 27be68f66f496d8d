// Measures what sealing and opening one frame costs: microseconds, the median of rounds of which
// each cipher has one in turn. usage: ciphers_benchmark
#include <sodium.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "hyperloop/identity/openssl_ciphers.h"

namespace hyperloop::identity {
namespace {

using Bytes = std::vector<std::byte>;
constexpr size_t kRounds = 15;

struct Measured {
  Measured(const char* of, std::unique_ptr<Aead> cipher) : name(of), aead(std::move(cipher)) {
    constexpr std::array<unsigned char, AeadKey::extent> kKey = {1};
    aead->SetKey(kKey);
  }

  // Seals and opens `plain` so often that a round takes some milliseconds.
  void Round(const Bytes& plain) {
    const size_t times = 20'000'000 / (5'000 + plain.size() * 3);
    Bytes sealed(plain.size() + kTagBytes), opened(plain.size());
    AeadNonce nonce{};
    const auto begun = std::chrono::steady_clock::now();
    for (size_t i = 0; i < times; ++i) {
      ++nonce[i % nonce.size()];
      aead->Seal(nonce, {}, plain, sealed.data());
      if (!aead->Open(nonce, {}, sealed, opened.data())) std::abort();
    }
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begun;
    rounds.push_back(took.count() / static_cast<double>(times));
  }
  double Median() {
    std::sort(rounds.begin(), rounds.end());
    return rounds[rounds.size() / 2];
  }

  const char* name;
  std::unique_ptr<Aead> aead;
  std::vector<double> rounds;
};

void Run() {
  const Ciphers openssl = OpenSslCiphers();
  std::printf("microseconds to seal and open\n");
  for (const size_t length : {size_t{100}, size_t{1024}, size_t{16} << 10, size_t{64} << 10}) {
    std::vector<Measured> all;
    all.emplace_back("libsodium ChaCha20-Poly1305", MakeSodiumAead(Cipher::kChaCha20Poly1305));
    all.emplace_back("OpenSSL ChaCha20-Poly1305", openssl.make(Cipher::kChaCha20Poly1305));
    if (openssl.aes_256_gcm)
      all.emplace_back("OpenSSL AES-256-GCM", openssl.make(Cipher::kAes256Gcm));
    const Bytes plain(length, std::byte{7});
    for (size_t i = 0; i < kRounds; ++i)
      for (Measured& each : all) each.Round(plain);
    for (Measured& each : all)
      std::printf("%6zu bytes  %-28s %7.2f\n", length, each.name, each.Median());
  }
}

}  // namespace
}  // namespace hyperloop::identity

int main() {
  if (sodium_init() < 0) return 1;  // chooses what is fastest on this processor
  hyperloop::identity::Run();
  return 0;
}
