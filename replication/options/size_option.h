// Sizes on the command lines of this folder's programs.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "hyperloop/core/text.h"
#include "hyperloop/replication/size.h"
#include "options/option_text.h"

namespace hyperloop {

// A transformation for CLI11: accepts a size from `least` to `most` bytes, as ParseSize reads it,
// and makes bytes of it.
inline CLI::Validator SizeFrom(uint64_t least, uint64_t most) {
  return CLI::Validator(
      [least, most](std::string& text) -> std::string {
        const Result<uint64_t> size = ParseSize(text);
        if (!size.ok() || *size < least || *size > most)
          return Text("'", text, "' is no size from ", option_text::FormatBytes(least), " to ",
                      option_text::FormatBytes(most), " (bytes, or a number with K, M or G)");
        text = std::to_string(*size);
        return "";
      },
      "");
}

}  // namespace hyperloop
