#include "simulation/promises.h"

namespace hyperloop::simulation {
namespace {

using control::As, control::BodyUnion;

// Calls `look` with the request, if it is one of an epoch's owner.
template <class Look>
void WithOwned(const BodyUnion& request, const Look& look) {
  const auto try_as = [&]<class Request>(const Request* as) {
    if (as != nullptr) look(*as);
  };
  try_as(As<control::AttachRequestT>(request));
  try_as(As<control::ChecksumsRequestT>(request));
  try_as(As<control::InstallRequestT>(request));
  try_as(As<control::PrepareMemberRequestT>(request));
  try_as(As<control::ConnectMemberRequestT>(request));
  try_as(As<control::ReconnectRequestT>(request));
  try_as(As<control::ReleaseRequestT>(request));
}

}  // namespace

bool Promises::Allows(const Promise& made, const BodyUnion& request) {
  bool allows = true;
  if (const auto* const seal = As<control::SealRequestT>(request))
    allows = seal->epoch > made.epoch;
  // What became of a request during which the replica died is not known. So it may have promised
  // more than what is known.
  WithOwned(request, [&](const auto& owned) {
    allows =
        owned.epoch > made.epoch || (owned.epoch == made.epoch && owned.owner_id == made.owner);
  });
  return allows;
}

void Promises::Note(const std::string& replica, const BodyUnion& request, const BodyUnion& reply) {
  if (As<control::ErrorT>(reply) != nullptr) return;
  const auto made = made_.find(replica);
  if (broken_.empty() && made != made_.end() && !Allows(made->second, request)) {
    broken_ = replica + " granted a " + control::EnumNameBody(request.type) +
              " which goes against its promise of epoch " + std::to_string(made->second.epoch);
  }
  if (const auto* const seal = As<control::SealRequestT>(request))
    made_[replica] = {seal->epoch, seal->owner_id};
}

}  // namespace hyperloop::simulation
