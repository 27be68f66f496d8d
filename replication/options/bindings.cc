#include "hyperloop/replication/bindings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "hyperloop/core/trusted_files.h"

namespace hyperloop {
namespace {

namespace stdfs = std::filesystem;

constexpr std::string_view kBetween = "=hyperloop://";

Status ParseDirectory(std::string_view text, std::string* directory) {
  const stdfs::path path(text);
  if (!path.is_absolute()) return InvalidArgument("the directory must begin with /");
  if (std::find(path.begin(), path.end(), "..") != path.end())
    return InvalidArgument("the directory must be written without \"..\"");
  std::string normal = path.lexically_normal();
  while (normal.size() > 1 && normal.back() == '/') normal.pop_back();
  if (normal == "/") return InvalidArgument("/ cannot be bound, only a directory below it");
  *directory = std::move(normal);
  return Status::Ok();
}

bool IsBound(const std::vector<DirectoryBinding>& list, const std::string& directory) {
  return std::any_of(list.begin(), list.end(), [&](const DirectoryBinding& binding) {
    return binding.directory == directory;
  });
}

Status AddBinding(std::string_view entry, const std::string& origin,
                  std::vector<DirectoryBinding>* list) {
  const size_t between = entry.find(kBetween);
  if (between == std::string_view::npos)
    return InvalidArgument("it must be DIR=URI, with a URI that begins with hyperloop://");
  DirectoryBinding binding;
  binding.origin = origin;
  HL_RETURN_IF_ERROR(ParseDirectory(entry.substr(0, between), &binding.directory));
  if (IsBound(*list, binding.directory))
    return InvalidArgument(binding.directory + " is bound twice");
  binding.status = ParseStoreUri(entry.substr(between + 1), &binding.options);
  if (binding.status.ok()) binding.status = ValidateStoreOptions(binding.options);
  list->push_back(std::move(binding));
  return Status::Ok();
}

// Adds each part of `text` between two `separator`s that is an entry. `trim` makes an entry, or an
// empty text, of a part; `origin` says where the part with a number is, counted from 1.
template <class Trim, class Origin>
Bindings ParseBindings(std::string_view text, char separator, Trim&& trim, Origin&& origin) {
  Bindings bindings;
  size_t number = 0;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find(separator, start), text.size());
    const std::string_view entry = trim(text.substr(start, end - start));
    start = end + 1;
    ++number;
    if (entry.empty()) continue;
    const std::string where = origin(number);
    const Status added = AddBinding(entry, where, &bindings.list);
    if (bindings.status.ok() && !added.ok())
      bindings.status = added.WithContext(where + ": \"" + std::string(entry) + "\"");
  }
  return bindings;
}

std::string_view LineWithoutComment(std::string_view line) {
  constexpr std::string_view kBlank = " \t\r";
  const size_t first = std::min(line.find_first_not_of(kBlank), line.size());
  line = line.substr(first, line.find_last_not_of(kBlank) + 1 - first);
  return line.starts_with('#') ? std::string_view() : line;
}

Result<std::string> ReadBindingsFile(const std::string& path) {
  HL_ASSIGN_OR_RETURN(const std::string folder,
                      CheckDirectory(stdfs::path(path).parent_path(), DirectoryRule::kShared));
  const std::string resolved = folder + "/" + std::string(stdfs::path(path).filename());
  HL_ASSIGN_OR_RETURN(const UniqueFd file, OpenTrustedFile(resolved, O_RDONLY));
  struct stat found {};
  if (::fstat(file.get(), &found) != 0) return FromErrno(errno, path);
  if (::getauxval(AT_SECURE) != 0 && found.st_uid != 0)
    return PermissionDenied(path +
                            " must belong to root, because this program has rights of others");
  return ReadTrustedFile(resolved);
}

void Merge(Bindings from, Bindings* into) {
  for (DirectoryBinding& binding : from.list) {
    if (!IsBound(into->list, binding.directory)) into->list.push_back(std::move(binding));
  }
  if (into->status.ok()) into->status = std::move(from.status);
}

}  // namespace

void AddBindings(std::string_view text, Bindings* bindings) {
  Merge(ParseBindings(
            text, ';', [](std::string_view entry) { return entry; },
            [](size_t) { return std::string(kBindVariable); }),
        bindings);
}

void AddBindingsFile(const std::string& path, Bindings* bindings) {
  const Result<std::string> text = ReadBindingsFile(path);
  if (text.status().code() == Code::kNotFound) return;
  if (!text.ok()) {
    if (bindings->status.ok()) bindings->status = text.status().WithContext("bound directories");
    return;
  }
  Merge(ParseBindings(*text, '\n', LineWithoutComment,
                      [&](size_t line) { return path + ":" + std::to_string(line); }),
        bindings);
}

Bindings BindingsOfProcess() {
  Bindings bindings;
  if (const char* text = secure_getenv(kBindVariable); text != nullptr)
    AddBindings(text, &bindings);
  AddBindingsFile(kBindingsFile, &bindings);
  return bindings;
}

}  // namespace hyperloop
