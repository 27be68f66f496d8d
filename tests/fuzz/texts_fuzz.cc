// Files and other small texts of any content, each with its reader: ELF files, cluster files, pid
// files, what /proc says of a process, pairing files, the daemon's options with its file of peers,
// names of devices and of database files, the private data of a verbs connection, URIs, single
// options, endpoints, links' peers, bound directories, files of hosts and of groups, histories of
// agents, answers by HTTP, and what a replica publishes about itself.
// Rules: each gets an answer or a refusal with a reason; a refusal changes nothing; what is
// accepted keeps its meaning when it is written and read again; another way of reading it agrees.
// At an endpoint with a numeric address somebody can listen and be reached, where that is allowed.
//
// An input may say that one byte stands there many times, so that short inputs make long files.
#include <elf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cluster/cluster_file.h"
#include "cluster/process.h"
#include "cluster/process_id.h"
#include "control/endpoint.h"
#include "ctl/agent_history.h"
#include "ctl/elf.h"
#include "ctl/http_get.h"
#include "files/file_store.h"
#include "fuzz/fuzz.h"
#include "hyperloop/core/group.h"
#include "hyperloop/core/name.h"
#include "hyperloop/identity/hosts.h"
#include "hyperloop/identity/keys.h"
#include "hyperloop/replication/bindings.h"
#include "hyperloop/replication/crc32c.h"
#include "hyperloop/replication/options.h"
#include "inspect/service.h"
#include "local/paths.h"
#include "opening/pairing_file.h"
#include "options/node_group.h"
#include "region/media.h"
#include "region/region_layout.h"
#include "softrnic/daemon/link_options.h"
#include "softrnic/links/packet.h"
#include "support/must.h"
#include "verbs/device_name.h"
#include "verbs/service_request.h"

namespace hyperloop::fuzz {
namespace {

namespace stdfs = std::filesystem;

enum Kind : uint8_t {
  kElf,
  kClusterFile,
  kPidFile,
  kStat,
  kStatus,
  kPairing,
  kPeersFile,
  kLinkOptions,
  kDeviceName,
  kFileName,
  kServiceRequest,
  kServiceAnswer,
  kUri,
  kOption,
  kEndpoint,
  kInspect,
  kLinkPeer,
  kBindings,
  kHosts,
  kGroup,
  kHistory,
  kHttpAnswer,
  kKinds
};

class Folder {
 public:
  static const Folder& Get() {
    static const Folder folder;
    return folder;
  }
  std::string File(const std::string& name) const { return path_ + "/" + name; }
  // Makes the file anew.
  std::string Write(const std::string& name, std::string_view text) const {
    const std::string path = File(name);
    stdfs::remove(path);
    std::ofstream(path, std::ios::binary).write(text.data(), static_cast<ssize_t>(text.size()));
    return path;
  }

