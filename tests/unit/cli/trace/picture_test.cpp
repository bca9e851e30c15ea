// Traces as SVG: ranks as rows, colours by kind, and what somebody waits for over what is computed.
#include "cli/trace/picture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "sprat/error.hpp"

namespace sprat::cli {
namespace {

namespace trace_picture {

using ::testing::HasSubstr;
using ::testing::Not;

/// Two steps of two ranks, a second each. Rank 1 stalls amid its backward.
planning::TraceFile two_steps() {
  planning::TraceFile trace;
  const auto add = [&](std::int64_t rank, const char* kind, const char* name, double begin,
                       double end) {
    trace.slices.push_back({.rank = rank, .name = name, .kind = kind, .begin = begin, .end = end});
  };
  for (const std::int64_t rank : {0, 1}) {
    add(rank, "steps", "step 1", 10, 11);
    add(rank, "computes", "0F0", 10, 10.25);
    add(rank, "gathers", "h.0", 10, 10.125);
    add(rank, "steps", "step 2", 11, 12);
    add(rank, "computes", "0B0", 11, 11.5);
    add(rank, "computes", "1RECV_F0", 11.5, 11.75);
  }
  add(1, "stalls", "load", 11.125, 11.25);
  add(1, "loader", "<batch & more>", 11.875, 12);
  return trace;
}

TEST(TracePicture, has_a_row_a_rank_and_says_what_each_slice_is) {
  const std::string svg = trace_svg(two_steps(), "a run", {});
  for (const char* part :
       {">a run<", "2 ranks, 2 s: ", ">rank 0<", ">rank 1<", ">38 % computing<", ">forward<",
        ">backward<", ">wait<", ">stall<", ">gather<", ">loader<", ">600 ms<",
        "<title>0F0, 0 µs to 250 ms</title>", "<title>0B0, 1 s to 1.5 s</title>",
        "<title>1RECV_F0, 1.5 s to 1.75 s</title>",
        "<title>&lt;batch &amp; more>, 1.875 s to 2 s</title>"}) {
    EXPECT_THAT(svg, HasSubstr(part));
  }
  EXPECT_THAT(svg, Not(HasSubstr(">checkpoint<"))) << "the legend has what occurs";
  EXPECT_THAT(svg, Not(HasSubstr("<title>step"))) << "steps are around all else";
  EXPECT_LT(svg.rfind("<title>0B0, "), svg.find("<title>load,")) << "a stall is seen";
}

TEST(TracePicture, of_a_step_begins_with_it) {
  const std::string svg = trace_svg(two_steps(), "a run", 2);
  EXPECT_THAT(svg, HasSubstr("2 ranks, 1 s: "));
  EXPECT_THAT(svg, HasSubstr("<title>0B0, 0 µs to 500 ms</title>"));
  EXPECT_THAT(svg, HasSubstr("<title>load, 125 ms to 250 ms</title>"));
  EXPECT_THAT(svg, Not(HasSubstr("0F0")));
  EXPECT_THROW(trace_svg(two_steps(), "a run", 3), Error);
  EXPECT_THROW(trace_svg({}, "nothing", {}), Error);
}

// A hundred ranks make ten calls at once, twenty times: what is no wider than a pixel is one
// box.
TEST(TracePicture, of_many_ranks_and_slices_stays_small) {
  planning::TraceFile trace;
  for (int i = 0; i < 20'000; ++i) {
    const double begin = 1e-6 * (i / 1000);
    trace.slices.push_back({.rank = i % 100,
                            .name = "all_reduce",
                            .kind = "collectives",
                            .begin = begin,
                            .end = begin + 1e-9});
  }
  const std::string svg = trace_svg(trace, "a run", {});
  EXPECT_THAT(svg, HasSubstr("; the first 64 ranks"));
  EXPECT_THAT(svg, Not(HasSubstr(">rank 64<")));
  EXPECT_THAT(svg, HasSubstr("<title>10 x collective, "));
  std::size_t boxes = 0;
  for (std::size_t at = svg.find("<rect"); at != svg.npos; at = svg.find("<rect", at + 1)) {
    ++boxes;
  }
  EXPECT_EQ(boxes, 1u + 1 + 64 * (1 + 20)) << "the ground, the legend, rows and calls";
}

}  // namespace trace_picture
}  // namespace
}  // namespace sprat::cli
