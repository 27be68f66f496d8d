#include "simulation/history.h"

#include <algorithm>
#include <charconv>

namespace hyperloop::simulation {
namespace {

// Takes the first piece from `content`, and returns its number. 0: it is none.
uint64_t TakePiece(std::string_view* content) {
  uint64_t number = 0;
  const auto [end, error] =
      std::from_chars(content->data(), content->data() + content->size(), number);
  const size_t separator = content->find(';');
  if (error != std::errc() || separator == std::string_view::npos) return 0;
  content->remove_prefix(separator + 1);
  return number;
}

std::string LacksPiece(uint64_t number) {
  return "piece " + std::to_string(number) + " was acknowledged, and is not there";
}

}  // namespace

History::Piece History::Begin(std::string_view note) {
  const uint64_t number = next_++;
  pieces_[number] = false;
  Piece piece{number, std::to_string(number) + std::string(note) + ";"};
  bytes_ += piece.text.size();
  return piece;
}

uint64_t History::acknowledged() const {
  return static_cast<uint64_t>(
      std::ranges::count_if(pieces_, [](const auto& piece) { return piece.second; }));
}

std::string History::Check(std::string_view content) {
  auto expected = pieces_.begin();
  while (!content.empty()) {
    const std::string_view rest = content;
    const uint64_t number = TakePiece(&content);
    if (number == 0) return "'" + std::string(rest.substr(0, 40)) + "' is no whole piece";
    for (; expected != pieces_.end() && expected->first < number;
         expected = pieces_.erase(expected))
      if (expected->second) return LacksPiece(expected->first);
    if (expected == pieces_.end() || expected->first != number)
      return "piece " + std::to_string(number) + " is there in the wrong place, or came back";
    expected->second = true;  // whoever read it relies on it
    ++expected;
  }
  for (; expected != pieces_.end(); expected = pieces_.erase(expected))
    if (expected->second) return LacksPiece(expected->first);
  return "";
}

std::string History::BeginCurrent() {
  currents_.push_back(std::to_string(next_current_++));
  return currents_.back();
}

void History::AcknowledgeCurrent(const std::string& value, uint64_t epoch) {
  // Somebody may have read a later value by now.
  const auto found = std::ranges::find(currents_, value);
  if (found != currents_.end()) currents_.erase(currents_.begin(), found);
  Serves(epoch);
}

std::string History::CheckCurrent(const std::string& value) {
  std::string wrong = LookCurrent(value);
  if (wrong.empty()) currents_ = {value};
  return wrong;
}

std::string History::LookCurrent(const std::string& value) const {
  if (std::ranges::find(currents_, value) != currents_.end()) return "";
  return "the small file holds '" + value + "', and not '" + currents_.front() + "' or later";
}

std::string History::Look(std::string_view content) const {
  History copy = *this;
  return copy.Check(content);
}

void History::GoesOnAs(const History& later) {
  for (; next_ < later.next_; ++next_) pieces_[next_] = false;
  for (; next_current_ < later.next_current_; ++next_current_)
    currents_.push_back(std::to_string(next_current_));
}

}  // namespace hyperloop::simulation
