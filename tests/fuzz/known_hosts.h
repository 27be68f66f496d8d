// Hosts with keys directories, for fuzz targets. The directories go with the object.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "fuzz/fuzz.h"
#include "hyperloop/identity/keys.h"
#include "support/must.h"

namespace hyperloop::fuzz {

class KnownHosts {
 public:
  KnownHosts() {
    folder_ = std::filesystem::temp_directory_path() / "hyperloop-fuzz-XXXXXX";
    HL_FUZZ_CHECK(mkdtemp(folder_.data()) != nullptr, folder_);
  }
  ~KnownHosts() { std::filesystem::remove_all(folder_); }
  KnownHosts(const KnownHosts&) = delete;
  KnownHosts& operator=(const KnownHosts&) = delete;

  std::string Dir(const std::string& host) const { return folder_ + "/" + host; }
  void Make(const std::string& host) const { Must(identity::MakeIdentity(Dir(host), host)); }
  // `who` trusts `whom`, which was made.
  void Let(const std::string& who, const std::string& whom, identity::Roles roles,
           const std::string& endpoint = "") const {
    const auto ring = Must(identity::KeyRing::Load(Dir(whom)));
    Must(identity::Trust(Dir(who), {whom, ring->public_key(), roles, endpoint}));
  }

 private:
  std::string folder_;
};

}  // namespace hyperloop::fuzz
