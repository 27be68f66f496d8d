// Printable: text of unknown origin made fit for a log line or a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hyperloop {

// `text` with every byte escaped (\x1b) that does not belong to a printable character: control
// characters of ASCII and Unicode, marks that turn the direction of what follows, separators of
// lines, and what is no UTF-8. At most `limit` bytes, the last ones "…" if something was cut.
// Printing what is printable already changes nothing.
std::string Printable(std::string_view text, size_t limit);

// Whether Printable would change nothing.
bool IsPrintable(std::string_view text);

}  // namespace hyperloop
