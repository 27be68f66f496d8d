#include "hyperloop/replication/bindings.h"

#include <stdlib.h>

#include <algorithm>
#include <filesystem>

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
  if (normal.size() > 1 && normal.back() == '/') normal.pop_back();
  if (normal == "/") return InvalidArgument("/ cannot be bound, only a directory below it");
  *directory = std::move(normal);
  return Status::Ok();
}

Status AddBinding(std::string_view entry, const std::string& origin, std::vector<Binding>* list) {
  const size_t between = entry.find(kBetween);
  if (between == std::string_view::npos)
    return InvalidArgument("it must be DIR=URI, with a URI that begins with hyperloop://");
  Binding binding;
  binding.origin = origin;
  HL_RETURN_IF_ERROR(ParseDirectory(entry.substr(0, between), &binding.directory));
  if (std::any_of(list->begin(), list->end(),
                  [&](const Binding& other) { return other.directory == binding.directory; }))
    return InvalidArgument(binding.directory + " is bound twice");
  binding.status = ParseStoreUri(entry.substr(between + 1), &binding.options);
  if (binding.status.ok()) binding.status = ValidateStoreOptions(binding.options);
  list->push_back(std::move(binding));
  return Status::Ok();
}

}  // namespace

void AddBindings(std::string_view text, Bindings* bindings) {
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find(';', start), text.size());
    const std::string_view entry = text.substr(start, end - start);
    start = end + 1;
    if (entry.empty()) continue;
    const Status added = AddBinding(entry, kBindVariable, &bindings->list);
    if (bindings->status.ok() && !added.ok())
      bindings->status = added.WithContext(kBindVariable + (": \"" + std::string(entry)) + "\"");
  }
}

Bindings BindingsOfProcess() {
  Bindings bindings;
  if (const char* text = secure_getenv(kBindVariable); text != nullptr)
    AddBindings(text, &bindings);
  return bindings;
}

}  // namespace hyperloop
