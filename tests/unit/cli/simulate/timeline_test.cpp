// Timelines of simulations as SVG.
#include "cli/simulate/timeline.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace sprat::cli {
namespace {

using collectives::Span;
using collectives::Verb;
using ::testing::HasSubstr;
using ::testing::Not;

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) {
    ++found;
  }
  return found;
}

Timeline two_ranks(std::vector<Span> spans) {
  Timeline timeline;
  timeline.title = "a < b & c";
  timeline.subtitle = "two ranks";
  timeline.host_of = {0, 1};
  timeline.seconds = 100e-6;
  timeline.spans = std::move(spans);
  return timeline;
}

TEST(TimelineSvg, names_each_span_with_its_peer_and_times) {
  const std::string svg =
      to_svg(two_ranks({{.rank = 0, .verb = Verb::send, .peer = 1, .begin = 0, .end = 40e-6},
                        {.rank = 1, .verb = Verb::recv, .peer = 0, .begin = 10e-6, .end = 50e-6}}));
  EXPECT_THAT(svg, HasSubstr("<title>send with rank 1, 0 µs to 40 µs</title>"));
  EXPECT_THAT(svg, HasSubstr("<title>recv with rank 0, 10 µs to 50 µs</title>"));
}

TEST(TimelineSvg, joins_steps_too_short_to_see) {
  std::vector<Span> spans;
  for (int i = 0; i < 1000; ++i) {
    spans.push_back({.rank = 0, .begin = i * 1e-9, .end = (i + 1) * 1e-9});
  }
  EXPECT_EQ(count(to_svg(two_ranks(spans)), "<title>"), 11);  // 1 µs is 10.4 pixels here
}

TEST(TimelineSvg, escapes_what_would_be_markup) {
  EXPECT_THAT(to_svg(two_ranks({})), HasSubstr(">a &lt; b &amp; c<"));
}

TEST(TimelineSvg, shows_the_first_ranks_of_many_and_says_so) {
  Timeline timeline = two_ranks({{.rank = 99, .verb = Verb::copy, .begin = 0, .end = 1e-6}});
  timeline.host_of.assign(100, 0);
  const std::string svg = to_svg(timeline);
  EXPECT_THAT(svg, HasSubstr("two ranks; ranks 0-63 of 100"));
  EXPECT_THAT(svg, Not(HasSubstr("<title>")));
  EXPECT_EQ(count(svg, ">rank "), 64);
}

}  // namespace
}  // namespace sprat::cli
