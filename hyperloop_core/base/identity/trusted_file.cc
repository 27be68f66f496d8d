// The texts of `trusted`: names, keys, roles, lines.
#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "hyperloop/core/name.h"
#include "hyperloop/core/text.h"
#include "hyperloop/identity/keys.h"

namespace hyperloop::identity {
namespace {

constexpr size_t kMaxLines = 4096;
constexpr size_t kMaxEndpoint = 255;
constexpr std::string_view kHostsWord = "@hosts";
constexpr std::array<std::pair<std::string_view, Roles>, 3> kRoleNames = {{
    {"primary", kRolePrimary},
    {"replica", kRoleReplica},
    {"link", kRoleLink},
}};

bool IsBlank(char ch) { return ch == ' ' || ch == '\t' || ch == '\r'; }

int HexDigit(char ch) {
  if (ch >= '0' && ch <= '9') return ch - '0';
  if (ch >= 'a' && ch <= 'f') return ch - 'a' + 10;
  if (ch >= 'A' && ch <= 'F') return ch - 'A' + 10;
  return -1;
}

std::vector<std::string_view> Words(std::string_view line) {
  std::vector<std::string_view> words;
  for (size_t at = 0; at < line.size();) {
    if (IsBlank(line[at])) {
      ++at;
      continue;
    }
    const size_t begin = at;
    while (at < line.size() && !IsBlank(line[at])) ++at;
    words.push_back(line.substr(begin, at - begin));
  }
  return words;
}

bool ValidEndpoint(std::string_view text) {
  return text.size() <= kMaxEndpoint &&
         std::all_of(text.begin(), text.end(), [](char ch) { return ch > ' ' && ch < 0x7f; });
}

Result<TrustedPeer> ParseLine(std::string_view line) {
  const std::vector<std::string_view> words = Words(line);
  if (words.size() < 3 || words.size() > 4)
    return InvalidArgument(std::to_string(words.size()) +
                           " words; expected NAME PUBLIC_KEY_HEX ROLES [ENDPOINT]");
  TrustedPeer peer;
  if (!IsName(words[0])) return InvalidArgument(Text("the name is not ", kNameRule));
  peer.name = words[0];
  HL_ASSIGN_OR_RETURN(peer.key, ParseKey(words[1]));
  HL_ASSIGN_OR_RETURN(peer.roles, ParseRoles(words[2]));
  if (words.size() < 4) return peer;
  if (!ValidEndpoint(words[3]))
    return InvalidArgument("the endpoint is not up to 255 printable characters");
  peer.endpoint = words[3];
  return peer;
}

// "@hosts FILE".
Status TakeHostsLine(const std::vector<std::string_view>& words, std::string* hosts_file) {
  const std::string_view path = words.size() == 2 ? words[1] : std::string_view();
  if (words[0] != kHostsWord || !ValidEndpoint(path) || !path.starts_with('/') ||
      path.find("/../") != std::string_view::npos)
    return InvalidArgument(
        "expected @hosts FILE, with a path that begins with /, such as /etc/hyperloop/hosts");
  if (!hosts_file->empty())
    return InvalidArgument("a second @hosts: all hosts are lines of one file");
  *hosts_file = path;
  return {};
}

}  // namespace

std::string KeyText(const PublicKey& key) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char each : key) {
    text += kDigits[each >> 4];
    text += kDigits[each & 15];
  }
  return text;
}

Result<PublicKey> ParseKey(std::string_view text) {
  PublicKey key;
  bool good = text.size() == 2 * key.size();
  for (size_t i = 0; good && i < key.size(); ++i) {
    const int high = HexDigit(text[2 * i]), low = HexDigit(text[2 * i + 1]);
    good = high >= 0 && low >= 0;
    key[i] = static_cast<unsigned char>(high * 16 + low);
  }
  if (!good)
    return InvalidArgument("the key is not " + std::to_string(2 * kKeyBytes) +
                           " hexadecimal digits; hyperloopctl keys show prints one");
  return key;
}

std::string RolesText(Roles roles) {
  std::string text;
  for (const auto& [name, role] : kRoleNames)
    if ((roles & role) != 0) text += (text.empty() ? "" : ",") + std::string(name);
  return text.empty() ? "none" : text;
}

Result<Roles> ParseRoles(std::string_view text) {
  Roles roles = 0;
  for (;;) {
    const size_t comma = text.find(',');
    const std::string_view word = text.substr(0, comma);
    const auto found = std::find_if(kRoleNames.begin(), kRoleNames.end(),
                                    [word](const auto& each) { return each.first == word; });
    if (found == kRoleNames.end())
      return InvalidArgument("the roles are not a comma list of primary, replica and link");
    roles |= found->second;
    if (comma == std::string_view::npos) return roles;
    text.remove_prefix(comma + 1);
  }
}

std::string TrustedPeer::Line() const {
  return name + " " + KeyText(key) + " " + RolesText(roles) +
         (endpoint.empty() ? "" : " " + endpoint);
}

Result<std::vector<TrustedPeer>> ParseTrusted(std::string_view text, std::string* hosts_file) {
  std::vector<TrustedPeer> peers;
  std::string hosts;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    const std::vector<std::string_view> words = Words(line);
    if (words.empty() || words.front().front() == '#') continue;
    const std::string where = "line " + std::to_string(number);
    if (words.front().front() == '@') {
      HL_RETURN_IF_ERROR(TakeHostsLine(words, &hosts).WithContext(where));
      continue;
    }
    if (peers.size() == kMaxLines)
      return InvalidArgument(where + ": more than " + std::to_string(kMaxLines) + " peers");
    auto peer = ParseLine(line);
    if (!peer.ok()) return peer.status().WithContext(where);
    for (const TrustedPeer& other : peers)
      if (other.name == peer->name && other.key == peer->key)
        return InvalidArgument(where + ": " + peer->name +
                               " has this key on an earlier line; leave one of them out");
    peers.push_back(*std::move(peer));
  }
  if (hosts_file != nullptr) *hosts_file = std::move(hosts);
  return peers;
}

}  // namespace hyperloop::identity
