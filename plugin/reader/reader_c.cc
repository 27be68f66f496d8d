// The C interface over reader.h and token.h. Handles hold shared pointers to what they were made
// from, so that any order of giving back is right; nothing throws into the caller.
#include "hyperloop/plugin/reader_c.h"

#include <rocksdb/convenience.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hyperloop/plugin/reader.h"
#include "hyperloop/plugin/token.h"

struct hl_reader {
  std::unique_ptr<hyperloop::Reader> reader;
};
struct hl_view {
  std::shared_ptr<const hyperloop::Reader::View> view;
};
struct hl_iterator {
  std::shared_ptr<const hyperloop::Reader::View> view;
  std::unique_ptr<rocksdb::Iterator> iterator;  // goes before the view
  bool given = false;                           // what it stands at
};

namespace {

using hyperloop::Reader;
using hyperloop::Token;
using rocksdb::Slice;
using rocksdb::Status;

std::string& LastError() {
  thread_local std::string text;
  return text;
}

hl_read_code Fail(hl_read_code code, const char* function, std::string_view text) noexcept {
  try {
    LastError() = std::string(function).append(": ").append(text);
  } catch (const std::exception&) {  // no memory for it: better no text than another call's
    LastError().clear();
  }
  return code;
}

hl_read_code CodeOf(const Status& status) {
  if (status.IsMemoryLimit()) return HL_READ_ERROR;  // an Aborted with a subcode
  if (status.IsNotFound()) return HL_READ_NOT_FOUND;
  if (status.IsInvalidArgument()) return HL_READ_INVALID_ARGUMENT;
  if (status.IsTimedOut()) return HL_READ_TIMED_OUT;
  if (status.IsAborted()) return HL_READ_ABORTED;
  if (status.IsTryAgain()) return HL_READ_TRY_AGAIN;
  return HL_READ_ERROR;
}

// Runs `call`, and says what came of it.
template <typename Call>
hl_read_code Run(const char* function, const Call& call) noexcept {
  try {
    const Status status = call();
    return status.ok() ? HL_READ_OK : Fail(CodeOf(status), function, status.ToString());
  } catch (const std::exception& failed) {
    return Fail(HL_READ_ERROR, function, failed.what());
  } catch (...) {  // a merge operator or comparator of the caller's
    return Fail(HL_READ_ERROR, function, "an exception of no known type");
  }
}

hl_read_code NullGiven(const char* function) {
  return Fail(HL_READ_INVALID_ARGUMENT, function, "a pointer that is needed is null");
}

Status FamilyOf(const Reader::View& view, size_t index, rocksdb::ColumnFamilyHandle** family) {
  if (index >= view.families().size())
    return Status::InvalidArgument("the reader has " + std::to_string(view.families().size()) +
                                   " column families, and none of index " + std::to_string(index));
  *family = view.families()[index];
  return {};
}

}  // namespace

size_t hl_read_last_error(char* buffer, size_t size) {
  const std::string& text = LastError();
  if (buffer != nullptr && size > 0) {
    const size_t copied = std::min(size - 1, text.size());
    std::memcpy(buffer, text.data(), copied);
    buffer[copied] = 0;
  }
  return text.size();
}

void hl_read_free(char* value) { std::free(value); }

// --- readers

hl_read_code hl_reader_open(const char* directory, const char* scratch, const char* options,
                            const char* const* families, size_t count, hl_reader** reader) {
  if (directory == nullptr || scratch == nullptr || reader == nullptr) return NullGiven(__func__);
  if (count > 0 && (families == nullptr || std::count(families, families + count, nullptr) > 0))
    return NullGiven(__func__);
  return Run(__func__, [&]() -> Status {
    rocksdb::ConfigOptions strict;
    strict.ignore_unsupported_options = false;  // else a name that nobody knows changes nothing
    rocksdb::Options parsed;
    Status status =
        rocksdb::GetOptionsFromString(strict, parsed, options == nullptr ? "" : options, &parsed);
    if (status.IsNotSupported()) return Status::InvalidArgument(status.ToString());
    if (!status.ok()) return status;
    std::vector<rocksdb::ColumnFamilyDescriptor> described;
    for (size_t i = 0; i < count; ++i)
      described.emplace_back(families[i], rocksdb::ColumnFamilyOptions(parsed));
    if (count == 0)
      described.emplace_back(rocksdb::kDefaultColumnFamilyName,
                             rocksdb::ColumnFamilyOptions(parsed));
    auto made = std::make_unique<hl_reader>();
    status = Reader::Open(parsed, directory, scratch, std::move(described), &made->reader);
    if (status.ok()) *reader = made.release();
    return status;
  });
}

void hl_reader_close(hl_reader* reader) { delete reader; }

hl_read_code hl_reader_catch_up(hl_reader* reader) {
  if (reader == nullptr) return NullGiven(__func__);
  return Run(__func__, [&] { return reader->reader->CatchUp(); });
}

