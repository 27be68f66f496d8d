// The options page of the documentation.
#include "hyperloop/replication/options.h"

namespace hyperloop {
namespace {

void AppendCell(std::string_view text, std::string* out) {
  for (char c : text) {
    if (c == '|') out->push_back('\\');
    out->push_back(c);
  }
}

}  // namespace

std::string StoreOptionsMarkdown() {
  std::string page =
      "# Options\n\n"
      "<!-- Generated from the table in replication/options/options.cc; `cmake --build build "
      "--target options-page`\n"
      "     writes it anew. -->\n\n"
      "Options are given in the URI, `hyperloop://host:port,host:port?name=value&name=value`, or "
      "in RocksDB's form,\n"
      "`id=hyperloop;replicas=host:port,host:port;name=value`, or in both at once\n"
      "(`id=hyperloop://host:port?device=…;window=16`: the later one wins).\n"
      "Sizes take the suffixes K, M and G (1K = 1024), times take ms and s. In a URI, characters "
      "with a meaning there\n"
      "(`%`, `&`, `=`, `;`, `?`, `#`, space) are percent-encoded. An unknown name or a bad value "
      "is refused, with the reason.\n\n"
      "| option | type | default | accepted | meaning |\n"
      "|---|---|---|---|---|\n";
  for (const OptionInfo& info : StoreOptionTable()) {
    page += "| `" + std::string(info.name) + "` | ";
    AppendCell(info.type, &page);
    page += info.default_value.empty() ? " | none | "
                                       : " | `" + std::string(info.default_value) + "` | ";
    AppendCell(info.range, &page);
    page += " | ";
    AppendCell(info.text, &page);
    page += " |\n";
  }
  return page;
}

}  // namespace hyperloop
