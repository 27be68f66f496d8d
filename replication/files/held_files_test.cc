// Tests who is asked for a file, and who gives it, when replicas are out of reach or fail.
#include "files/held_files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "support/status_matchers.h"

namespace hyperloop {
namespace {

using testing::HasSubstr;

WholeFile FileOf(const std::string& name, const std::string& content) {
  FileChecksum checksum;
  checksum.Add(content);
  return {name, content.size(), checksum.value()};
}

// A replica with files in memory. It counts how often it is dialled.
class AskedReplica {
 public:
  WholeFile Hold(const std::string& name, const std::string& content) {
    const WholeFile file = FileOf(name, content);
    held_[file] = content;
    return file;
  }
  // What it gives of the file from now on.
  void Give(const WholeFile& file, const std::string& content) { held_[file] = content; }
  BulkConnect connect() {
    return [this]() -> Result<std::unique_ptr<BulkTarget>> {
      ++dials;
      HL_RETURN_IF_ERROR(reach);
      return std::unique_ptr<BulkTarget>(new Target(*this));
    };
  }

  Status reach;                  // of each call
  Status list;                   // of each question for what it holds
  size_t gives_left = SIZE_MAX;  // how many pieces it gives before the connection breaks
  size_t piece = 4;              // bytes of each at most
  std::function<void()> each_get = [] {};
  size_t given = 0;  // bytes
  int dials = 0;

 private:
  class Target final : public BulkTarget {
   public:
    explicit Target(AskedReplica& replica) : replica_(replica) {}
    Result<std::vector<StoredFile>> List() override {
      HL_RETURN_IF_ERROR(replica_.reach);
      HL_RETURN_IF_ERROR(replica_.list);
      std::vector<StoredFile> files;
      for (const auto& [file, content] : replica_.held_) files.push_back({file, file.size, true});
      return files;
    }
    Result<uint64_t> Put(const WholeFile&, uint64_t, std::span<const char>) override {
      return Internal("nothing is put");
    }
    Result<uint64_t> Get(const WholeFile& file, uint64_t offset, std::span<char> out) override {
      HL_RETURN_IF_ERROR(replica_.reach);
      if (replica_.gives_left == 0) return Unavailable("the connection broke");
      --replica_.gives_left;
      replica_.each_get();
      const std::string& content = replica_.held_.at(file);
      const size_t piece = std::min({out.size(), content.size() - offset, replica_.piece});
      replica_.given += piece;
      std::copy_n(content.begin() + static_cast<ptrdiff_t>(offset), piece, out.begin());
      return uint64_t{piece};
    }
    Status Drop(const WholeFile&) override { return Internal("nothing is dropped"); }

   private:
    AskedReplica& replica_;
  };

  std::map<WholeFile, std::string> held_;
};

class HeldFilesTest : public ::testing::Test {
 protected:
  std::vector<BulkConnect> Connects() { return {first_.connect(), second_.connect()}; }
  // What is fetched, or the error.
  static Result<std::string> Fetched(HeldFiles& held, const WholeFile& file) {
    std::string bytes;
    HL_RETURN_IF_ERROR(held.Fetch(file, [&](std::span<const char> piece) {
      bytes.append(piece.data(), piece.size());
      return Status();
    }));
    return bytes;
  }

  // A clock that a replica moves when it gives a piece.
  HeldFiles WithClock() {
    return HeldFiles(Connects(), std::chrono::nanoseconds::max(), [this] { return now_; });
  }
  void Takes(AskedReplica& replica, std::chrono::milliseconds time, size_t piece) {
    replica.each_get = [this, time] { now_ += time; };
    replica.piece = piece;
  }

