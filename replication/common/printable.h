// Printable: text of unknown origin made fit for a log line or a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hyperloop {

// Returns `text` with every byte escaped (\x1b) that is not part of a printable character. Control
// characters of ASCII and Unicode, marks that change the direction of text, line separators and
// invalid UTF-8 are not printable. The result has at most `limit` bytes, and ends with "…" if it
// was cut. Text that is printable already stays the same.
std::string Printable(std::string_view text, size_t limit);

// Whether Printable would change nothing.
bool IsPrintable(std::string_view text);

}  // namespace hyperloop
