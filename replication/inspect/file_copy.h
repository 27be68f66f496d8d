// Copies of whole files out of a replica's store.
#pragma once

#include <span>
#include <string>

#include "files/file_store.h"
#include "hyperloop/core/status.h"

namespace hyperloop {

// Writes all of `bytes` at the descriptor's position. `path` is for the message.
Status WriteAll(int fd, std::span<const char> bytes, const std::string& path);

// Copies a finished file to `path`, which must not exist, and makes the bytes durable. `*damaged`:
// they are not the file's. kNotFound: the store does not have it. After an error `path` may exist.
Status CopyWhole(const FileStore& store, const WholeFile& file, const std::string& path,
                 bool* damaged);

}  // namespace hyperloop
