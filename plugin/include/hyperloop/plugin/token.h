// Token: names everything that a writer has written until now, so that a Reader elsewhere waits for
// it. It needs RocksDB alone, and travels as text, as in a header of HTTP.
//
//   hyperloop::Origin origin;  // of a database that is open over the plugin, once
//   Status status = hyperloop::Origin::OfPrimary(db, &origin);
//   db->Put(…);                // acknowledged: it has returned
//   std::string text = hyperloop::Token{origin, db->GetLatestSequenceNumber()}.ToText();
//   // Elsewhere:
//   hyperloop::Token token;
//   status = hyperloop::Token::Parse(text, &token);
//   if (status.ok()) status = reader->WaitFor(token, std::chrono::seconds(1));
#pragma once

#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/slice.h>
#include <rocksdb/status.h>
#include <rocksdb/types.h>

#include <cstdint>
#include <string>

namespace hyperloop {

// Of what a sequence number is one: it means nothing in another group, nor in another branch of the
// group's history, nor in another database that the group held before or since.
struct Origin {
  std::string group;
  std::string branch = "0";  // with which epoch and owner it began, "17-uuid"; "0": with the group
  std::string database;      // RocksDB's identity of it; empty: it keeps none

  // That of a database that is open over the plugin: it stays so until it is closed. `local`: the
  // Env that has the directory's files. NotFound: the directory is in no group.
  static rocksdb::Status OfPrimary(rocksdb::DB* db, Origin* origin,
                                   rocksdb::Env* local = rocksdb::Env::Default()) {
    std::string identity;
    const rocksdb::Status status = db->GetDbIdentity(identity);
    return status.ok() ? OfDirectory(local, db->GetName(), identity, origin) : status;
  }
  // The same, for a program that has not the DB: of the directory of a database that is open over
  // the plugin, and whose identity this is.
  static rocksdb::Status OfDirectory(rocksdb::Env* local, const std::string& directory,
                                     const std::string& identity, Origin* origin) {
    Origin found;
    const rocksdb::Status status = found.ReadFrom(local, directory + "/HYPERLOOP");
    if (!status.ok()) return status;
    found.database = Cleaned(identity);
    *origin = found;
    return status;
  }

  // That of a directory which `hyperloopctl follow` keeps. NotFound: it is none.
  static rocksdb::Status OfFollowed(rocksdb::Env* env, const std::string& directory,
                                    Origin* origin) {
    Origin found;
    const rocksdb::Status status =
        found.ReadFrom(rocksdb::Env::Default(), directory + "/hyperloop-follower");
    if (!status.ok()) return status;
    rocksdb::ReadFileToString(env, directory + "/IDENTITY", &found.database).PermitUncheckedError();
    found.database = Cleaned(found.database);
    *origin = found;
    return status;
  }

  // A database whose identity only one of the two knows may be the same.
  bool HasSameDatabase(const Origin& other) const {
    return database.empty() || other.database.empty() || database == other.database;
  }

  static bool IsPart(const std::string& text) {
    return !text.empty() && text.size() <= 80 &&
           text.find_first_not_of(
               "-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") ==
               std::string::npos;
  }

 private:
  // RocksDB makes uuids.
  static std::string Cleaned(const std::string& identity) {
    const std::string text = identity.substr(0, identity.find_last_not_of(" \n") + 1);
    return IsPart(text) && text != "-" ? text : std::string();
  }

  // Takes the lines "group …" and "branch EPOCH OWNER".
  rocksdb::Status ReadFrom(rocksdb::Env* env, const std::string& path) {
    std::string text;
    rocksdb::Status status = env->FileExists(path);
    if (status.ok()) status = rocksdb::ReadFileToString(env, path, &text);
    if (!status.ok()) return status;
    group = LineOf(text, "group ");
    const std::string line = LineOf(text, "branch ");
    const size_t space = line.find(' ');
    const std::string epoch = line.substr(0, space);
    if (!epoch.empty() && epoch != "0" && space != std::string::npos)
      branch = epoch + "-" + line.substr(space + 1);
    if (IsPart(group) && IsPart(branch)) return status;
    return rocksdb::Status::Corruption(path, "it names no group");
  }
  static std::string LineOf(const std::string& text, const char* key) {
    const std::string before = std::string("\n") + key;
    const std::string whole = "\n" + text;
    const size_t at = whole.find(before);
    if (at == std::string::npos) return {};
    const size_t begin = at + before.size();
    return whole.substr(begin, whole.find('\n', begin) - begin);
  }
};

struct Token {
  Origin origin;
  rocksdb::SequenceNumber sequence = 0;  // of DB::GetLatestSequenceNumber

  // GROUP.BRANCH.DATABASE.SEQUENCE, of letters, digits, '-' and '.' alone, at most 263 of them.
  std::string ToText() const {
    return origin.group + "." + origin.branch + "." +
           (origin.database.empty() ? std::string("-") : origin.database) + "." +
           std::to_string(sequence);
  }

  // Takes text from strangers. InvalidArgument: it is not what ToText gives; *token stays as it
  // was.
  static rocksdb::Status Parse(const rocksdb::Slice& text, Token* token) {
    constexpr size_t kParts = 4, kLongest = 263;
    if (text.size() > kLongest) return Malformed("it is too long");
    std::string parts[kParts];
    size_t part = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '.') {
        parts[part].push_back(text[i]);
      } else if (++part == kParts) {
        return Malformed("it has more than four parts");
      }
    }
    if (part + 1 != kParts) return Malformed("it has fewer than four parts");
    for (const std::string& each : parts)
      if (!Origin::IsPart(each)) return Malformed("it has other characters, or an empty part");
    Token parsed;
    const std::string& digits = parts[3];
    if (digits.size() > 17 || digits.find_first_not_of("0123456789") != std::string::npos)
      return Malformed("its last part is no sequence number");
    for (const char digit : digits)
      parsed.sequence = 10 * parsed.sequence + static_cast<uint64_t>(digit - '0');
    parsed.origin.group = parts[0];
    parsed.origin.branch = parts[1];
    if (parts[2] != "-") parsed.origin.database = parts[2];
    *token = parsed;
    return rocksdb::Status::OK();
  }

 private:
  static rocksdb::Status Malformed(const char* why) {
    return rocksdb::Status::InvalidArgument("not a token", why);
  }
};

}  // namespace hyperloop
