#include "hyperloop/replication/size.h"

#include "options/option_text.h"

namespace hyperloop {

Result<uint64_t> ParseSize(const std::string& text) {
  if (const auto bytes = option_text::ParseBytes(text)) return *bytes;
  return InvalidArgument("'" + text + "' is no size: give bytes, or a number with K, M or G");
}

}  // namespace hyperloop
