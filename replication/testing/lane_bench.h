// LaneBench: a LogLane over a MemoryGroup, a model of its files, and the files as they were after
// each record.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>

#include "gtest/gtest.h"
#include "inspect/member_check.h"
#include "log/log_lane.h"
#include "log/redo.h"
#include "support/must.h"
#include "support/status_matchers.h"
#include "testing/memory_group.h"
#include "testing/test_region.h"

namespace hyperloop {

using FileModel = std::map<std::string, std::string>;

// The lane and its model, over any group and the primary's region.
struct LaneModel {
  LaneModel(Group* lane_group, std::span<std::byte> primary, const RegionInfo& region_info,
            uint64_t seed, uint32_t lane_window, std::function<void()> step)
      : random(seed),
        group_(lane_group),
        primary_(primary),
        info_(region_info),
        window_(lane_window),
        step_(std::move(step)) {
    Load();
    states[0] = {};
    retired_states[0] = {};
  }
  void Load() {
    const LogState log = Must(Redo(primary_, info_));
    JournalOptions journal_options;
    journal_options.window = window_;
    journal_options.idle = step_ ? step_ : [] {};
    journal_options.space_timeout = std::chrono::seconds(20);
    journal_options.now = [this] { return std::chrono::milliseconds(++milliseconds); };
    auto journal = Must(Journal::Create(group_, primary_, info_, log, &media, journal_options));
    EXPECT_OK(journal->AppendEpoch(log.tail.epoch + 1, TestConfiguration(log.tail.epoch + 1)));
    LogLaneOptions options;
    options.space_timeout = std::chrono::milliseconds(20);
    options.now = [this] { return std::chrono::milliseconds(++milliseconds); };
    options.idle = [this] {
      ++idles;
      if (on_idle) std::exchange(on_idle, nullptr)();
    };
    options.leads_to_space = [](std::string_view data, bool begins) {
      return data == "ends a transaction" || (begins && data == "begins a log");
    };
    lane = Must(LogLane::Load(std::move(journal), primary_, info_, options));
    Remember();
  }

  std::string RandomText(uint64_t most) {
    std::string text(1 + random() % most, ' ');
    for (char& c : text) c = static_cast<char>(random());
    return text;
  }
  std::string ReadAll(const std::string& name) {
    const FileId id = Must(lane->Lookup(name));
    std::string text(model.count(name) != 0 ? model[name].size() + 1 : 1 << 20, ' ');
    text.resize(Must(lane->Read(id, 0, text)));
    return text;
  }
  // Records the model as the state after the newest record. The journal may have put statements
  // behind that record, and a pad before those.
  void Remember() {
    uint64_t newest = 0;
    const auto note = [&](const RecordView& record, uint64_t) {
      const auto type = static_cast<RecordType>(record.header.type);
      if (type != RecordType::kStatements && type != RecordType::kPad) newest = record.header.seq;
      return Status();
    };
    EXPECT_OK(ScanLog(primary_, info_, 0, note));
    if (newest == 0) return;
    states[newest] = model;
    retired_states[newest] = retired;
  }

  // Makes one call of the lane, and on the model too if it succeeds. Refusals for lack of space are
  // allowed.
  void RandomCall() {
    static const std::string kNames[] = {"1.log",      "2.log",   "archive/3.log",
                                         "MANIFEST-1", "CURRENT", "4.dbtmp"};
    const std::string& name = kNames[random() % std::size(kNames)];
    const bool exists = model.count(name) != 0;
    const uint64_t kind = random() % 32;
    if (!exists || kind == 0) {
      ASSERT_OK(lane->Create(name));
      model[name] = "";
      retired.erase(name);
    } else if (kind == 1) {
      ASSERT_OK(lane->Remove(name));
      model.erase(name);
      retired.erase(name);
    } else if (kind == 2) {
      const std::string& to = kNames[random() % std::size(kNames)];
      ASSERT_OK(lane->Rename(name, to));
      const std::string text = std::exchange(model[name], {});
      model.erase(name);
      model[to] = text;
      const bool moved = retired.erase(name) != 0;
      retired.erase(to);
      if (moved) retired.insert(to);
    } else if (kind == 5 && retires) {
      Retire(name);
    } else if (retired.contains(name)) {
      EXPECT_EQ(lane->Append(Must(lane->Lookup(name)), "x").status().code(),
                Code::kInvalidArgument);
    } else if (kind == 3) {
      const uint64_t size = random() % (model[name].size() + 1);
      ASSERT_OK(lane->Truncate(Must(lane->Lookup(name)), size));
      model[name].resize(size);
    } else {
      const std::string text = RandomText(kind == 4 ? 9000 : 300);
      AppendInRecords(name, text);
    }
    Remember();
  }
  static uint64_t ChecksumOf(const std::string& text) {
    FileChecksum checksum;
    checksum.Add(text);
    return checksum.value();
  }
  void Retire(const std::string& name) {
    const std::string& text = model[name];
    ASSERT_OK(lane->Retire(Must(lane->Lookup(name)), {name, text.size(), ChecksumOf(text)}));
    retired.insert(name);
  }
  // A long append takes several records; each is a state of its own that a crash may leave.
  void AppendInRecords(const std::string& name, const std::string& text) {
    const FileId id = Must(lane->Lookup(name));
    constexpr size_t kPart = 3000;
    for (size_t at = 0; at < text.size(); at += kPart) {
      const std::string part = text.substr(at, kPart);
      const Status status = lane->Append(id, part).status();
      if (status.code() == Code::kNoSpace) return;
      ASSERT_OK(status);
      model[name] += part;
      Remember();
    }
  }

