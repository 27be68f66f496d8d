// Each mistake with a real RocksDB over a real cluster is refused with one clear error, and leaves
// every byte of the group and of the directories unchanged. Therefore all tests share one cluster,
// which only the last one damages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "control/endpoint.h"
#include "hyperloop/identity/secure_channel.h"
#include "support/child_process.h"
#include "support/database.h"
#include "support/shared_cluster.h"
#include "support/status_matchers.h"

namespace hyperloop::test {
namespace {

namespace stdfs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kKeys = 100;

class DatabaseRefusalTest : public SharedClusterTest<2, 16 << 20> {
 protected:
  static void TearDownTestSuite() {
    other_.End();
    SharedClusterTest::TearDownTestSuite();
  }

  std::string Path(const std::string& name) const { return cluster_.folder() + "/" + name; }
  // Another primary: its own pool and emulated host.
  StoreOptions Second() const {
    StoreOptions options = cluster_.Options();
    options.pool = Path("second.pool");
    options.host = "second";
    return options;
  }
  // A database with kKeys keys in `directory`, closed again.
  void Make(const StoreOptions& store, const std::string& directory) {
    TestDatabase database(store, directory);
    const rocksdb::Status opened = database.Open();
    ASSERT_OK(opened);
    ASSERT_OK(database.Fill(kKeys));
  }
  void ExpectWhole(const StoreOptions& store, const std::string& directory) {
    TestDatabase database(store, directory);
    const rocksdb::Status opened = database.Open();
    ASSERT_OK(opened);
    EXPECT_EQ(database.FirstMissing(kKeys), "");
  }

  // The visible state of a group: all that its replicas keep, and their numbers and owners.
  struct Shown {
    std::vector<std::map<std::string, std::string>> kept;
    std::string members;
    bool operator==(const Shown&) const = default;
  };
  static Shown Look(const TestCluster& cluster) {
    Shown shown;
    for (uint32_t i = 0; i < cluster.replicas(); ++i) {
      auto kept = FilesOf(cluster.pool(i) + ".files");
      std::string& pool = kept["pool"];
      pool.resize(stdfs::file_size(cluster.pool(i)));
      std::ifstream(cluster.pool(i), std::ios::binary)
          .read(pool.data(), static_cast<std::streamsize>(pool.size()));
      shown.kept.push_back(std::move(kept));
      const Result<NodeStatus> status = cluster.ReplicaStatus(i);
      EXPECT_OK(status);
      if (!status.ok()) continue;
      shown.members += std::to_string(status->sealed_epoch) + "/" +
                       std::to_string(status->installed_epoch) + " " + status->owner + " " +
                       status->group + " " + std::to_string(status->released) + "\n";
    }
    return shown;
  }

  // Opening `directory` over `store` fails and says `reason`; neither `clusters` nor the directory
  // changes.
  void ExpectRefused(const StoreOptions& store, const std::string& directory,
                     const std::vector<const TestCluster*>& clusters,
                     const testing::Matcher<std::string>& reason) {
    std::vector<Shown> before;
    for (const TestCluster* cluster : clusters) before.push_back(Look(*cluster));
    const auto files = FilesOf(directory);
    {
      TestDatabase database(store, directory);
      const rocksdb::Status status = database.Open();
      EXPECT_THAT(status, testing::AnyOf(StatusIs(rocksdb::Status::kInvalidArgument),
                                         StatusIs(rocksdb::Status::kCorruption),
                                         StatusIs(rocksdb::Status::kBusy)));
      EXPECT_THAT(status.ToString(), reason);
    }
    EXPECT_TRUE(FilesOf(directory) == files) << "files of the directory changed";
    for (size_t i = 0; i < clusters.size(); ++i)
      EXPECT_TRUE(Look(*clusters[i]) == before[i]) << "group " << i << " changed";
  }

