#include "inspect/export.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "files/file_store.h"
#include "gtest/gtest.h"
#include "hyperloop/replication/inspect.h"
#include "support/must.h"
#include "support/status_matchers.h"
#include "testing/lane_bench.h"

namespace hyperloop {
namespace {

namespace fs = std::filesystem;

class Export : public testing::Test {
 protected:
  Export() : bench(MemoryGroup::Mode::kRandom, 3) {
    std::string pattern = testing::TempDir() + "/hyperloop-export-XXXXXX";
    base = mkdtemp(pattern.data());
    bench.retires = false;  // their bytes would be in no region
    while (bench.model.size() < 6) {
      bench.RandomCall();
      if (HasFatalFailure()) return;
    }
    EXPECT_OK(bench.lane->Sync());
  }
  ~Export() override { fs::remove_all(base); }
  std::vector<std::byte> Image() { return bench.group.CrashImage(2, bench.random); }
  static FileModel Read(const std::string& directory) {
    FileModel files;
    for (const auto& entry : fs::recursive_directory_iterator(directory)) {
      if (!entry.is_regular_file()) continue;
      std::ostringstream text;
      text << std::ifstream(entry.path(), std::ios::binary).rdbuf();
      files[fs::relative(entry.path(), directory).string()] = text.str();
    }
    return files;
  }

  // Lists a whole file of these bytes, as the primary does before it is sent.
  WholeFile List(const std::string& name, const std::string& bytes) {
    FileChecksum checksum;
    checksum.Add(bytes);
    const WholeFile file{name, bytes.size(), checksum.value()};
    EXPECT_OK(bench.lane->ListFile(file));
    return file;
  }
  // The replica's store of whole files.
  FileStore& Store() {
    if (store == nullptr) {
      EXPECT_OK(MakeDurableDirectory(base + "/files"));
      store = Must(FileStore::Open(GroupDirectory(base + "/files", bench.region.info.group)));
    }
    return *store;
  }
  void Arrive(const WholeFile& file, const std::string& bytes) {
    EXPECT_OK(Store().Write(file, 0, std::as_bytes(std::span(bytes))));
  }
  RegionImage Snapshot() {
    const std::vector<std::byte> image = Image();
    RegionImage copy = Must(RegionImage::Allocate(image.size()));
    std::copy(image.begin(), image.end(), copy.bytes().begin());
    return copy;
  }

