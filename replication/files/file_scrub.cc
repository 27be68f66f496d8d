#include "files/file_scrub.h"

#include <algorithm>
#include <utility>

#include "hyperloop/core/text.h"

namespace hyperloop {
namespace {

constexpr uint64_t kPiece = 1u << 20;
constexpr size_t kMostNames = 5;

}  // namespace

void FileScrub::Tick(FileStore& store) {
  if (store.directory() != directory_) {
    directory_ = store.directory();
    left_.clear();
    reading_.reset();
    rest_ = kFirstTicks;
    LookAside(store);
  }
  if (rest_ > 0) {
    if (--rest_ == 0) Begin(store);
    return;
  }
  for (uint64_t budget = kBudget; budget > 0;) {
    if (!reading_.has_value()) {
      if (left_.empty()) break;
      reading_ = Reading{std::move(left_.back()), 0, {}};
      left_.pop_back();
      store.Uncache(reading_->file);
    }
    budget -= ReadOn(store, budget);
    if (rest_ > 0) return;  // it was given up
  }
  if (reading_.has_value() || !left_.empty()) return;
  ++passes_;
  rest_ = kRestTicks;
  LookAside(store);
}

void FileScrub::Begin(FileStore& store) {
  Result<std::vector<FileStore::Stored>> files = store.List();
  if (!files.ok()) {
    rest_ = kFirstTicks;
    return;
  }
  for (FileStore::Stored& each : *files)
    if (each.finished) left_.push_back(std::move(each.file));
  LookAside(store);
}

uint64_t FileScrub::ReadOn(FileStore& store, uint64_t budget) {
  buffer_.resize(kPiece);
  const auto piece = std::span(buffer_).first(std::min(budget, kPiece));
  const WholeFile& file = reading_->file;
  const Result<uint64_t> got = store.Read(file, reading_->at, piece);
  if (got.status().code() == Code::kNotFound) {  // the database dropped it meanwhile
    reading_.reset();
    return 1;
  }
  if (got.status().code() == Code::kCorruption) {
    const Reading failed = *std::exchange(reading_, std::nullopt);
    SetAside(store, failed.file, got.status().message());
    return piece.size();
  }
  if (!got.ok()) {
    GiveUp(got.status());
    return budget;
  }
  reading_->checksum.Add({reinterpret_cast<const char*>(piece.data()), *got});
  reading_->at += *got;
  if (*got == piece.size() && reading_->at < file.size) return *got;
  const Reading whole = *std::exchange(reading_, std::nullopt);
  store.Uncache(whole.file);
  if (whole.at != whole.file.size || whole.checksum.value() != whole.file.checksum)
    SetAside(store, whole.file, "it fails its checksum");
  return std::max<uint64_t>(*got, 1);
}

void FileScrub::GiveUp(const Status& why) {
  Say(LogLevel::kWarn,
      Text("the check of the database's files ended before its time, and will begin "
           "again: ",
           why.message()));
  reading_.reset();
  left_.clear();
  rest_ = kFirstTicks;
}

void FileScrub::SetAside(FileStore& store, const WholeFile& file, const std::string& why) {
  const Result<std::string> aside = store.SetAside(file);
  if (aside.status().code() == Code::kNotFound) return;
  Say(LogLevel::kError,
      Text("the file \"", file.name, "\" (", file.size,
           " B) of the database is damaged here: ", why, "; ",
           aside.ok() ? Text("it was set aside as ", *aside, ", and the primary sends it again")
                      : aside.status().message()));
  LookAside(store);
}

void FileScrub::LookAside(const FileStore& store) {
  const Result<std::vector<std::string>> files = store.Aside();
  if (!files.ok()) return;
  std::string names;
  for (size_t i = 0; i < std::min(files->size(), kMostNames); ++i)
    names += (i == 0 ? "" : ", ") + (*files)[i];
  if (files->size() > kMostNames) names += ", and others";
  aside_ = files->empty()
               ? ""
               : Text(files->size(), " damaged files of the database were set aside in ",
                      store.directory(), ": ", names, "; remove them when you have looked at them");
}

void FileScrub::Say(LogLevel level, const std::string& text) const {
  if (log_ != nullptr) log_->Write(level, text);
}

}  // namespace hyperloop