  inline static SharedCluster other_{1, 24 << 20};  // another group
};

TEST_F(DatabaseRefusalTest, RegionTooSmallOrOfAnotherSize) {
  ASSERT_TRUE(shared_.Untaken().started());  // a group that was taken is formatted already
  StoreOptions store = cluster_.Options();
  store.journal_size = 1 << 30;
  ExpectRefused(store, Path("db"), {&cluster_}, HasSubstr("too small"));
  store = cluster_.Options();
  store.region_size = 8 << 20;
  ExpectRefused(store, Path("db"), {&cluster_}, HasSubstr("region_size"));
  EXPECT_FALSE(stdfs::exists(store.pool));
}

TEST_F(DatabaseRefusalTest, AnotherDirectoryOnAUsedGroup) {
  Make(cluster_.Options(), Path("db"));
  ExpectRefused(Second(), Path("empty"), {&cluster_}, HasSubstr("restore=true"));
  EXPECT_THAT(FilesOf(Path("empty")), IsEmpty());
  {
    rocksdb::Options options;
    options.create_if_missing = true;
    rocksdb::DB* plain = nullptr;
    ASSERT_OK(rocksdb::DB::Open(options, Path("plain"), &plain));
    delete plain;
  }
  ExpectRefused(Second(), Path("plain"), {&cluster_}, HasSubstr("never in group"));
  ExpectWhole(cluster_.Options(), Path("db"));
}

TEST_F(DatabaseRefusalTest, DirectoryOfAnotherGroup) {
  TestCluster& other = other_.Emptied();
  ASSERT_TRUE(other.started());
  const std::string theirs = other.folder() + "/db";
  Make(cluster_.Options(), Path("db"));
  Make(other.Options(), theirs);
  ExpectRefused(Second(), theirs, {&cluster_, &other}, HasSubstr("belongs to group"));
  StoreOptions second_of_other = other.Options();
  second_of_other.pool = other.folder() + "/second.pool";
  ExpectRefused(second_of_other, Path("db"), {&cluster_, &other}, HasSubstr("belongs to group"));
  ExpectWhole(cluster_.Options(), Path("db"));
  ExpectWhole(other.Options(), theirs);
}

TEST_F(DatabaseRefusalTest, SecondPrimaryWhileOneLives) {
  TestDatabase living(cluster_.Options(), Path("db"));
  ASSERT_OK(living.Open());
  ASSERT_OK(living.Fill(kKeys));
  const auto epoch = cluster_.ReplicaStatus(0)->sealed_epoch;
  const auto files = FilesOf(Path("db"));
  stdfs::create_directories(Path("other"));
  stdfs::copy_file(Path("db/HYPERLOOP"), Path("other/HYPERLOOP"));
  StoreOptions second = Second();
  second.rebind = true;  // else refused as a copy
  TestDatabase rival(second, Path("other"));
  const rocksdb::Status refused = rival.Open();
  EXPECT_THAT(refused, StatusIs(rocksdb::Status::kBusy));
  EXPECT_THAT(refused.ToString(),
              AllOf(HasSubstr("process " + std::to_string(getpid())), HasSubstr("takeover=true")));
  EXPECT_TRUE(FilesOf(Path("db")) == files);
  EXPECT_EQ(FilesOf(Path("other")).size(), 1u);
  for (uint32_t i = 0; i < cluster_.replicas(); ++i)
    EXPECT_EQ(cluster_.ReplicaStatus(i)->sealed_epoch, epoch);
  EXPECT_OK(living.Put("after", "1"));
  living.Close();
  ExpectWhole(cluster_.Options(), Path("db"));
}

TEST_F(DatabaseRefusalTest, DirectoryThatWasChangedWithoutTheGroup) {
  Make(cluster_.Options(), Path("db"));
  rocksdb::DB* plain = nullptr;
  ASSERT_OK(rocksdb::DB::Open(rocksdb::Options(), Path("db"), &plain));
  EXPECT_OK(plain->Put(rocksdb::WriteOptions(), "plain", "1"));
  delete plain;
  ExpectRefused(cluster_.Options(), Path("db"), {&cluster_},
                AllOf(HasSubstr("was changed without its group"),
                      HasSubstr("move " + Path("db") + "/CURRENT")));
  stdfs::rename(Path("db/CURRENT"), Path("CURRENT"));
  ExpectWhole(cluster_.Options(), Path("db"));
}

TEST_F(DatabaseRefusalTest, MissingTableFencesNobody) {
  TestDatabase living(cluster_.Options(), Path("db"));
  ASSERT_OK(living.Open());
  ASSERT_OK(living.Fill(kKeys));
  ASSERT_OK(living.db()->Flush(rocksdb::FlushOptions()));
  const uint64_t epoch = cluster_.ReplicaStatus(0)->sealed_epoch;
  for (uint32_t i = 0; i < cluster_.replicas(); ++i) {
    for (const auto& [name, bytes] : FilesOf(cluster_.pool(i) + ".files"))
      stdfs::remove(cluster_.pool(i) + ".files/" + name);
  }
  StoreOptions second = Second();
  second.takeover = second.restore = second.rebind = true;
  TestDatabase rival(second, Path("other"));
  EXPECT_THAT(rival.Open().ToString(), HasSubstr("lacks files that MANIFEST-"));
  for (uint32_t i = 0; i < cluster_.replicas(); ++i)
    EXPECT_EQ(cluster_.ReplicaStatus(i)->sealed_epoch, epoch);
  EXPECT_OK(living.Put("after", "1"));
}

TEST_F(DatabaseRefusalTest, CopyOfTheDirectory) {
  Make(cluster_.Options(), Path("db"));
  stdfs::copy(Path("db"), Path("copy"), stdfs::copy_options::recursive);
  ExpectRefused(Second(), Path("copy"), {&cluster_},
                AllOf(HasSubstr("is a copy"), HasSubstr("rebind=true")));
  StoreOptions rebinding = Second();
  rebinding.rebind = true;
  ExpectWhole(rebinding, Path("copy"));
  ExpectWhole(Second(), Path("copy"));
  ExpectRefused(cluster_.Options(), Path("db"), {&cluster_}, HasSubstr("rebind=true"));
  rebinding = cluster_.Options();
  rebinding.rebind = true;
  ExpectWhole(rebinding, Path("db"));
  ExpectRefused(Second(), Path("copy"), {&cluster_}, HasSubstr("rebind=true"));
}

TEST_F(DatabaseRefusalTest, DestroyedDatabaseMakesRoomForAnother) {
  Make(cluster_.Options(), Path("db"));
  TestDatabase database(cluster_.Options(), Path("db"));
  ASSERT_OK(database.Destroy());
  EXPECT_THAT(FilesOf(Path("db")), IsEmpty());
  for (uint32_t i = 0; i < cluster_.replicas(); ++i)
    EXPECT_THAT(cluster_.ReplicaStatus(i)->files, IsEmpty());
  // Tries the same directory, then another one: the first primary keeps the group.
  for (const std::string name : {"db", "elsewhere"}) {
    TestDatabase fresh(cluster_.Options(), Path(name));
    const rocksdb::Status opened = fresh.Open();
    ASSERT_OK(opened) << name << ": " << opened.ToString();
    EXPECT_THAT(fresh.Get(TestDatabase::KeyOf(0)), HasSubstr("NotFound"));
    ASSERT_OK(fresh.Put("new", name));
    fresh.Close();
    ASSERT_OK(fresh.Open());
    EXPECT_EQ(fresh.Get("new"), name);
    ASSERT_OK(fresh.Destroy());
  }
}

TEST_F(DatabaseRefusalTest, WrongPoolsOfThePrimary) {
  Make(cluster_.Options(), Path("db"));
  const std::string good = cluster_.Options().pool;
  const auto with_pool = [&](const std::string& name) {
    StoreOptions options = cluster_.Options();
    options.pool = Path(name);
    return options;
  };
  const auto refused = [&](const StoreOptions& store, const std::string& reason) {
    const uint64_t size = stdfs::exists(store.pool) ? stdfs::file_size(store.pool) : 0;
    ExpectRefused(store, Path("db"), {&cluster_}, AllOf(HasSubstr(store.pool), HasSubstr(reason)));
    EXPECT_EQ(stdfs::file_size(store.pool), size);
  };
  std::ofstream(Path("text.pool")) << "somebody's text";
  refused(with_pool("text.pool"), "pool");
  stdfs::copy_file(good, Path("short.pool"));
  stdfs::resize_file(Path("short.pool"), stdfs::file_size(good) / 2);
  refused(with_pool("short.pool"), "truncated");
  StoreOptions of_replica = cluster_.Options();
  of_replica.pool = cluster_.pool(1);
  refused(of_replica, "use");
  TestCluster& other = other_.Emptied();
  ASSERT_TRUE(other.started());
  Make(other.Options(), other.folder() + "/db");
  StoreOptions foreign = cluster_.Options();
  foreign.pool = other.Options().pool;
  refused(foreign, "name another path, or move the file away, and keep it");
  ExpectWhole(cluster_.Options(), Path("db"));
}

// A replica of an earlier release: who comes to its port is told so.
class EarlierReplica {
 public:
  static constexpr char kPurpose[] = "hyperloop control 7";