  std::string base;
  LaneBench bench;
  std::unique_ptr<FileStore> store;
};

// The primary compacts a table away, and drops it at the replica, after the image was taken.
TEST_F(Export, ALiveExportFollowsTheFilesThatItNeeds) {
  const WholeFile kept = List("000007.sst", "kept"), gone = List("000008.sst", "gone");
  Arrive(kept, "kept");
  auto image = Image();
  int newer = 0;
  const auto report =
      ExportFiles(image, base + "/a", 0, false, base + "/files", [&]() -> Result<RegionImage> {
        if (++newer == 1) {
          EXPECT_OK(bench.lane->Remove(gone.name));
          Arrive(List("000009.sst", "merged"), "merged");
        }
        return Snapshot();
      });
  ASSERT_OK(report);
  EXPECT_THAT(report->missing, testing::IsEmpty());
  EXPECT_EQ(newer, 1);
  FileModel expected = bench.model;
  expected["000007.sst"] = "kept";
  expected["000009.sst"] = "merged";
  EXPECT_EQ(Read(base + "/a"), expected);
  EXPECT_EQ(report->files, expected.size());
}

// A primary that is killed after a flush has listed its table, and may not have named it yet.
TEST_F(Export, AMissingTableThatTheManifestDoesNotNameIsNotNeeded) {
  if (bench.model.contains("CURRENT")) {
    ASSERT_OK(bench.lane->Remove("CURRENT"));
  }
  const auto write = [&](const std::string& name, const std::string& bytes) {
    EXPECT_OK(bench.lane->Await(Must(bench.lane->Append(Must(bench.lane->Create(name)), bytes))));
  };
  write("CURRENT", "MANIFEST-000005\n");
  // The next file is 10, and table 7 of 4 B has keys from a to b.
  const std::string edit{3, 10, 100, 0, 7, 4, 1, 'a', 1, 'b', 1, 1};
  write("MANIFEST-000005", std::string{0, 0, 0, 0, static_cast<char>(edit.size()), 0, 1} + edit);
  for (const char* name : {"000007.sst", "000009.sst"}) List(name, name);
  auto image = Image();
  const auto report = ExportFiles(image, base + "/a");
  ASSERT_OK(report);
  EXPECT_THAT(report->missing, testing::ElementsAre("000007.sst"));
  EXPECT_THAT(report->unneeded, testing::ElementsAre("000009.sst"));
}

// A listed file is on its way, and the image that lists it stays good meanwhile.
TEST_F(Export, ALiveExportWaitsForWhatIsOnItsWay) {
  const WholeFile late = List("000007.sst", "late");
  ASSERT_THAT(Must(Store().List()), testing::IsEmpty());
  auto image = Image();
  int newer = 0;
  const auto report =
      ExportFiles(image, base + "/a", 0, false, base + "/files", [&]() -> Result<RegionImage> {
        if (++newer == 2) Arrive(late, "late");
        List("00001" + std::to_string(newer) + ".sst", "of a newer image");
        return Snapshot();
      });
  ASSERT_OK(report);
  EXPECT_THAT(report->missing, testing::IsEmpty());
  EXPECT_EQ(newer, 2);
  FileModel expected = bench.model;
  expected["000007.sst"] = "late";
  EXPECT_EQ(Read(base + "/a"), expected);
}

TEST_F(Export, WritesTheFilesAndSaysWhatIsMissing) {
  ASSERT_OK(bench.lane->ListFile({"000007.sst", 100, 1}));
  auto image = Image();
  const auto report = ExportFiles(image, base + "/a");
  ASSERT_OK(report);
  EXPECT_EQ(Read(base + "/a"), bench.model);
  EXPECT_EQ(report->files, bench.model.size());
  EXPECT_EQ(report->missing, std::vector<std::string>{"000007.sst"});
  EXPECT_GE(report->last_seq, bench.lane->statistics().acked_seq);
  // Exports again, from the image as it is now and from another node's: the bytes are the same.
  fs::create_directory(base + "/b");  // empty is as good as absent
  EXPECT_OK(ExportFiles(image, base + "/b/"));
  EXPECT_EQ(Read(base + "/b"), bench.model);
  auto other = bench.group.image(0);
  EXPECT_OK(ExportFiles(other, base + "/c"));
  EXPECT_EQ(Read(base + "/c"), bench.model);
  size_t entries = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(base)) ++entries;
  EXPECT_EQ(entries, 3u) << "nothing else is left";
}

// A log that has left the region is data, and one that was archived a moment ago may still have its
// former name in the replica's directory of files.
TEST_F(Export, WritesLogsThatHaveLeftTheRegion) {
  const std::string bytes(5000, 'l');
  for (const char* name : {"000011.log", "000012.log"}) {
    const WholeFile file = List(name, bytes);
    ASSERT_OK(Store().Write(file, 0, std::as_bytes(std::span(bytes))));
  }
  List("000013.log", bytes);
  ASSERT_OK(bench.lane->Rename("000012.log", "archive/000012.log"));
  ASSERT_OK(bench.lane->Sync());
  auto image = Image();
  const auto report = ExportFiles(image, base + "/out", 0, false, base + "/files");
  ASSERT_OK(report);
  EXPECT_EQ(report->missing, std::vector<std::string>{"000013.log"});
  EXPECT_TRUE(HoldsData("000013.log"));
  EXPECT_FALSE(HoldsData("archive/000013.log"));
  FileModel files = Read(base + "/out");
  EXPECT_EQ(files["000011.log"], bytes);
  EXPECT_EQ(files["archive/000012.log"], bytes);
}

// Nothing but an archived log is in a directory, and the replica has no directory of files.
TEST_F(Export, NamesAnArchivedLogThatIsNotThere) {
  List("archive/000012.log", "l");
  ASSERT_OK(bench.lane->Sync());
  auto image = Image();
  const auto report = ExportFiles(image, base + "/out");
  ASSERT_OK(report);
  EXPECT_EQ(report->missing, std::vector<std::string>{"archive/000012.log"});
}

TEST_F(Export, RefusesTargetsThatHoldSomething) {
  auto image = Image();
  fs::create_directory(base + "/full");
  std::ofstream(base + "/full/x") << "x";
  EXPECT_THAT(ExportFiles(image, base + "/full"), StatusIs(Code::kAlreadyExists));
  EXPECT_EQ(Read(base + "/full"), (FileModel{{"x", "x"}}));
  EXPECT_THAT(ExportFiles(image, base + "/full/x"), StatusIs(Code::kAlreadyExists));
  fs::create_directory(base + "/empty");
  fs::create_directory_symlink(base + "/empty", base + "/link");
  EXPECT_THAT(ExportFiles(image, base + "/link"), StatusIs(Code::kAlreadyExists));
  EXPECT_TRUE(fs::is_empty(base + "/empty"));
  EXPECT_THAT(ExportFiles(image, base + "/no/such"), StatusIs(Code::kNotFound));
  EXPECT_THAT(ExportFiles(image, ""), StatusIs(Code::kInvalidArgument));
}

TEST_F(Export, DamageWritesNothing) {
  auto image = Image();
  const auto clean = image;
  const auto& g = bench.region.info.geometry;
  for (const uint64_t at : {uint64_t{20}, g.map_offset + 4}) {
    image = clean;
    image[at] ^= std::byte{0xff};
    EXPECT_THAT(ExportFiles(image, base + "/out"), StatusIs(Code::kCorruption)) << at;
    EXPECT_TRUE(fs::is_empty(base)) << at;
  }
  // One bit of each file's first extent.
  const auto table = CheckMember(clean, bench.region.info).table;
  for (uint32_t extent = 0; extent < g.extent_count; ++extent) {
    if (table.map[extent].slot_plus_one == 0) continue;
    image = clean;
    ASSERT_OK(Redo(image, bench.region.info));
    WriteHead(image, bench.region.info, Must(ScanLog(image, bench.region.info)).tail);
    const uint64_t at = g.ExtentOffset(extent);
    image[at] ^= std::byte{1};
    EXPECT_THAT(ExportFiles(image, base + "/out"),
                StatusIs(Code::kCorruption,
                         testing::HasSubstr("extent " + std::to_string(extent) + " (\"")))
        << extent;
    EXPECT_TRUE(fs::is_empty(base)) << extent;
    const auto partial = ExportFiles(image, base + "/out", 0, true);
    ASSERT_OK(partial);
    EXPECT_EQ(partial->damage.size(), 1u);
    fs::remove_all(base + "/out");
  }
  image = clean;
  EXPECT_THAT(ExportFiles(image, base + "/out", 1u << 30), StatusIs(Code::kCorruption));
  EXPECT_TRUE(fs::is_empty(base));
}

}  // namespace
}  // namespace hyperloop