  AskedReplica first_, second_;
  HeldFiles::Clock::time_point now_{};
};

// A log that was archived a moment ago may still have its former name at the replica.
TEST_F(HeldFilesTest, AnArchivedLogIsFoundByItsBytes) {
  AskedReplica replica;
  replica.Hold("000004.log", "log bytes");
  replica.Hold("000005.log", "log other");
  HeldFiles held({replica.connect()});
  const WholeFile archived = FileOf("archive/000004.log", "log bytes");
  EXPECT_TRUE(held.Holds(archived));
  std::string got;
  ASSERT_OK(held.Fetch(archived, [&](std::span<const char> bytes) {
    got.append(bytes.data(), bytes.size());
    return Status();
  }));
  EXPECT_EQ(got, "log bytes");
  EXPECT_FALSE(held.Holds(FileOf("000009.log", "log bytes")));
}

constexpr size_t kWholePiece = 256u << 10;

TEST_F(HeldFilesTest, AnotherReplicaGoesOnWhereOneGivesAByteASecond) {
  const std::string content = "bytes that come one by one";
  const WholeFile table = first_.Hold("000007.sst", content);
  second_.Hold("000007.sst", content);
  const WholeFile other = first_.Hold("000008.sst", content);
  second_.Hold("000008.sst", content);
  Takes(first_, std::chrono::seconds(1), 1);
  HeldFiles held = WithClock();
  EXPECT_EQ(*Fetched(held, table), content);
  EXPECT_LT(first_.given, content.size());
  first_.given = 0;
  EXPECT_EQ(*Fetched(held, other), content);
  EXPECT_EQ(first_.given, 0u) << "the other one is known to be faster";
}

TEST_F(HeldFilesTest, ReplicasThatAreAllSlowTakeTurns) {
  const std::string content(16 * kWholePiece, 'x');
  const WholeFile table = first_.Hold("000007.sst", content);
  second_.Hold("000007.sst", content);
  Takes(first_, std::chrono::seconds(3), kWholePiece);
  Takes(second_, std::chrono::seconds(2), kWholePiece);
  HeldFiles held = WithClock();
  EXPECT_EQ(*Fetched(held, table), content);
  EXPECT_GT(first_.given, 2 * kWholePiece);
  EXPECT_GT(second_.given, 2 * kWholePiece);
}

TEST_F(HeldFilesTest, AFileThatHardlyComesFromAnybodyIsGivenUpByName) {
  const std::string content(1000, 'x');
  const WholeFile table = first_.Hold("000007.sst", content);
  second_.Hold("000007.sst", content);
  Takes(first_, std::chrono::seconds(1), 1);
  Takes(second_, std::chrono::seconds(1), 1);
  HeldFiles held = WithClock();
  EXPECT_THAT(Fetched(held, table), StatusIs(Code::kUnavailable, HasSubstr("000007.sst")));
}

// As when a machine is stopped for a while.
TEST_F(HeldFilesTest, OneLongCallMakesNobodySlow) {
  const std::string content(16 * kWholePiece, 'x');
  const WholeFile table = first_.Hold("000007.sst", content);
  second_.Hold("000007.sst", content);
  first_.piece = kWholePiece;
  first_.each_get = [&] {
    now_ += first_.given == kWholePiece ? std::chrono::seconds(60) : std::chrono::milliseconds(500);
  };
  HeldFiles held = WithClock();
  EXPECT_EQ(*Fetched(held, table), content);
  EXPECT_EQ(second_.given, 0u);
}

TEST_F(HeldFilesTest, ASlowReplicaThatAloneHoldsTheFileGivesAllOfIt) {
  const std::string content(16 * kWholePiece, 'x');
  const WholeFile table = first_.Hold("000007.sst", content);
  Takes(first_, std::chrono::seconds(3), kWholePiece);
  HeldFiles held = WithClock();
  EXPECT_EQ(*Fetched(held, table), content);
}

TEST_F(HeldFilesTest, ASlowReplicaIsTakenBackWhereTheOtherOneBreaks) {
  const std::string content(16 * kWholePiece, 'x');
  const WholeFile table = first_.Hold("000007.sst", content);
  second_.Hold("000007.sst", content);
  Takes(first_, std::chrono::seconds(3), kWholePiece);
  second_.piece = kWholePiece;
  second_.gives_left = 3;
  HeldFiles held = WithClock();
  EXPECT_EQ(*Fetched(held, table), content);
  EXPECT_EQ(second_.given, 3 * kWholePiece);
}

// No replica gave a byte of it.
TEST_F(HeldFilesTest, AnEmptyFileWithTheChecksumOfAnotherIsHeldByNobody) {
  const WholeFile empty{"000007.sst", 0, 12345};
  first_.Give(empty, "");
  HeldFiles held(Connects());
  EXPECT_THAT(Fetched(held, empty), StatusIs(Code::kCorruption));
  EXPECT_THAT(Fetched(held, empty), StatusIs(Code::kNotFound));
}

// The one that is fast gives wrong bytes, and the slow one must not be blamed for the whole.
TEST_F(HeldFilesTest, ASlowReplicaIsNotBlamedForTheBytesOfAnother) {
  const std::string content(16 * kWholePiece, 'x');
  const WholeFile table = first_.Hold("000007.sst", content);
  second_.Hold("000007.sst", content);
  second_.Give(table, std::string(16 * kWholePiece, 'y'));
  second_.piece = kWholePiece;
  Takes(first_, std::chrono::seconds(3), kWholePiece);
  HeldFiles held = WithClock();
  EXPECT_THAT(Fetched(held, table), StatusIs(Code::kCorruption)) << "parts of both";
  EXPECT_THAT(Fetched(held, table), StatusIs(Code::kCorruption)) << "the fast one";
  EXPECT_EQ(*Fetched(held, table), content);
}

TEST_F(HeldFilesTest, NobodyElseIsAskedOnceAReplicaHoldsTheFile) {
  const WholeFile table = first_.Hold("000007.sst", "the bytes");
  HeldFiles held(Connects());
  EXPECT_TRUE(held.Holds(table));
  EXPECT_EQ(*Fetched(held, table), "the bytes");
  EXPECT_EQ(first_.dials, 1);
  EXPECT_EQ(second_.dials, 0);
}

TEST_F(HeldFilesTest, HalfOfTheReplicasAreNotFew) {
  const WholeFile table = first_.Hold("000007.sst", "the bytes");
  HeldFiles held(Connects());
  EXPECT_FALSE(held.FewHold(table));
  EXPECT_TRUE(held.FewHold(FileOf("000008.sst", "another")));
  std::vector<BulkConnect> three = Connects();
  AskedReplica third;
  three.push_back(third.connect());
  third.reach = Unavailable("nobody answers");
  HeldFiles of_three(std::move(three));
  EXPECT_TRUE(of_three.FewHold(table)) << "what does not answer holds nothing";
  EXPECT_TRUE(of_three.FewHold(table));
  EXPECT_EQ(third.dials, 1);
  EXPECT_EQ(of_three.Unanswered(), "nobody answers");
  EXPECT_EQ(held.Unanswered(), "");
}

TEST_F(HeldFilesTest, AReplicaThatDoesNotAnswerIsNotAskedForEachFile) {
  first_.reach = Unavailable("nobody answers");
  const WholeFile table = second_.Hold("000007.sst", "the bytes");
  HeldFiles held(Connects());
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(held.Holds(table));
    EXPECT_FALSE(held.Holds(FileOf(std::to_string(i) + ".sst", "another")));
    EXPECT_OK(Fetched(held, table));
    EXPECT_THAT(Fetched(held, FileOf("000008.sst", "another")),
                StatusIs(Code::kUnavailable, HasSubstr("nobody answers")))
        << "the first one may hold it";
  }
  EXPECT_EQ(first_.dials, 1);
  EXPECT_EQ(second_.dials, 1);
}

// As one with names that cannot be. What it holds is not known, so nothing counts as lost.
TEST_F(HeldFilesTest, AListThatMakesNoSenseHoldsUpNobody) {
  for (const Status& error : {InvalidArgument("a file name with a slash"), Corruption("no list")}) {
    first_.list = error;
    const WholeFile table = second_.Hold("000007.sst", "the bytes");
    HeldFiles held(Connects());
    EXPECT_EQ(*Fetched(held, table), "the bytes");
    EXPECT_THAT(Fetched(held, FileOf("000008.sst", "another")),
                StatusIs(Code::kUnavailable, HasSubstr(error.message())));
  }
}

TEST_F(HeldFilesTest, WhatNobodyHoldsIsNotFoundOnceAllHaveAnswered) {
  first_.Hold("000007.sst", "the bytes");
  HeldFiles held(Connects());
  const WholeFile other = FileOf("000007.sst", "other bytes");
  EXPECT_FALSE(held.Holds(other));
  EXPECT_THAT(Fetched(held, other), StatusIs(Code::kNotFound));
}

TEST_F(HeldFilesTest, AReplicaThatDidNotAnswerIsAskedAgainLater) {
  first_.reach = second_.reach = Unavailable("nobody answers");
  const WholeFile table = second_.Hold("000007.sst", "the bytes");
  HeldFiles held(Connects(), std::chrono::nanoseconds(0));
  EXPECT_FALSE(held.Holds(table));
  second_.reach = {};
  EXPECT_EQ(*Fetched(held, table), "the bytes");
  EXPECT_EQ(second_.dials, 2);
}

TEST_F(HeldFilesTest, AnotherReplicaGoesOnWhereAConnectionBroke) {
  const WholeFile table = first_.Hold("000007.sst", "the first bytes and more");
  second_.Hold("000007.sst", "the first bytes and more");
  first_.gives_left = 2;
  HeldFiles held(Connects());
  EXPECT_EQ(*Fetched(held, table), "the first bytes and more");
  EXPECT_EQ(*Fetched(held, table), "the first bytes and more");
  EXPECT_EQ(first_.dials, 1);
}

TEST_F(HeldFilesTest, ABrokenConnectionIsMadeAgainLater) {
  const WholeFile table = first_.Hold("000007.sst", "the first bytes and more");
  first_.gives_left = 2;
  HeldFiles held(Connects(), std::chrono::nanoseconds(0));
  EXPECT_THAT(Fetched(held, table), StatusIs(Code::kUnavailable, HasSubstr("broke")));
  first_.gives_left = SIZE_MAX;
  EXPECT_EQ(*Fetched(held, table), "the first bytes and more");
  EXPECT_EQ(first_.dials, 2);
}

TEST_F(HeldFilesTest, WhoWentOnAfterDamagedBytesIsAskedForTheWholeFile) {
  const WholeFile table = first_.Hold("000007.sst", "the first bytes and more");
  first_.Give(table, "the f-rst bytes and more");
  first_.gives_left = 2;
  second_.Hold("000007.sst", "the first bytes and more");
  HeldFiles held(Connects());
  EXPECT_THAT(Fetched(held, table), StatusIs(Code::kCorruption));
  EXPECT_EQ(*Fetched(held, table), "the first bytes and more");
}

TEST_F(HeldFilesTest, DamagedBytesAreTakenFromAReplicaOnce) {
  const WholeFile table = first_.Hold("000007.sst", "the bytes");
  first_.Give(table, "the byt-s");
  second_.Hold("000007.sst", "the bytes");
  HeldFiles held(Connects());
  EXPECT_THAT(Fetched(held, table), StatusIs(Code::kCorruption));
  EXPECT_EQ(*Fetched(held, table), "the bytes");
}

// What the other one holds is not known.
TEST_F(HeldFilesTest, AFileThatIsCutAtOneReplicaMayBeWholeAtAnother) {
  const WholeFile table = first_.Hold("000007.sst", "the bytes");
  first_.Give(table, "the");
  second_.reach = Unavailable("nobody answers");
  HeldFiles held(Connects());
  EXPECT_THAT(Fetched(held, table), StatusIs(Code::kCorruption, HasSubstr("cut")));
  EXPECT_THAT(Fetched(held, table), StatusIs(Code::kUnavailable, HasSubstr("nobody answers")));
}

TEST_F(HeldFilesTest, TheErrorOfTheReceiverEndsTheFetch) {
  const WholeFile table = first_.Hold("000007.sst", "the bytes");
  second_.Hold("000007.sst", "the bytes");
  HeldFiles held(Connects());
  EXPECT_THAT(held.Fetch(table, [](std::span<const char>) { return NoSpace("the disk is full"); }),
              StatusIs(Code::kNoSpace));
  EXPECT_EQ(second_.dials, 0);
}

TEST_F(HeldFilesTest, AnEmptyFileIsHeldToo) {
  const WholeFile empty = second_.Hold("e.sst", "");
  HeldFiles held(Connects());
  EXPECT_EQ(*Fetched(held, empty), "");
  EXPECT_EQ(first_.dials, 1);
}

}  // namespace
}  // namespace hyperloop