  EarlierReplica() {
    Result<UniqueFd> listener = control::ListenOn({"127.0.0.1", 0}, &endpoint_);
    EXPECT_OK(listener);
    listener_ = std::move(listener).value();
    thread_ = std::thread([this] {
      while (control::WaitReady(listener_.get(), POLLIN, control::Deadline::max()).ok()) {
        const UniqueFd guest(::accept(listener_.get(), nullptr, nullptr));
        if (!guest) return;
        Introduce(guest.get());
      }
    });
  }
  ~EarlierReplica() {
    ::shutdown(listener_.get(), SHUT_RDWR);  // which ends accept
    thread_.join();
  }
  std::string endpoint() const { return endpoint_.ToString(); }

 private:
  static void Introduce(int guest) {
    identity::SecureChannelOptions options;
    options.purpose = kPurpose;
    identity::SecureChannel channel(options);
    std::array<std::byte, 4096> bytes{};
    for (ssize_t got = 1; got > 0;) {
      got = ::recv(guest, bytes.data(), bytes.size(), 0);
      if (got > 0) channel.Append(std::span(bytes).first(static_cast<size_t>(got)));
      const bool refused = !channel.Next().ok();
      const std::vector<std::byte> answer = channel.TakeOutput();
      if (::send(guest, answer.data(), answer.size(), MSG_NOSIGNAL) < 0 || refused) return;
    }
  }

