#include "files/local_scrub.h"

#include <algorithm>
#include <utility>

namespace hyperloop {
namespace {

constexpr uint64_t kScrubPiece = 1u << 20;

}  // namespace

void LocalScrub::Tick() {
  if (rest_ > 0) {
    if (--rest_ == 0) left_ = uses_.list();
    return;
  }
  for (uint64_t budget = kBudget; budget > 0;) {
    if (!reading_.has_value()) {
      if (left_.empty()) break;
      reading_ = Reading{std::move(left_.back()), 0, {}};
      left_.pop_back();
    }
    budget -= std::min(budget, ReadOn(budget));
  }
  if (reading_.has_value() || !left_.empty()) return;
  ++passes_;
  rest_ = kRestTicks;
}

uint64_t LocalScrub::ReadOn(uint64_t budget) {
  buffer_.resize(kScrubPiece);
  const WholeFile& file = reading_->file;
  const uint64_t length = std::min({budget, kScrubPiece, file.size - reading_->at});
  const auto piece = std::span(buffer_).first(length);
  const Result<uint64_t> got =
      length == 0 ? Result<uint64_t>(uint64_t{0}) : uses_.read(file.name, reading_->at, piece);
  if (got.ok()) {
    reading_->checksum.Add(piece.first(*got));
    reading_->at += *got;
    if (*got != 0 && reading_->at < file.size) return *got;
  }
  const Reading whole = *std::exchange(reading_, std::nullopt);
  const bool sound = whole.at == whole.file.size && whole.checksum.value() == whole.file.checksum;
  const Code code = got.status().code();
  const bool damaged = got.ok() ? !sound : code == Code::kCorruption || code == Code::kNotFound;
  if (damaged) uses_.mend(whole.file);
  return std::max<uint64_t>(length, 1);
}

}  // namespace hyperloop
