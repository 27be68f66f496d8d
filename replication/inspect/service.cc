#include "inspect/service.h"

#include <cstring>

#include "hyperloop/core/text.h"
#include "region/media.h"
#include "region/region_layout.h"

namespace hyperloop {

Result<InspectInfo> ParseInspectInfo(std::span<const std::byte> data, std::string_view host) {
  InspectInfo info;
  if (data.size() != sizeof(info)) {
    return Corruption(
        Text(host, " published ", data.size(), " B about itself, not ", sizeof(info)));
  }
  std::memcpy(&info, data.data(), sizeof(info));
  if (info.magic != kInspectMagic) return Corruption(Text(host, " is not a HyperLoop replica"));
  if (info.version != kInspectVersion) {
    return NotSupported(
        Text(host, " publishes version ", info.version, ", this program knows ", kInspectVersion));
  }
  if (info.region_size > kMaxRegionSize || info.page_size != kNodePageSize ||
      !DecodeMedia(info.media).ok()) {
    return Corruption(Text(host, " published impossible sizes"));
  }
  return info;
}

}  // namespace hyperloop