  control::Endpoint endpoint_;
  UniqueFd listener_;
  std::thread thread_;
};

TEST_F(DatabaseRefusalTest, ReplicaOfAnotherRelease) {
  const EarlierReplica earlier;
  StoreOptions store = cluster_.Options();
  store.replicas.back() = earlier.endpoint();
  const Shown before = Look(cluster_);
  TestDatabase database(store, Path("db"));
  const rocksdb::Status status = database.Open();
  EXPECT_THAT(status, StatusIs(rocksdb::Status::kNotSupported));
  EXPECT_THAT(status.ToString(),
              AllOf(HasSubstr(earlier.endpoint()), HasSubstr(EarlierReplica::kPurpose),
                    HasSubstr("use one release on all machines")));
  EXPECT_TRUE(Look(cluster_) == before);
  EXPECT_THAT(FilesOf(Path("db")), IsEmpty());
}

TEST_F(DatabaseRefusalTest, ForkedChildCannotWrite) {
  TestDatabase database(cluster_.Options(), Path("db"));
  ASSERT_OK(database.Open());
  ASSERT_OK(database.Fill(kKeys));
  ChildProcess child = ChildProcess::Fork([&] {
    std::printf("%s\n", database.Put("child", "1").ToString().c_str());
    return 0;
  });
  EXPECT_THAT(child.ReadLine(), AllOf(HasSubstr("IO fenced off"), HasSubstr("forked child")));
  EXPECT_EQ(child.Wait(), 0);
  ASSERT_OK(database.Put("parent", "1"));
  database.Close();
  ASSERT_OK(database.Open());
  EXPECT_EQ(database.FirstMissing(kKeys), "");
  EXPECT_EQ(database.Get("parent"), "1");
  EXPECT_THAT(database.Get("child"), HasSubstr("NotFound"));
}

TEST_F(DatabaseRefusalTest, ReplicaOrRnicDaemonDeadAtOpen) {
  Make(cluster_.Options(), Path("db"));
  const auto files = FilesOf(Path("db"));
  const auto refused = [&](TestDatabase& database, const std::string& reason) {
    const rocksdb::Status status = database.Open();
    EXPECT_THAT(status, StatusIs(rocksdb::Status::kIOError));
    EXPECT_THAT(status.ToString(), HasSubstr(reason));
    EXPECT_TRUE(FilesOf(Path("db")) == files);
  };
  TestDatabase early(cluster_.Options(), Path("db"));
  ASSERT_OK(early.MakeEnv());
  cluster_.KillReplica(1);
  refused(early, cluster_.endpoint(1));  // died after the FileSystem was made
  TestDatabase late(cluster_.Options(), Path("db"));
  refused(late, cluster_.endpoint(1));
  ASSERT_OK(cluster_.Restart());
  cluster_.KillRnicd();
  TestDatabase without_rnic(cluster_.Options(), Path("db"));
  refused(without_rnic, cluster_.socket());
  cluster_.RestartRnicd();
  rocksdb::Status opened;
  TestDatabase again(cluster_.Options(), Path("db"));
  EXPECT_TRUE(Eventually([&] {
    opened = again.Open();
    return opened.ok();
  })) << opened.ToString();
  EXPECT_EQ(again.FirstMissing(kKeys), "");
}

}  // namespace
}  // namespace hyperloop::test
