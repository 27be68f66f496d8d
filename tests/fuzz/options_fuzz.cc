// URIs, single options, endpoints, links' peers and bound directories of any text: each gets an
// answer, a refusal changes nothing, and an accepted text keeps its meaning when it is printed and
// parsed again. The same for what a replica publishes about itself, of any bytes. At an endpoint
// with a numeric address somebody can listen and be reached, where that is allowed.
#include <algorithm>
#include <chrono>
#include <set>

#include "control/endpoint.h"
#include "fuzz/fuzz.h"
#include "hyperloop/replication/bindings.h"
#include "hyperloop/replication/options.h"
#include "inspect/service.h"
#include "layout/region_layout.h"
#include "pool/media.h"
#include "softrnic/daemon/link_options.h"

namespace hyperloop::fuzz {
namespace {

enum Kind : uint8_t { kUri, kOption, kEndpoint, kInspect, kLinkPeer, kBindings };

void Uri(std::string_view text) {
  StoreOptions options;
  const std::string before = FormatStoreUri(options);
  const Status status = ParseStoreUri(text, &options);
  if (!status.ok()) {
    HL_FUZZ_CHECK(!status.message().empty(), "a refusal without a reason");
    HL_FUZZ_CHECK(FormatStoreUri(options) == before, "a refused URI changed options");
    return;
  }
  ValidateStoreOptions(options).IgnoreError();
  const std::string canonical = FormatStoreUri(options);
  StoreOptions again;
  const Status reparsed = ParseStoreUri(canonical, &again);
  HL_FUZZ_CHECK(reparsed.ok(), canonical + ": " + reparsed.ToString());
  HL_FUZZ_CHECK(FormatStoreUri(again) == canonical, canonical);
}

void Option(Reader& in) {
  const auto table = StoreOptionTable();
  const uint8_t which = in.U8();
  const size_t name_length = in.U8();
  const auto own = in.Bytes(name_length);
  const std::string name =
      which < table.size() ? std::string(table[which].name) : std::string(own.begin(), own.end());
  const auto rest = in.Rest();
  const std::string value(rest.begin(), rest.end());
  StoreOptions options;
  const std::string before = FormatStoreUri(options);
  const Status status = SetStoreOption(name, value, &options);
  if (!status.ok()) {
    HL_FUZZ_CHECK(FormatStoreUri(options) == before, "a refused option changed something");
    return;
  }
  const auto canonical = GetStoreOption(name, options);
  HL_FUZZ_CHECK(canonical.ok(), name);
  StoreOptions again;
  const Status reparsed = SetStoreOption(name, *canonical, &again);
  HL_FUZZ_CHECK(reparsed.ok(), name + "=" + *canonical + ": " + reparsed.ToString());
  HL_FUZZ_CHECK(*GetStoreOption(name, again) == *canonical, name + "=" + *canonical);
}

// Names would be looked up.
bool IsNumeric(const std::string& host) {
  return host.find_first_not_of("0123456789abcdef:.") == std::string::npos &&
         (host.find(':') != std::string::npos || std::count(host.begin(), host.end(), '.') == 3);
}

void ListenThere(control::Endpoint endpoint) {
  constexpr size_t kLongestName = 255;  // of the domain name system; a longer one is not looked up
  if (!IsNumeric(endpoint.host) && endpoint.host.size() <= kLongestName) return;
  endpoint.port = 0;
  control::Endpoint bound;
  const auto soon = [] { return control::Clock::now() + std::chrono::seconds(20); };
  auto listener = control::ListenOn(endpoint, &bound, /*loopback_only=*/true);
  if (!listener.ok()) {
    HL_FUZZ_CHECK(!listener.status().message().empty(), "a refusal without a reason");
    return;
  }
  HL_FUZZ_CHECK(bound.port != 0 && bound.host == endpoint.host, bound.ToString());
  if (bound.host == "127.255.255.255") return;  // a broadcast address, which nobody connects to
  const auto connected = control::ConnectTo(bound, soon());
  HL_FUZZ_CHECK(connected.ok(), connected.status().ToString());
  control::Endpoint again;
  HL_FUZZ_CHECK(!control::ListenOn(bound, &again, true).ok(), "two listen at one place");
  *listener = UniqueFd();
  HL_FUZZ_CHECK(!control::ConnectTo(bound, soon()).ok(), "nobody listens");
}

void EndpointText(std::string_view text) {
  const auto endpoint = control::ParseEndpoint(text);
  if (!endpoint.ok()) return;
  const auto again = control::ParseEndpoint(endpoint->ToString());
  HL_FUZZ_CHECK(again.ok(), endpoint->ToString());
  HL_FUZZ_CHECK(again->host == endpoint->host && again->port == endpoint->port,
                endpoint->ToString());
  ListenThere(*endpoint);
}

void LinkPeerText(std::string_view text) {
  const auto peer = softrnic::ParseLinkPeer(text);
  if (!peer.ok()) {
    HL_FUZZ_CHECK(!peer.status().message().empty(), "a refusal without a reason");
    return;
  }
  const std::string canonical = peer->host + "=" + peer->address.ToString();
  const auto again = softrnic::ParseLinkPeer(canonical);
  HL_FUZZ_CHECK(again.ok(), canonical);
  HL_FUZZ_CHECK(again->host == peer->host && again->address == peer->address, canonical);
}

void CheckBoundDirectory(const std::string& directory) {
  HL_FUZZ_CHECK(directory.size() > 1 && directory.front() == '/' && directory.back() != '/',
                directory);
  const std::string in_slashes = directory + "/";
  for (const char* const part : {"//", "/./", "/../"})
    HL_FUZZ_CHECK(in_slashes.find(part) == std::string::npos, directory);
}

void BindingsText(std::string_view text) {
  Bindings bindings;
  AddBindings(text, &bindings);
  HL_FUZZ_CHECK(bindings.status.ok() || !bindings.status.message().empty(), "without a reason");
  std::string canonical;
  std::set<std::string> directories;
  for (const DirectoryBinding& binding : bindings.list) {
    CheckBoundDirectory(binding.directory);
    HL_FUZZ_CHECK(directories.insert(binding.directory).second, binding.directory + " twice");
    HL_FUZZ_CHECK(!binding.origin.empty(), binding.directory);
    if (binding.status.ok() && binding.directory.find(';') == std::string::npos)
      canonical += binding.directory + "=" + FormatStoreUri(binding.options) + ";";
  }
  Bindings again;
  AddBindings(canonical, &again);
  HL_FUZZ_CHECK(again.status.ok(), canonical + ": " + again.status.ToString());
  for (const DirectoryBinding& binding : again.list)
    HL_FUZZ_CHECK(binding.status.ok() && directories.count(binding.directory) == 1, canonical);
}

void Inspect(std::span<const uint8_t> bytes) {
  const auto info = ParseInspectInfo(std::as_bytes(bytes), "host");
  if (!info.ok()) {
    HL_FUZZ_CHECK(info.status().message().starts_with("host "), info.status().ToString());
    return;
  }
  HL_FUZZ_CHECK(
      bytes.size() == sizeof *info && std::memcmp(&*info, bytes.data(), bytes.size()) == 0,
      "what was parsed is not what was published");
  HL_FUZZ_CHECK(info->region_size <= kMaxRegionSize && info->page_size == kNodePageSize,
                "a size that no replica has");
  const auto media = DecodeMedia(info->media);
  HL_FUZZ_CHECK(media.ok() && EncodeMedia(*media) == info->media, "a medium that is none");
}

Input Seed(Kind kind, std::string_view text) {
  Input input = FromText(text);
  input.insert(input.begin(), kind);
  return input;
}

}  // namespace

std::vector<Input> Seeds() {
  std::vector<Input> seeds = {
      Seed(kUri, "hyperloop"),
      Seed(kUri, "hyperloop:"),
      Seed(kUri, "hyperloop://h1:7000,[::1]:7001?device=/tmp/a%20b&window=16&pool=/dev/shm/p"),
      Seed(kUri, "hyperloop://?replicas=a:1,b:2&ack=sync&local_sync=true&ack_timeout=2s"),
      Seed(kUri, "hyperloop://a:1?window=4&window=8&x"),
      Seed(kUri, "hyperloop://a:1?window=%4"),
      Seed(kEndpoint, "localhost:7000"),
      Seed(kEndpoint, "[::1]:0"),
      Seed(kEndpoint, "127.0.0.1:1"),
      Seed(kEndpoint, "0.0.0.0:7000"),
      Seed(kEndpoint, "[fe80::1]:7000"),
      Seed(kEndpoint, "1.2.3.4.5:7000"),
      Seed(kEndpoint, "127.255.255.255:7000"),
      Seed(kEndpoint, std::string(300, 'a') + ":7000"),
      Seed(kLinkPeer, "b=127.0.0.1:7471"),
      Seed(kLinkPeer, "host-2=[fd00::1]:65535"),
      Seed(kLinkPeer, "b=::1:7471"),
      Seed(kLinkPeer, "b=127.0.0.1"),
      Seed(kBindings, "/a/./b//=hyperloop://h:1?device=/run/d&pool=/p;;/a=hyperloop://h:2"),
      Seed(kBindings, "/a=hyperloop://h:1;/a/=hyperloop://h:2"),
      Seed(kBindings, "/a/../b=hyperloop://h:1"),
      Seed(kBindings, "/=hyperloop://h:1;a=hyperloop://h:1;/b"),
      Seed(kBindings, "///=hyperloop://h:1"),
  };
  StoreOptions options;
  options.replicas = {"h1:1", "h2:2", "[fe80::1]:3"};
  options.device = "/run/a?b&c=%;#d";
  options.pool = "/pool with space";
  options.journal_size = 3ull << 20;
  options.space_timeout = std::chrono::milliseconds(1500);
  seeds.push_back(Seed(kUri, FormatStoreUri(options)));
  const InspectInfo info{kInspectMagic,
                         kInspectVersion,
                         1u << 20,
                         kMaxRegionSize,
                         1u << 30,
                         kNodePageSize,
                         5,
                         6,
                         EncodeMedia({rnic::Media::kPmem, true}),
                         0};
  seeds.push_back(Writer().U8(kInspect).Put(info).Finish());
  const auto table = StoreOptionTable();
  for (size_t i = 0; i < table.size(); ++i) {
    Writer option;
    option.U8(kOption).U8(static_cast<unsigned>(i)).U8(0);
    const std::string value = *GetStoreOption(table[i].name, options);
    seeds.push_back(option.Bytes(value.data(), value.size()).Finish());
  }
  return seeds;
}

}  // namespace hyperloop::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hyperloop::fuzz;  // NOLINT(google-build-using-namespace)
  Reader in(data, size);
  const uint8_t kind = in.U8();
  if (kind == kOption) {
    Option(in);
    return 0;
  }
  const auto rest = in.Rest();
  const std::string text(rest.begin(), rest.end());
  switch (kind) {
    case kEndpoint:
      EndpointText(text);
      break;
    case kInspect:
      Inspect(rest);
      break;
    case kLinkPeer:
      LinkPeerText(text);
      break;
    case kBindings:
      BindingsText(text);
      break;
    default:
      Uri(text);
  }
  return 0;
}
