// Tells an owner's requests from those of others.
//
// Each process that takes a group makes a random id, and sends it to the replicas in its requests
// only. A replica keeps a digest of the id. So neither its answers nor its pool nor the group's log
// reveal the id, with which somebody else could act as the owner.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "common/uuid.h"

namespace hyperloop {

// The identity of a primary towards the replicas.
struct Ownership {
  uint64_t epoch = 0;
  Uuid owner{};  // sent to the replicas in requests only
  std::string name;
};

// The fields that every request of an owner carries.
template <class Request>
Request OwnerRequest(const Ownership& own) {
  Request request;
  request.epoch = own.epoch;
  request.owner_id.assign(own.owner.begin(), own.owner.end());
  return request;
}

// The one-way digest of an owner's id.
Uuid OwnerDigest(const Uuid& id);
// Whether `id`, as a request carries it, is the owner's id that has this digest.
bool IsOwnerId(std::span<const uint8_t> id, const Uuid& digest);

}  // namespace hyperloop
