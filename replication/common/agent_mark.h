// The mark by which an agent knows the service that it started: the name for people of a group's
// owner has it, if the owner's environment has a tag.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "hyperloop/core/text.h"

namespace hyperloop {

// The environment variable that holds the tag. What a service starts inherits it.
inline constexpr char kAgentVariable[] = "HYPERLOOP_AGENT";
inline constexpr size_t kMaxAgentTag = 80;

// Whether it can be a tag: letters, digits and "-._/".
inline bool IsAgentTag(std::string_view text) {
  constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._/";
  return !text.empty() && text.size() <= kMaxAgentTag &&
         text.find_first_not_of(kLetters) == std::string_view::npos;
}
// " (agent TAG)"; empty: there is no such tag.
inline std::string AgentMark(std::string_view tag) {
  return IsAgentTag(tag) ? Text(" (agent ", tag, ")") : "";
}
// The tag in an owner's name; empty: the owner was started by no agent.
inline std::string_view AgentTagOf(std::string_view owner_name) {
  constexpr std::string_view kBegin = " (agent ";
  const size_t begin = owner_name.find(kBegin);
  if (begin == std::string_view::npos) return {};
  const std::string_view rest = owner_name.substr(begin + kBegin.size());
  const std::string_view tag = rest.substr(0, rest.find(')'));
  return IsAgentTag(tag) ? tag : std::string_view();
}

}  // namespace hyperloop
