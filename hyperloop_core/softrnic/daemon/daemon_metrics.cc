#include "softrnic/daemon/daemon_metrics.h"

#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "hyperloop/core/out_of_memory.h"

namespace hyperloop::softrnic {
namespace {

using metrics::Page;

void AddHost(const std::string& host, const Engine::HostCounters& counters, Page* page) {
  const auto& [sum, queue_pairs] = counters;
  page->Add("hyperloop_rnic_queue_pairs", queue_pairs, {{"host", host}});
#define HL_ADD(name) page->Add("hyperloop_rnic_" #name "_total", sum.name, {{"host", host}});
  HL_QP_COUNTERS(HL_ADD)
#undef HL_ADD
}

}  // namespace

DaemonMetrics::DaemonMetrics(const Engine& engine, EngineLoop& loop, const LinkServer* links,
                             std::string version)
    : engine_(engine),
      loop_(loop),
      links_(links),
      version_(std::move(version)),
      started_(metrics::NowSeconds()) {}

std::shared_ptr<const std::string> DaemonMetrics::Get() {
  const MutexLock lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  if (page_ == nullptr || now - made_ >= kInterval) {
    page_ = std::make_shared<const std::string>(Make());
    made_ = now;
  }
  return page_;
}

std::string DaemonMetrics::Make() {
  Page page;
  page.Add("hyperloop_build_info", 1, {{"program", "hyperloop-rnicd"}, {"version", version_}});
  page.Add("process_start_time_seconds", started_);
  AddHosts(&page);
  const EngineLoop::Counters& turns = loop_.counters();
  page.Add("hyperloop_rnicd_turns_total", turns.turns.load(std::memory_order_relaxed));
  page.Add("hyperloop_rnicd_idle_turns_total", turns.idle_turns.load(std::memory_order_relaxed));
  page.Add("hyperloop_rnicd_sleeps_total", turns.sleeps.load(std::memory_order_relaxed));
  page.Add("hyperloop_rnicd_host_stalls_total", turns.host_stalls.load(std::memory_order_relaxed));
  if (links_ != nullptr) AddLinks(&page);
  return page.Text();
}

void DaemonMetrics::AddHosts(Page* page) {
  std::vector<std::string> hosts;
  size_t clients = 0;
  bool failed = false;  // memory ran out on the loop's thread, which must not see an exception
  loop_.Submit([&] {
    failed = RanOutOfMemory([&] {
      hosts = engine_.Hosts();
      clients = engine_.contexts();
    });
  });
  if (failed) throw std::bad_alloc();
  page->Add("hyperloop_rnicd_clients", clients);
  for (const std::string& host : hosts) {
    std::optional<Engine::HostCounters> counters;
    loop_.Submit([&] { counters = engine_.CountersOf(host); });
    if (counters.has_value()) AddHost(host, *counters, page);
  }
}

void DaemonMetrics::AddLinks(Page* page) const {
  for (const auto& [peer, up, cipher] : links_->LinkStates()) {
    page->Add("hyperloop_rnicd_link_up", up ? 1 : 0, {{"peer", peer}});
    if (!up) continue;
    const auto sealed = cipher.has_value() ? identity::CipherName(*cipher) : "none";
    page->Add("hyperloop_rnicd_link_cipher_info", 1, {{"peer", peer}, {"cipher", sealed}});
  }
  const LinkServer::Totals all = links_->totals();
  page->Add("hyperloop_rnicd_link_frames_sent_total", all.frames_sent);
  page->Add("hyperloop_rnicd_link_frames_received_total", all.frames_received);
  page->Add("hyperloop_rnicd_link_sent_bytes_total", all.bytes_sent);
  page->Add("hyperloop_rnicd_link_received_bytes_total", all.bytes_received);
  page->Add("hyperloop_rnicd_link_connects_total", all.connects);
  page->Add("hyperloop_rnicd_link_reconnects_total", all.reconnects);
  page->Add("hyperloop_rnicd_link_connections_refused_total", all.refused);
  page->Add("hyperloop_rnicd_link_claims_refused_total", all.claims_refused);
  page->Add("hyperloop_rnicd_link_answer_bytes", all.answer_bytes);
}

}  // namespace hyperloop::softrnic