 private:
  Folder() {
    path_ = "/dev/shm/hyperloop-fuzz-XXXXXX";
    HL_FUZZ_CHECK(mkdtemp(path_.data()) != nullptr, path_);
  }
  ~Folder() { stdfs::remove_all(path_); }
  std::string path_;
};

void CheckReason(const Status& status) {
  HL_FUZZ_CHECK(status.ok() || !status.message().empty(), "a refusal without a reason");
}

void ElfFile(const std::string& text) {
  const auto info = ctl::ParseElf(text, "f");
  CheckReason(info.status());
  const auto read = ctl::ReadElf(Folder::Get().Write("elf", text));
  HL_FUZZ_CHECK(read.ok() == info.ok(), "the file and its bytes");
  if (!info.ok()) return;
  HL_FUZZ_CHECK(read->needed == info->needed && read->machine == info->machine &&
                    read->has_interpreter == info->has_interpreter,
                "the file and its bytes");
  HL_FUZZ_CHECK(info->needed.size() <= text.size() / sizeof(Elf64_Dyn), "more names than entries");
  for (const std::string& name : info->needed)
    HL_FUZZ_CHECK(text.find(name + '\0') != std::string::npos, "a name that is not there");
}

void HostsFile(const std::string& text) {
  const auto hosts = identity::ParseHosts(text, "f");
  CheckReason(hosts.status());
  if (!hosts.ok() || text.size() > identity::kMostHostsBytes) return;
  HL_FUZZ_CHECK(Must(identity::ReadHosts(Folder::Get().Write("hosts", text))) == *hosts,
                "the file and its bytes");
  HL_FUZZ_CHECK(!hosts->empty() && hosts->size() <= identity::kMostHosts, "hosts");
  std::string again;
  for (const identity::HostLine& host : *hosts) {
    Must(softrnic::ParseLinkPeer(host.name + "=" + host.At(identity::kLinkPort)));
    HL_FUZZ_CHECK(std::ranges::count(*hosts, host.key, &identity::HostLine::key) == 1, host.name);
    HL_FUZZ_CHECK(std::ranges::count(*hosts, host.name, &identity::HostLine::name) == 1, host.name);
    again += host.Line() + "\n";
  }
  HL_FUZZ_CHECK(Must(identity::ParseHosts(again, "f")) == *hosts, again);
}

// The folder of a host a, which knows b and c, too.
const std::string& NodeFolder() {
  static const std::string node = [] {
    const std::string path = Folder::Get().File("node");
    stdfs::create_directories(path + "/groups");
    Must(identity::MakeIdentity(identity::KeysFolderIn(path), "a"));
    Must(identity::TrustHosts(identity::KeysFolderIn(path), identity::HostsFileIn(path)));
    const auto keys = Must(identity::KeyRing::Load(identity::KeysFolderIn(path)));
    const identity::HostLine hosts[] = {
        {"a", "10.0.0.1", keys->public_key()}, {"b", "10.0.0.2", {1}}, {"c", "fd00::3", {2}}};
    std::ofstream file(identity::HostsFileIn(path));
    for (const identity::HostLine& each : hosts) file << each.Line() << "\n";
    return path;
  }();
  return node;
}

// What a URI hyperloop:///g would be on that host.
void GroupOfNode(const std::string& text) {
  Folder::Get().Write("node/groups/g.conf", text);
  const auto group = ReadNodeGroup("g", NodeFolder());
  CheckReason(group.status());
  if (!group.ok()) return;
  HL_FUZZ_CHECK(!group->store.replicas.empty() && group->store.host == "a", "replicas");
  for (const std::string* const path : {&group->pool, &group->database, &group->store.pool})
    HL_FUZZ_CHECK(path->starts_with('/') && path->find("/../") == std::string::npos, *path);
  StoreOptions again;
  Must(ParseStoreUri(FormatStoreUri(group->store), &again));
  HL_FUZZ_CHECK(FormatStoreUri(again) == FormatStoreUri(group->store), text);
}

void GroupText(const std::string& text) {
  NodeFolder();
  GroupOfNode(text);
  const auto group = identity::ParseGroup(text, "f.conf");
  CheckReason(group.status());
  if (!group.ok()) return;
  std::string again = "port=" + std::to_string(group->port) + "\nhosts=";
  for (const std::string& host : group->hosts) {
    HL_FUZZ_CHECK(IsName(host) && std::ranges::count(group->hosts, host) == 1, host);
    again += host + ",";
  }
  again += "\n";
  const auto rewritten = Must(identity::ParseGroup(again, "f.conf"));
  HL_FUZZ_CHECK(rewritten.hosts == group->hosts && rewritten.port == group->port, again);
}

void HistoryText(const std::string& text) {
  size_t bad = 0;
  const auto events = ctl::ParseAgentEvents(text, &bad);
  const std::string path = Folder::Get().Write("history", text);
  HL_FUZZ_CHECK(Must(ctl::ReadHistoryFile(path, text.size())) == text, "the file and its bytes");
  const std::string end = Must(ctl::ReadHistoryFile(path, text.size() / 2));
  HL_FUZZ_CHECK(text.ends_with(end) && end.size() <= text.size() / 2 + 1, "the file and its end");
  std::string again;
  for (const ctl::AgentEvent& each : events) again += ctl::FormatAgentEvent(each);
  const auto written = ctl::ParseAgentEvents(again, &bad);
  HL_FUZZ_CHECK(bad == 0 && written.size() == events.size(), again);
  for (const unsigned char c : again)
    HL_FUZZ_CHECK(c >= ' ' || c == '\n', "it speaks to a terminal");
  HL_FUZZ_CHECK(ctl::MergeAgentEvents(events).size() <= events.size(), "an event of its own");
}

void HttpAnswer(const std::string& text) {
  const auto page = ctl::ParseHttpAnswer(text);
  CheckReason(page.status());
  if (page.ok()) HL_FUZZ_CHECK(text.ends_with(page->body) && page->status < 1000, "the page");
}

void ClusterFileText(const std::string& text) {
  const auto file = cluster::ParseClusterFile(text, "f");
  CheckReason(file.status());
  if (!file.ok()) return;
  HL_FUZZ_CHECK(!file->replicas.empty() && file->replicas.size() <= kMaxGroupSize, "replicas");
  for (const auto& each : file->replicas)
    HL_FUZZ_CHECK(each.name.find_first_of("/.\0") == std::string::npos, each.name);
  const std::string path = Folder::Get().File("cluster.json");
  Must(cluster::SaveClusterFile(*file, path));
  const auto again = Must(cluster::LoadClusterFile(path));
  HL_FUZZ_CHECK(again.region_size == file->region_size && again.media == file->media &&
                    again.provider == file->provider && again.device == file->device &&
                    again.replicas.size() == file->replicas.size(),
                "written, and read as another one");
  for (size_t i = 0; i < again.replicas.size(); ++i)
    HL_FUZZ_CHECK(again.replicas[i].name == file->replicas[i].name &&
                      again.replicas[i].listen == file->replicas[i].listen,
                  "written, and read as another one");
}

void PidFile(const std::string& text) {
  const auto id = cluster::ParsePidFile(text);
  const auto read = cluster::ReadPidFile(Folder::Get().Write("pid", text));
  HL_FUZZ_CHECK(read.ok() == id.has_value(), "the file and its bytes");
  CheckReason(read.status());
  if (!id) return;
  HL_FUZZ_CHECK(id->pid > 1 && !id->boot.empty(), "no process");
  const auto again = cluster::ParsePidFile(std::to_string(id->pid) + " " +
                                           std::to_string(id->start_time) + " " + id->boot + "\n");
  HL_FUZZ_CHECK(again && again->pid == id->pid && again->start_time == id->start_time &&
                    again->boot == id->boot,
                text);
}

template <class Number>
std::optional<Number> NumberOf(std::string_view text) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The parts of `text`, which `separator` separates.
std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  if (text.ends_with(separator)) parts.emplace_back();
  return parts;
}

void StatText(const std::string& text) {
  cluster::ProcessStat stat;
  const bool read = cluster::ParseProcessStat(text, &stat);
  const size_t name = text.rfind(") ");
  if (name == std::string::npos || text.find(')', name + 1) != std::string::npos) {
    HL_FUZZ_CHECK(!read, "no name");
    return;
  }
  // Field 3 is the first one behind the name. One more than field 22 must be there.
  const auto fields = Split(text.substr(name + 2), ' ');
  const auto start = fields.size() < 21 ? std::nullopt : NumberOf<uint64_t>(fields[22 - 3]);
  HL_FUZZ_CHECK(read == start.has_value(), text);
  if (!read) return;
  HL_FUZZ_CHECK(stat.start_time == *start, text);
  HL_FUZZ_CHECK(stat.state == (fields[0].empty() ? ' ' : fields[0][0]), text);
}

void StatusText(const std::string& text) {
  const auto user = cluster::ParseProcessUser(text);
  const auto lines = Split(text, '\n');
  const auto is_user = [](const std::string& line) { return line.starts_with("Uid:\t"); };
  const auto line =
      lines.empty() ? lines.end() : std::find_if(lines.begin() + 1, lines.end(), is_user);
  if (line == lines.end()) {
    HL_FUZZ_CHECK(!user, "a user without a line");
    return;
  }
  const auto words = Split(*line, '\t');
  HL_FUZZ_CHECK(user == (words.size() < 3 ? std::nullopt : NumberOf<uid_t>(words[1])), *line);
}

void PairingText(const std::string& text) {
  const auto fs = rocksdb::FileSystem::Default();
  const std::string folder = Folder::Get().File("database");
  stdfs::create_directory(folder);
  Folder::Get().Write("database/HYPERLOOP", text);
  plugin::PairingFile file;
  const Status read = plugin::ReadPairing(*fs, folder, &file);
  CheckReason(read);
  if (!read.ok()) {
    HL_FUZZ_CHECK(file.pairing.group.empty(), "a refused file was read");
    return;
  }
  plugin::PairingFile again;
  Must(plugin::WritePairing(*fs, folder, file.pairing, file.branch, file.finished));
  Must(plugin::ReadPairing(*fs, folder, &again));
  HL_FUZZ_CHECK(again.pairing.group == file.pairing.group &&
                    again.pairing.database == file.pairing.database &&
                    again.branch == file.branch && again.finished == file.finished,
                "written, and read as another one");
  HL_FUZZ_CHECK(!again.IsCopy() && again.recorded == again.found, "a copy of itself");
  stdfs::remove(folder + "/HYPERLOOP");
  Must(plugin::ReadPairing(*fs, folder, &again));
  HL_FUZZ_CHECK(again.pairing.group.empty(), "a file that is gone");
}

void PeersFile(const std::string& text) {
  using softrnic::LinkPeer;
  const std::string path = Folder::Get().Write("peers", text);
  const auto peers = softrnic::ReadPeersFile(path);
  CheckReason(peers.status());
  std::vector<LinkPeer> expected;
  std::set<uint64_t> prefixes;
  int number = 0;
  for (std::string line : Split(text, '\n')) {
    ++number;
    line.erase(line.find_last_not_of(" \t\r\v\f") + 1);
    if (line.empty() || line.starts_with('#')) continue;
    auto peer = softrnic::ParseLinkPeer(line);
    if (!peer.ok() || !prefixes.insert(softrnic::GidPrefix(peer->host)).second) {
      HL_FUZZ_CHECK(peers.status().message().starts_with(path + ":" + std::to_string(number) + ":"),
                    peers.status().ToString());
      return;
    }
    expected.push_back(*std::move(peer));
  }
  HL_FUZZ_CHECK(peers.ok() && peers->size() == expected.size(), peers.status().ToString());
  for (size_t i = 0; i < expected.size(); ++i)
    HL_FUZZ_CHECK(
        (*peers)[i].host == expected[i].host && (*peers)[i].address == expected[i].address,
        expected[i].host);
}

// The daemon's options: a byte of choices, then the address that it listens at and its peers, one a
// line.
void LinkOptionsText(const std::string& text) {
  static const std::string keys = [] {
    const std::string dir = Folder::Get().File("keys");
    Must(identity::MakeIdentity(dir, "host"));
    return dir;
  }();
  softrnic::LinkArguments arguments;
  const uint8_t choices = text.empty() ? 0 : static_cast<uint8_t>(text.front());
  arguments.insecure = (choices & 1) != 0;
  if ((choices & 2) != 0) arguments.keys_dir = (choices & 4) != 0 ? keys : keys + "-of-nobody";
  if ((choices & 8) != 0) arguments.peers_file = Folder::Get().Write("peers", "a=127.0.0.1:7471\n");
  if ((choices & 16) != 0) arguments.peers_file = Folder::Get().File("");
  const auto lines = Split(text.empty() ? text : text.substr(1), '\n');
  if (!lines.empty()) arguments.listen = lines.front();
  for (size_t i = 1; i < std::min<size_t>(lines.size(), 8); ++i)
    arguments.peers.push_back(lines[i]);
  const auto options = softrnic::MakeLinkOptions(arguments);
  CheckReason(options.status());
  if (!options.ok()) return;
  const auto peers = options->ReadPeers();
  CheckReason(peers.status());
  HL_FUZZ_CHECK((options->keys != nullptr) == !arguments.keys_dir.empty(), "keys");
  HL_FUZZ_CHECK(options->keys != nullptr || !options->any() || arguments.insecure, "no keys");
  if (options->listen) {
    const softrnic::LinkAddress& listen = *options->listen;
    HL_FUZZ_CHECK(options->keys != nullptr || listen.loopback(), listen.ToString());
    HL_FUZZ_CHECK(softrnic::OwnAddresses(listen).Has(listen), listen.ToString());
  }
  if (!peers.ok()) return;
  for (const softrnic::LinkPeer& peer : *peers) {
    HL_FUZZ_CHECK(options->keys != nullptr || peer.address.loopback(), peer.address.ToString());
    HL_FUZZ_CHECK(peer.address.port() != 0 && !peer.address.Source().empty(), peer.host);
    if (options->listen && softrnic::OwnAddresses(*options->listen).Has(peer.address))
      HL_FUZZ_CHECK(peer.address.port() == options->listen->port(), "another port");
  }
}

void DeviceText(const std::string& text) {
  const auto device = verbs::ParseDeviceName(text);
  CheckReason(device.status());
  if (!device.ok()) return;
  const std::string port = device->port == 0 ? "" : ":" + std::to_string(device->port);
  const auto again = Must(verbs::ParseDeviceName(device->name + port));
  HL_FUZZ_CHECK(again.name == device->name && again.port == device->port, text);
}

void FileNameText(const std::string& name) {
  using plugin::FileClass;
  const FileClass of = plugin::Classify(name);
  // Replicas take what the group lists.
  HL_FUZZ_CHECK(of != FileClass::kListed || CheckWholeFileName(name).ok(), name);
  HL_FUZZ_CHECK(!plugin::IsTableOrBlob(name) || of == FileClass::kListed, name);
  HL_FUZZ_CHECK(!plugin::IsManifest(name) || of == FileClass::kLogLane, name);
  plugin::NumberOf(name);
  const std::string parent = plugin::ParentOf(name), base = plugin::BaseOf(name);
  HL_FUZZ_CHECK(!parent.empty() && (parent == "/" || parent.back() != '/'), name);
  HL_FUZZ_CHECK(base.find('/') == std::string::npos || base == "/", name);
  if (name.empty() || base == "/") return;
  HL_FUZZ_CHECK(plugin::BaseOf(plugin::RealPathOfEntry(name)) == base, name);
}

void ServiceRequestData(const std::string& data) {
  const auto name = verbs::ServiceRequest::Parse(data.data(), data.size());
  HL_FUZZ_CHECK(!verbs::ServiceRequest::Parse(nullptr, data.size()), "a request of nothing");
  if (!name) return;
  HL_FUZZ_CHECK(name->size() <= verbs::kMaxServiceName && name->find('\0') == name->npos, "a name");
  const verbs::ServiceRequest again(*name);
  HL_FUZZ_CHECK(verbs::ServiceRequest::Parse(again.data(), again.size()) == name, *name);
}

// Inlined, GCC 12 takes the copy of the bytes for a pointer into them that is freed.
[[gnu::noinline]] std::vector<std::byte> AnswerIn(std::span<const std::byte> data) {
  return verbs::ParseAnswer(data.data(), data.size());
}

void ServiceAnswerData(const std::string& data) {
  const auto answer = AnswerIn(std::as_bytes(std::span(data)));
  HL_FUZZ_CHECK(verbs::ParseAnswer(nullptr, data.size()).empty(), "an answer of nothing");
  HL_FUZZ_CHECK(answer.size() < std::max<size_t>(data.size(), 1), "more than there is");
  auto again = verbs::MakeAnswer(answer);
  again.resize(again.size() + 7);  // as the network pads it
  HL_FUZZ_CHECK(AnswerIn(again) == answer, "another answer");
}

// --- options

void UriText(const std::string& text) {
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

void OptionText(const std::string& text) {
  Reader in(reinterpret_cast<const uint8_t*>(text.data()), text.size());
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

void EndpointText(const std::string& text) {
  const auto endpoint = control::ParseEndpoint(text);
  if (!endpoint.ok()) return;
  const auto again = control::ParseEndpoint(endpoint->ToString());
  HL_FUZZ_CHECK(again.ok(), endpoint->ToString());
  HL_FUZZ_CHECK(again->host == endpoint->host && again->port == endpoint->port,
                endpoint->ToString());
  ListenThere(*endpoint);
}

void LinkPeerText(const std::string& text) {
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

void BindingsText(const std::string& text) {
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

void InspectData(const std::string& bytes) {
  const auto info = ParseInspectInfo(std::as_bytes(std::span(bytes)), "host");
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

// --- inputs

// The rest of the input, with one byte repeated at one place.
std::string LongText(Reader& in) {
  const uint8_t doublings = in.U8() % 19u;
  const uint16_t at = in.U16();
  const char repeated = static_cast<char>(in.U8());
  const auto rest = in.Rest();
  std::string text(rest.begin(), rest.end());
  if (doublings != 0) text.insert(std::min<size_t>(at, text.size()), 1u << doublings, repeated);
  return text;
}

Input Seed(Kind kind, std::string_view text, unsigned doublings = 0, size_t at = 0, char ch = 0) {
  Writer out;
  out.U8(kind).U8(doublings).U16(static_cast<unsigned>(at)).U8(static_cast<uint8_t>(ch));
  return out.Bytes(text.data(), text.size()).Finish();
}

// A program with a dynamic section that needs two libraries.
std::string Program() {
  constexpr size_t kSegments = sizeof(Elf64_Ehdr), kSection = kSegments + 3 * sizeof(Elf64_Phdr);
  constexpr size_t kNames = kSection + 4 * sizeof(Elf64_Dyn);
  constexpr uint64_t kBase = 0x10000;
  const std::string names("\0librocksdb.so.7\0libc.so.6\0", 27);
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64, header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_type = ET_DYN, header.e_machine = EM_X86_64;
  header.e_phoff = kSegments, header.e_phnum = 3;
  Elf64_Phdr load{}, dynamic{}, interpreter{};
  load.p_type = PT_LOAD, load.p_vaddr = kBase, load.p_filesz = kNames + names.size();
  dynamic.p_type = PT_DYNAMIC, dynamic.p_offset = kSection;
  dynamic.p_filesz = 4 * sizeof(Elf64_Dyn);
  interpreter.p_type = PT_INTERP;
  const Elf64_Dyn section[] = {
      {DT_STRTAB, {kBase + kNames}}, {DT_NEEDED, {1}}, {DT_NEEDED, {17}}, {DT_NULL, {0}}};
  Writer out;
  out.Put(header).Put(load).Put(dynamic).Put(interpreter).Put(section);
  const Input bytes = out.Bytes(names.data(), names.size()).Finish();
  return {bytes.begin(), bytes.end()};
}

void AddElfSeeds(std::vector<Input>* seeds) {
  const std::string program = Program();
  seeds->push_back(Seed(kElf, program));
  const auto changed = [&](size_t at, uint8_t value) {
    std::string other = program;
    other[at] = static_cast<char>(value);
    seeds->push_back(Seed(kElf, other));
  };
  changed(EI_CLASS, ELFCLASS32);
  changed(offsetof(Elf64_Ehdr, e_type), ET_REL);
  changed(offsetof(Elf64_Ehdr, e_phnum) + 1, 1);  // headers beyond the end
  changed(sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr) + offsetof(Elf64_Phdr, p_filesz) + 2, 1);
  changed(sizeof(Elf64_Ehdr) + 3 * sizeof(Elf64_Phdr) + 9, 0xff);       // names nowhere
  changed(sizeof(Elf64_Ehdr) + 3 * sizeof(Elf64_Phdr) + 16 + 8, 0xff);  // a name behind the end
  seeds->push_back(Seed(kElf, program.substr(0, program.size() - 1)));
  seeds->push_back(Seed(kElf, "#!/bin/sh\necho"));
  seeds->push_back(Seed(kElf, ""));
}

constexpr std::string_view kCluster =
    R"({"version":1,"region_size":1048576,"media":"auto","provider":"verbs","device":"rxe0:1",)"
    R"("replicas":[{"name":"replica0","listen":"127.0.0.1:0"},{"name":"b","listen":"h:1"}]})";

void AddClusterSeeds(std::vector<Input>* seeds) {
  seeds->push_back(Seed(kClusterFile, kCluster));
  seeds->push_back(
      Seed(kClusterFile,
           R"({"version":1,"region_size":1,"media":"","replicas":[{"name":"a","listen":"h:1"}]})"));
  const std::string text(kCluster);
  for (const std::string_view field : {"\"verbs\"", "\"rxe0:1\"", "[{"})  // deep values
    seeds->push_back(Seed(kClusterFile, text, 17, text.find(field), '['));
  for (const std::string_view without : {"version", "region_size", "media", "device", "replicas",
                                         "listen", "1,\"region", "1048576", "verbs", "replica0"}) {
    std::string other = text;
    seeds->push_back(Seed(kClusterFile, other.replace(other.find(without), 1, "\\u0041")));
  }
  seeds->push_back(Seed(kClusterFile, "[1]"));
}

constexpr std::string_view kStatLine =
    "4242 (a name) S) S 1 4242 4242 0 -1 4194304 100 0 0 0 1 2 0 0 20 0 1 0 123456 1 2\n";
constexpr std::string_view kStatusLines =
    "Name:\tUid: 0 0\nUmask:\t0022\nState:\tS (sleeping)\nUid:\t1000\t1000\t1000\t1000\nGid:\t5\n";

void AddOptionSeeds(std::vector<Input>* seeds) {
  for (const auto& [kind, text] : std::initializer_list<std::pair<Kind, std::string>>{
           {kUri, "hyperloop"},
           {kUri, "hyperloop:"},
           {kUri, "hyperloop://h1:7000,[::1]:7001?device=/tmp/a%20b&window=16&pool=/dev/shm/p"},
           {kUri, "hyperloop://?replicas=a:1,b:2&ack=sync&local_sync=true&ack_timeout=2s"},
           {kUri, "hyperloop://a:1?window=4&window=8&x"},
           {kUri, "hyperloop://a:1?window=%4"},
           {kEndpoint, "localhost:7000"},
           {kEndpoint, "[::1]:0"},
           {kEndpoint, "127.0.0.1:1"},
           {kEndpoint, "0.0.0.0:7000"},
           {kEndpoint, "[fe80::1]:7000"},
           {kEndpoint, "1.2.3.4.5:7000"},
           {kEndpoint, "127.255.255.255:7000"},
           {kEndpoint, std::string(300, 'a') + ":7000"},
           {kLinkPeer, "b=127.0.0.1:7471"},
           {kLinkPeer, "host-2=[fd00::1]:65535"},
           {kLinkPeer, "b=::1:7471"},
           {kLinkPeer, "b=127.0.0.1"},
           {kBindings, "/a/./b//=hyperloop://h:1?device=/run/d&pool=/p;;/a=hyperloop://h:2"},
           {kBindings, "/a=hyperloop://h:1;/a/=hyperloop://h:2"},
           {kBindings, "/a/../b=hyperloop://h:1"},
           {kBindings, "/=hyperloop://h:1;a=hyperloop://h:1;/b"},
           {kBindings, "///=hyperloop://h:1"},
           {kUri, "hyperloop:///no-such-group?ack=sync"},
           {kUri, "hyperloop:///../x"},
           {kGroup, "# g\nhosts = a, b,c\nport = 7100\n"},
           {kGroup, "hosts = a\nport = 7471\n"},
           {kGroup, "hosts = a, a\nsize = 1\n"},
           {kGroup, "hosts = c, a\nsize = 64M\nhttp_port = 7480\nservice = /bin/x --y\n"},
           {kGroup, "hosts = b\nfolder = /data\ndatabase = /d/b\nack = sync\nwindow = 9\n"},
           {kGroup, "hosts = b\nfolder = ../x\n"},
           {kGroup, "hosts = b\nservice = \"x\"\n"},
           {kGroup, "hosts = b\nhttp_port = 7000\n"},
           {kGroup, "hosts = d\nack_timeout = 4s\n"},
           {kGroup, "hosts = b\nhook = /a /b\n"},
           {kHttpAnswer, "HTTP/1.1 200 OK\r\nX: y\r\ncontent-length: 2\r\n\r\n{}"},
           {kHttpAnswer, "HTTP/1.0 503 \r\nContent-Length:  9\r\n\r\ncut"},
           {kHttpAnswer, "HTTP/1.1 2x0 OK\r\nContent-Length: 0\r\n\r\n"},
           {kHttpAnswer, "HTTP/1.1 200 OK\r\n\r\n"},
       })
    seeds->push_back(Seed(kind, text));
  StoreOptions options;
  options.replicas = {"h1:1", "h2:2", "[fe80::1]:3"};
  options.device = "/run/a?b&c=%;#d";
  options.pool = "/pool with space";
  options.journal_size = 3ull << 20;
  options.space_timeout = std::chrono::milliseconds(1500);
  seeds->push_back(Seed(kUri, FormatStoreUri(options)));
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
  seeds->push_back(Seed(kInspect, {reinterpret_cast<const char*>(&info), sizeof info}));
  const auto table = StoreOptionTable();
  for (size_t i = 0; i < table.size(); ++i) {
    const std::string prefix{static_cast<char>(i), '\0'};
    seeds->push_back(Seed(kOption, prefix + *GetStoreOption(table[i].name, options)));
  }
}

std::vector<Input> Seeds() {
  std::vector<Input> seeds;
  AddElfSeeds(&seeds);
  AddClusterSeeds(&seeds);
  AddOptionSeeds(&seeds);
  for (const std::string_view text :
       {"4242 123456 8a5c-boot\n", "4242 123456 b", "1 2 b\n", "4242 -1 b\n", "4242\n", "2 3 \n"})
    seeds.push_back(Seed(kPidFile, text));
  const std::string event =
      ctl::FormatAgentEvent({ctl::EventTimeNow(), "1f", 7, "a", 9, "primary", "state", "\x1b[2J"});
  seeds.push_back(Seed(kHistory, event + event + event.substr(0, 40)));
  seeds.push_back(Seed(kHistory, "{}\n[]\n{\"time\":1}\n" + event));
  seeds.push_back(Seed(kStat, kStatLine));
  seeds.push_back(Seed(kStat, kStatLine.substr(0, kStatLine.find("123456"))));
  seeds.push_back(Seed(kStat, kStatLine.substr(0, kStatLine.find("4194304"))));
  seeds.push_back(Seed(kStat, "4242 (name)S 1"));
  seeds.push_back(Seed(kStat, "no name"));
  seeds.push_back(Seed(kStatus, kStatusLines));
  seeds.push_back(Seed(kStatus, "Name:\tUid:\t0\t\nUid:\tx\t"));
  {
    const auto fs = rocksdb::FileSystem::Default();
    const std::string folder = Folder::Get().File("seed");
    stdfs::create_directory(folder);
    Must(plugin::WritePairing(*fs, folder, {"a group", "a database"}, "17 an owner", true));
    std::ifstream in(folder + "/HYPERLOOP");
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    seeds.push_back(Seed(kPairing, text));
    seeds.push_back(Seed(kPairing, text, 14, 25, 'x'));
    const std::string first = "hyperloop pairing 1\ngroup g\ndatabase d\n";
    char crc[32];
    std::snprintf(crc, sizeof crc, "crc32c %08x\n", ~Crc32c(~0u, first.data(), first.size()));
    seeds.push_back(Seed(kPairing, first + crc));
  }
  seeds.push_back(Seed(kPeersFile, "# peers\nb=127.0.0.1:7471 \n\nc=[fd00::1]:1\n"));
  seeds.push_back(Seed(kPeersFile, "b=127.0.0.1:7471\nc=1"));
  const std::string key(63, '1');
  seeds.push_back(Seed(kHosts, "# all\na 10.0.0.1 " + key + "0\n\tb fd00::2 " + key + "2\r\n"));
  seeds.push_back(Seed(kHosts, "a 10.0.0.1 " + key + "0\nb ::ffff:10.0.0.1 " + key + "2\n"));
  seeds.push_back(Seed(kHosts, "a 0.0.0.0 " + key + "0\na b"));
  for (const unsigned choices : {0u, 1u, 2u, 3u, 6u, 7u, 8u, 9u, 17u})
    for (const std::string_view lines :
         {"", "127.0.0.1:7471", "127.0.0.1:7471\nb=[::1]:7472", "0.0.0.0:7471\nb=10.0.0.1:7471",
          "[::]:7471\nb=127.0.0.1:7471\nc=[fd00::1]:7471\nd=[::ffff:10.0.0.1]:7471",
          "0.0.0.0:7471\nb=[::1]:7471", "::1:7471", "127.0.0.1"})
      seeds.push_back(Seed(kLinkOptions, static_cast<char>(choices) + std::string(lines)));
  for (const std::string_view text : {"", "mlx5_0", "mlx5_0:1", "mlx5_0:0", ":1", "a:256"})
    seeds.push_back(Seed(kDeviceName, text));
  for (const std::string_view text :
       {"000007.sst", "000008.log", "MANIFEST-000004", "archive/000003.log", "000000.dbtmp",
        "000001.dbtmp", "CURRENT", "LOG.old.1", "a/b/", "/", ".x", "OPTIONS-000005"})
    seeds.push_back(Seed(kFileName, text));
  seeds.push_back(Seed(kFileName, "x", 8, 0, 'a'));
  for (const std::string_view text : {"7.sst", "7.blob", "7.log"})
    seeds.push_back(Seed(kFileName, text, 7, 0, '7'));
  seeds.push_back(Seed(kServiceRequest, std::string_view("HLS1inspect\0\0\0\0\0", 16)));
  seeds.push_back(Seed(kServiceRequest, "HLS1", 7, 4, 'x'));
  seeds.push_back(Seed(kServiceAnswer, std::string_view("\3abc\0\0", 6)));
  seeds.push_back(Seed(kServiceAnswer, "\7abc"));
  seeds.push_back(Seed(kServiceAnswer, ""));
  return seeds;
}

const FuzzTarget kFuzzTarget("texts", Seeds, [](Reader& in) {
  constexpr void (*kReaders[])(const std::string&) = {
      ElfFile,   ClusterFileText, PidFile,      StatText,     StatusText,         PairingText,
      PeersFile, LinkOptionsText, DeviceText,   FileNameText, ServiceRequestData, ServiceAnswerData,
      UriText,   OptionText,      EndpointText, InspectData,  LinkPeerText,       BindingsText,
      HostsFile, GroupText,       HistoryText,  HttpAnswer};
  static_assert(std::size(kReaders) == kKinds);
  const uint8_t kind = in.U8() % kKinds;
  kReaders[kind](LongText(in));
});

}  // namespace
}  // namespace hyperloop::fuzz
