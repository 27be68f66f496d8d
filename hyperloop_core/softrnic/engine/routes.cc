#include "softrnic/engine/routes.h"

#include <utility>

#include "softrnic/engine/text.h"

namespace hyperloop::softrnic {

Status Routes::Add(const std::string& host, LinkId link) {
  if (!links_.emplace(GidPrefix(host), link).second)
    return AlreadyExists("peer " + host + " is named twice, or its name's hash is another peer's");
  return {};
}

void Routes::Set(uint64_t prefix, Route* route) {
  links_.erase(prefix);
  if (route != nullptr) links_.insert(std::move(*route));
}

LinkId Routes::To(const GidBytes& gid) const {
  if (!traffic_.attached()) return kNoLink;
  if (clients_.AnyHost([&gid](const Host& host) { return host.gid == gid; })) return kNoLink;
  const auto it = links_.find(GidPrefixAt(gid.data()));
  return it != links_.end() ? it->second : kNoLink;
}

Status Routes::Check(const ModifyQpArgs& args) const {
  const uint64_t prefix = GidPrefixAt(args.remote_gid);
  if (!traffic_.attached() || links_.contains(prefix)) return {};
  if (clients_.AnyHost(
          [prefix](const Host& host) { return GidPrefixAt(host.gid.data()) == prefix; }))
    return {};
  std::ostringstream gid;
  for (int i = 0; i < 16; ++i)
    gid << std::hex << args.remote_gid[i] / 16 << args.remote_gid[i] % 16
        << (i % 2 == 1 && i < 15 ? ":" : "");
  const std::string name = traffic_.port()->NameOf(prefix);
  return Unavailable(Text("modify QP ", args.qpn, ": no route to ",
                          name.empty() ? "a host" : "host " + name, " with GID ", gid.str(),
                          ": it is not attached to this daemon, and none of its peers has this "
                          "name. ",
                          PeerRemedy(name)));
}

std::string Routes::PeerRemedy(const std::string& host) {
  return Text("Add the line ", host.empty() ? "HOST" : host,
              "=ADDRESS:PORT, where that host's daemon listens, to the file of this daemon's "
              "--peers-file, which it reads again by itself");
}

LinkId Routes::ToHost(const std::string& host) const {
  const auto it = links_.find(GidPrefix(host));
  return traffic_.attached() && it != links_.end() ? it->second : kNoLink;
}

}  // namespace hyperloop::softrnic