hl_read_code hl_reader_wait_for(hl_reader* reader, const char* token, uint32_t timeout_ms) {
  if (reader == nullptr || token == nullptr) return NullGiven(__func__);
  return Run(__func__, [&]() -> Status {
    Token parsed;
    const Status status = Token::Parse(token, &parsed);
    if (!status.ok()) return status;
    return reader->reader->WaitFor(parsed, std::chrono::milliseconds(timeout_ms));
  });
}

hl_read_code hl_reader_wait_for_fresh(hl_reader* reader, uint32_t most_ms, uint32_t timeout_ms) {
  if (reader == nullptr) return NullGiven(__func__);
  return Run(__func__, [&] {
    return reader->reader->WaitForFresh(std::chrono::milliseconds(most_ms),
                                        std::chrono::milliseconds(timeout_ms));
  });
}

// --- views

hl_view* hl_reader_view(hl_reader* reader) {
  if (reader == nullptr) return nullptr;
  auto* const view = new (std::nothrow) hl_view;
  if (view != nullptr) view->view = reader->reader->view();
  return view;
}

void hl_view_release(hl_view* view) { delete view; }

uint64_t hl_view_as_of_us(const hl_view* view) {
  if (view == nullptr || view->view->as_of() == Reader::Time()) return 0;
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(view->view->as_of().time_since_epoch())
          .count());
}

uint64_t hl_view_sequence(const hl_view* view) {
  return view == nullptr ? 0 : view->view->db()->GetLatestSequenceNumber();
}

hl_read_code hl_view_get(const hl_view* view, size_t family, const void* key, size_t key_size,
                         char** value, size_t* value_size) {
  if (view == nullptr || key == nullptr || value == nullptr || value_size == nullptr)
    return NullGiven(__func__);
  return Run(__func__, [&]() -> Status {
    rocksdb::ColumnFamilyHandle* handle = nullptr;
    Status status = FamilyOf(*view->view, family, &handle);
    if (!status.ok()) return status;
    rocksdb::PinnableSlice found;
    status = view->view->db()->Get(rocksdb::ReadOptions(), handle,
                                   Slice(static_cast<const char*>(key), key_size), &found);
    if (!status.ok()) return status;
    auto* const bytes = static_cast<char*>(std::malloc(found.size() + 1));
    if (bytes == nullptr) return Status::MemoryLimit("no memory for the value");
    std::memcpy(bytes, found.data(), found.size());
    bytes[found.size()] = 0;
    *value = bytes;
    *value_size = found.size();
    return status;
  });
}

hl_read_code hl_iterator_create(const hl_view* view, size_t family, const void* key,
                                size_t key_size, hl_iterator** iterator) {
  if (view == nullptr || iterator == nullptr) return NullGiven(__func__);
  return Run(__func__, [&]() -> Status {
    rocksdb::ColumnFamilyHandle* handle = nullptr;
    const Status status = FamilyOf(*view->view, family, &handle);
    if (!status.ok()) return status;
    auto made = std::make_unique<hl_iterator>();
    made->view = view->view;
    made->iterator.reset(view->view->db()->NewIterator(rocksdb::ReadOptions(), handle));
    if (key == nullptr) {
      made->iterator->SeekToFirst();
    } else {
      made->iterator->Seek(Slice(static_cast<const char*>(key), key_size));
    }
    if (!made->iterator->status().ok()) return made->iterator->status();
    *iterator = made.release();
    return status;
  });
}

void hl_iterator_destroy(hl_iterator* iterator) { delete iterator; }

hl_read_code hl_iterator_next(hl_iterator* iterator, const char** key, size_t* key_size,
                              const char** value, size_t* value_size) {
  if (iterator == nullptr || key == nullptr || key_size == nullptr || value == nullptr ||
      value_size == nullptr)
    return NullGiven(__func__);
  return Run(__func__, [&]() -> Status {
    rocksdb::Iterator& at = *iterator->iterator;
    if (iterator->given && at.Valid()) at.Next();
    iterator->given = true;
    if (!at.status().ok()) return at.status();
    if (!at.Valid()) return Status::NotFound("no more keys");
    *key = at.key().data();
    *key_size = at.key().size();
    *value = at.value().data();
    *value_size = at.value().size();
    return {};
  });
}

// --- tokens

hl_read_code hl_token_write(const char* directory, const char* identity, size_t identity_size,
                            uint64_t sequence, char token[HL_TOKEN_SIZE]) {
  if (directory == nullptr || token == nullptr) return NullGiven(__func__);
  return Run(__func__, [&]() -> Status {
    rocksdb::Env* const local = rocksdb::Env::Default();
    std::string database;
    if (identity != nullptr) {
      database.assign(identity, identity_size);
    } else {
      rocksdb::ReadFileToString(local, std::string(directory) + "/IDENTITY", &database)
          .PermitUncheckedError();
    }
    Token named;
    const Status status = hyperloop::Origin::OfDirectory(local, directory, database, &named.origin);
    if (!status.ok()) return status;
    named.sequence = sequence;
    const std::string text = named.ToText();
    if (text.size() >= HL_TOKEN_SIZE) return Status::InvalidArgument("the token is too long");
    std::memcpy(token, text.c_str(), text.size() + 1);
    return status;
  });
}
