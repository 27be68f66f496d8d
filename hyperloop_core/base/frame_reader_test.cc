#include "base/frame_reader.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/status_matchers.h"

namespace hyperloop {
namespace {

using Bytes = std::vector<std::byte>;

TEST(FrameReader, CutsAStreamHoweverItArrives) {
  Bytes stream;
  std::vector<Bytes> frames;
  for (const size_t size : {3u, 0u, 1000u, 1u, 64u}) {
    frames.emplace_back(size, static_cast<std::byte>(size));
    AppendFrame(frames.back(), &stream);
  }
  for (const size_t step : {1u, 2u, 5u, 7u, 64u, 4000u}) {
    FrameReader reader(1000);
    std::vector<Bytes> got;
    for (size_t at = 0; at < stream.size(); at += step) {
      reader.Append(std::span(stream).subspan(at, std::min(step, stream.size() - at)));
      for (;;) {
        const auto frame = reader.Next();
        ASSERT_OK(frame);
        if (!frame->has_value()) break;
        got.emplace_back((*frame)->begin(), (*frame)->end());
      }
    }
    EXPECT_EQ(got, frames) << "in steps of " << step;
  }
}

TEST(FrameReader, RefusesALengthBeyondItsLimitBeforeTheBytes) {
  Bytes stream;
  AppendFrame(Bytes(1001), &stream);
  FrameReader reader(1000);
  reader.Append(std::span(stream).first(4));
  EXPECT_THAT(reader.Next().status(), StatusIs(Code::kCorruption));
}

}  // namespace
}  // namespace hyperloop
