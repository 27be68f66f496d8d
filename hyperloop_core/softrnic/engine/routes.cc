#include "softrnic/engine/routes.h"

#include <cstring>

#include "softrnic/engine/text.h"

namespace hyperloop::softrnic {
namespace {

uint64_t LoadPrefix(const uint8_t* gid) {
  uint64_t prefix;
  std::memcpy(&prefix, gid, sizeof(prefix));
  return be64toh(prefix);
}

}  // namespace

Status Routes::AddPeer(const std::string& host, LinkId link) {
  if (!peers_.emplace(GidPrefix(host), link).second)
    return AlreadyExists("peer " + host + " is named twice, or its name's hash is another peer's");
  return {};
}

LinkId Routes::To(const GidBytes& gid) const {
  if (!traffic_.attached()) return kNoLink;
  if (clients_.AnyHost([&gid](const Host& host) { return host.gid == gid; })) return kNoLink;
  const auto it = peers_.find(LoadPrefix(gid.data()));
  return it != peers_.end() ? it->second : kNoLink;
}

Status Routes::Check(const ModifyQpArgs& args) const {
  const uint64_t prefix = LoadPrefix(args.remote_gid);
  if (!traffic_.attached() || peers_.contains(prefix)) return {};
  if (clients_.AnyHost(
          [prefix](const Host& host) { return LoadPrefix(host.gid.data()) == prefix; }))
    return {};
  std::ostringstream gid;
  for (int i = 0; i < 16; ++i)
    gid << std::hex << args.remote_gid[i] / 16 << args.remote_gid[i] % 16
        << (i % 2 == 1 && i < 15 ? ":" : "");
  return Unavailable(
      Concat("modify QP ", args.qpn, ": no route to GID ", gid.str(),
             ": its host is not attached to this daemon and no --peer names it; start "
             "the daemon with --peer HOST=ADDRESS:PORT for each host of the group"));
}

LinkId Routes::ToHost(const std::string& host) const {
  const auto it = peers_.find(GidPrefix(host));
  return traffic_.attached() && it != peers_.end() ? it->second : kNoLink;
}

}  // namespace hyperloop::softrnic
