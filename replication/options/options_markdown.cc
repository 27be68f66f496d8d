// The options page of the documentation.
#include <algorithm>
#include <string>
#include <string_view>

#include "hyperloop/core/text.h"
#include "hyperloop/replication/options.h"

namespace hyperloop {
namespace {

constexpr size_t kColumns = 120;

// Breaks the text at spaces into lines; those behind the first are indented.
void AppendItem(std::string_view text, std::string* page) {
  constexpr std::string_view kIndent = "  ";
  size_t column = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (column != 0 && column + 1 + word.size() > kColumns) {
      *page += '\n';
      *page += kIndent;
      column = kIndent.size();
    } else if (column != 0) {
      *page += ' ';
      ++column;
    }
    *page += word;
    column += word.size();
  }
  *page += '\n';
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
      "`hyperloop:///NAME` is a group of [hosts alike](operations.md#hosts-alike), whose files say "
      "replicas, host, keys\nand what holds for all hosts; other options may follow it.\n"
      "Sizes take the suffixes K, M and G (1K = 1024), times ms and s; a time without one is in "
      "milliseconds. In a URI,\n"
      "characters with a meaning there (`%`, `&`, `=`, `;`, `?`, `#`, space) are percent-encoded. "
      "An unknown name or a bad\n"
      "value is refused, with the reason.\n\n";
  for (const OptionInfo& info : StoreOptionTable()) {
    const std::string by_default =
        info.default_value.empty() ? "no default" : Text("default `", info.default_value, "`");
    AppendItem(Text("- `", info.name, "`: ", info.type, "; ", by_default,
                    "; accepted: ", info.range, ". ", info.text),
               &page);
  }
  return page;
}

}  // namespace hyperloop