  // Redo of a crashed node's image gives the files after some record, all acknowledged ones
  // included.
  void CheckImage(std::vector<std::byte> image, uint64_t acked) {
    ASSERT_EQ(WrongIn(std::move(image), acked), "");
  }
  // Says what is wrong; empty: nothing.
  std::string WrongIn(std::vector<std::byte> image, uint64_t acked) const {
    const MemberCheck check = CheckMember(image, info_, acked);
    if (!check.sound()) return check.Damage(info_).front();
    const auto state = Redo(image, info_, acked);
    if (!state.ok()) return state.status().ToString();
    const std::string at = " at " + std::to_string(state->tail.seq);
    if (state->tail.seq < acked)
      return "the log ends" + at + ", acknowledged is " + std::to_string(acked);
    const auto table = FileTable::Load(image, info_);
    if (!table.ok()) return table.status().ToString() + at;
    if (table->map != check.table.map) return "the check's table is not the redone one" + at;
    const auto damaged = VerifyExtents(image, info_, *table);
    if (!damaged.empty()) return damaged.front().Text(info_, *table) + at;
    const FileModel& expected = std::prev(states.upper_bound(state->tail.seq))->second;
    if (table->List().size() != expected.size())
      return std::to_string(table->List().size()) + " files, not " +
             std::to_string(expected.size()) + at;
    for (const FileInfo& file : table->List()) {
      const auto found = expected.find(file.name);
      if (found == expected.end()) return file.name + " should not be there" + at;
      const bool in_bulk =
          std::prev(retired_states.upper_bound(state->tail.seq))->second.contains(file.name);
      if ((file.lane == Lane::kBulk) != in_bulk) return file.name + " is in the wrong lane" + at;
      if (in_bulk) {
        if (file.size == found->second.size() && file.checksum == ChecksumOf(found->second))
          continue;
        return file.name + " is listed wrongly" + at;
      }
      std::string text(file.size, ' ');
      table->ReadBytes(image, info_, SlotOf(file.id), 0, text);
      if (text != found->second) return file.name + " differs" + at;
    }
    return {};
  }

  RamMedia media;
  std::mt19937_64 random;
  std::atomic<int64_t> milliseconds{0};  // of a clock that goes on with each look
  int idles = 0;
  std::function<void()> on_idle;
  std::unique_ptr<LogLane> lane;
  FileModel model;
  bool retires = true;            // whether RandomCall moves files to the bulk lane
  std::set<std::string> retired;  // of the model's files, those in the bulk lane
  std::map<uint64_t, FileModel> states;
  std::map<uint64_t, std::set<std::string>> retired_states;

 private:
  Group* const group_;
  const std::span<std::byte> primary_;
  const RegionInfo info_;
  const uint32_t window_;
  const std::function<void()> step_;
};

struct MemoryNodes {
  MemoryNodes(MemoryGroup::Mode mode, uint64_t seed, uint32_t replicas, uint32_t window)
      : group(region.bytes, replicas, mode, seed, window) {}
  TestRegion region;
  MemoryGroup group;
};

// The same over a MemoryGroup.
struct LaneBench : MemoryNodes, LaneModel {
  explicit LaneBench(MemoryGroup::Mode mode, uint64_t seed = 1, uint32_t replicas = 3,
                     uint32_t window = 8)
      : MemoryNodes(mode, seed, replicas, window),
        LaneModel(&group, region.bytes, region.info, seed, window, nullptr) {}
  // Makes a new lane on the old one's region, after everything was drained and every node made
  // equal to the primary, as a session does.
  void Reload() {
    EXPECT_OK(lane->Drain());
    group.StepAll();
    EXPECT_OK(Redo(region.bytes, region.info));
    for (uint32_t i = 0; i < group.group_size(); ++i) group.image(i) = region.bytes;
    Load();
  }
};

}  // namespace hyperloop
