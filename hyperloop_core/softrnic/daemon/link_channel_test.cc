// What a link with a key refuses, and what can be read of it on the way.
#include "softrnic/daemon/link_channel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

namespace hyperloop::softrnic {
namespace {

using Bytes = std::vector<std::byte>;

Bytes BytesOf(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

bool Contains(const Bytes& all, const Bytes& part) {
  return std::search(all.begin(), all.end(), part.begin(), part.end()) != all.end();
}

// Both ends of a connection, introduced to each other.
struct Ends {
  explicit Ends(const LinkKey* dialer_key, const LinkKey* acceptor_key)
      : dialer(true, dialer_key), acceptor(false, acceptor_key) {}

  // What each says is given to the other until both are silent.
  Status Introduce() {
    for (;;) {
      const Bytes there = dialer.TakeOutput();
      const Bytes back = acceptor.TakeOutput();
      if (there.empty() && back.empty()) return {};
      acceptor.Append(there);
      dialer.Append(back);
      for (LinkChannel* each : {&acceptor, &dialer}) {
        const auto frame = each->Next();
        HL_RETURN_IF_ERROR(frame.status());
        EXPECT_FALSE(frame->has_value()) << "the introduction is not for the caller";
      }
    }
  }
  Bytes Seal(std::string_view text) {
    Bytes out;
    dialer.Seal(BytesOf(text), &out);
    return out;
  }

  LinkChannel dialer, acceptor;
};

// The next frame's body; "error" with one, "nothing" without a frame.
std::string Take(LinkChannel& channel) {
  const auto frame = channel.Next();
  if (!frame.ok()) return frame.status().code() == Code::kCorruption ? "refused" : "error";
  if (!frame->has_value()) return "nothing";
  return {reinterpret_cast<const char*>((*frame)->data()), (*frame)->size()};
}

class LinkChannelTest : public testing::Test {
 protected:
  LinkChannelTest() {
    EXPECT_TRUE(InitializeLinkCrypto().ok());
    key_.fill(0x5a);
    ends_ = std::make_unique<Ends>(&key_, &key_);
    EXPECT_TRUE(ends_->Introduce().ok());
    EXPECT_TRUE(ends_->dialer.open() && ends_->acceptor.open());
  }
  LinkKey key_{};
  std::unique_ptr<Ends> ends_;
};

// A dial to a port of this machine that nobody listens at may be given that very port to dial from.
TEST_F(LinkChannelTest, AConnectionToItselfIsRefused) {
  for (const LinkKey* key : {static_cast<const LinkKey*>(nullptr), &std::as_const(key_)}) {
    LinkChannel alone(true, key);
    alone.Append(alone.TakeOutput());
    EXPECT_FALSE(alone.Next().ok());
    EXPECT_FALSE(alone.open());
  }
}

TEST_F(LinkChannelTest, FramesArriveBothWays) {
  ends_->acceptor.Append(ends_->Seal("one"));
  ends_->acceptor.Append(ends_->Seal("two"));
  EXPECT_EQ(Take(ends_->acceptor), "one");
  EXPECT_EQ(Take(ends_->acceptor), "two");
  EXPECT_EQ(Take(ends_->acceptor), "nothing");
  Bytes back;
  ends_->acceptor.Seal(BytesOf("three"), &back);
  ends_->dialer.Append(back);
  EXPECT_EQ(Take(ends_->dialer), "three");
}

TEST_F(LinkChannelTest, WhatPassesIsNeitherReadableNorTheSameTwice) {
  const std::string_view secret = "a secret of sixteen bytes and more";
  const Bytes first = ends_->Seal(secret), second = ends_->Seal(secret);
  EXPECT_FALSE(Contains(first, BytesOf(secret.substr(0, 8))));
  EXPECT_NE(first, second);
  Ends again(&key_, &key_);
  ASSERT_TRUE(again.Introduce().ok());
  EXPECT_NE(again.Seal(secret), first) << "the same key on every connection";
  EXPECT_EQ(first.size(), secret.size() + LinkChannel::FrameOverhead(true));
}

TEST_F(LinkChannelTest, AChangedFrameIsRefusedWhereverItIsChanged) {
  const size_t size = ends_->Seal("payload").size();
  for (size_t at = kFrameLengthBytes; at < size; ++at) {
    Ends ends(&key_, &key_);
    ASSERT_TRUE(ends.Introduce().ok());
    Bytes frame = ends.Seal("payload");
    frame[at] ^= std::byte{1};
    ends.acceptor.Append(frame);
    EXPECT_EQ(Take(ends.acceptor), "refused") << "byte " << at;
  }
}

TEST_F(LinkChannelTest, ARepeatedFrameIsRefused) {
  const Bytes frame = ends_->Seal("pay once");
  ends_->acceptor.Append(frame);
  ends_->acceptor.Append(frame);
  EXPECT_EQ(Take(ends_->acceptor), "pay once");
  EXPECT_EQ(Take(ends_->acceptor), "refused");
}

TEST_F(LinkChannelTest, ALeftOutOrMovedFrameIsRefused) {
  const Bytes first = ends_->Seal("first"), second = ends_->Seal("second");
  ends_->acceptor.Append(second);
  ends_->acceptor.Append(first);
  EXPECT_EQ(Take(ends_->acceptor), "refused");
}

TEST_F(LinkChannelTest, AFrameThrownBackIsRefused) {
  ends_->dialer.Append(ends_->Seal("mirror"));
  EXPECT_EQ(Take(ends_->dialer), "refused");
}

TEST_F(LinkChannelTest, AFrameOfAnotherConnectionIsRefused) {
  Ends other(&key_, &key_);
  ASSERT_TRUE(other.Introduce().ok());
  ends_->acceptor.Append(other.Seal("from elsewhere"));
  EXPECT_EQ(Take(ends_->acceptor), "refused");
}

// A recorded introduction does not open another connection.
TEST_F(LinkChannelTest, ARepeatedIntroductionIsRefused) {
  LinkChannel dialer(true, &key_), acceptor(false, &key_);
  const Bytes hello = dialer.TakeOutput();
  acceptor.Append(hello);
  EXPECT_EQ(Take(acceptor), "nothing");
  dialer.Append(acceptor.TakeOutput());
  EXPECT_EQ(Take(dialer), "nothing");
  const Bytes proof = dialer.TakeOutput();
  acceptor.Append(proof);
  EXPECT_EQ(Take(acceptor), "nothing");
  ASSERT_TRUE(acceptor.open());
  LinkChannel replayed(false, &key_);
  replayed.Append(hello);
  replayed.Append(proof);
  EXPECT_EQ(replayed.Next().status().code(), Code::kPermissionDenied);
  EXPECT_FALSE(replayed.open());
}

TEST_F(LinkChannelTest, AnotherKeyOrNoneIsRefused) {
  LinkKey other = key_;
  other[31] ^= 1;
  for (const LinkKey* each :
       {static_cast<const LinkKey*>(&other), static_cast<const LinkKey*>(nullptr)}) {
    Ends ends(&key_, each);
    EXPECT_EQ(ends.Introduce().code(), Code::kPermissionDenied);
    EXPECT_FALSE(ends.dialer.open() && ends.acceptor.open());
    Ends turned(each, &key_);
    EXPECT_EQ(turned.Introduce().code(), Code::kPermissionDenied);
  }
}

}  // namespace
}  // namespace hyperloop::softrnic
