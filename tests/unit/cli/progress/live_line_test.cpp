// Lines of progress: what has room, and what a terminal shows then.
#include "cli/progress/live_line.hpp"

#include <gtest/gtest.h>

#include <random>

#include "cli/progress/training_line.hpp"

namespace sprat::cli {
namespace {

TEST(LiveLines, leave_out_what_matters_least) {
  const std::vector<LineField> fields{{"step 3/9", 9}, {"[==>  ]", 1}, {"", 8}, {"loss 2.1", 5}};
  struct FitCase {
    std::size_t columns;
    const char* line;
  };
  for (const FitCase& one : std::vector<FitCase>{{80, "step 3/9  [==>  ]  loss 2.1"},
                                                 {27, "step 3/9  [==>  ]  loss 2.1"},
                                                 {26, "step 3/9  loss 2.1"},
                                                 {18, "step 3/9  loss 2.1"},
                                                 {17, "step 3/9  [==>  ]"},
                                                 {16, "step 3/9"},
                                                 {4, "step"},
                                                 {0, ""}}) {
    EXPECT_EQ(fitted_line(fields, one.columns), one.line) << one.columns;
  }
  EXPECT_EQ(fitted_line({}, 80), "");
}

/// The last line of a terminal, which knows no more than going back to its begin.
std::string seen(std::string line, const std::string& bytes) {
  std::size_t at = line.size();
  for (const char c : bytes) {
    if (c == '\r') {
      at = 0;
      continue;
    }
    line.resize(std::max(line.size(), at + 1), ' ');
    line[at++] = c;
  }
  return line;
}

TEST(LiveLines, cover_what_stood_there) {
  std::mt19937_64 random(1);
  std::string before, shown;
  for (int round = 0; round < 200; ++round) {
    const std::string text(random() % 40, static_cast<char>('a' + random() % 26));
    shown = seen(shown, redrawn(before.size(), text));
    EXPECT_EQ(shown.substr(0, text.size()), text);
    EXPECT_EQ(shown.find_first_not_of(' ', text.size()), std::string::npos) << shown;
    before = text;
  }
}

TEST(LiveLines, are_drawn_where_a_cursor_goes_back) {
  EXPECT_TRUE(can_redraw("xterm-256color"));
  for (const char* terminal : {"dumb", ""}) {
    EXPECT_FALSE(can_redraw(terminal));
  }
  EXPECT_FALSE(can_redraw(nullptr));
}

TEST(LiveLines, spell_ages) {
  EXPECT_EQ(spelled_age(59.9), "59 s");
  EXPECT_EQ(spelled_age(192), "3 min 12 s");
  EXPECT_EQ(spelled_age(7500), "2 h 05 min");
}

TEST(LiveLines, say_how_far_a_training_run_is) {
  train::RunStatus status{.step = 0,
                          .steps = 100,
                          .loss = {},
                          .tokens_per_s = 0,
                          .seconds_left = {},
                          .doing = "training"};
  EXPECT_EQ(fitted_line(training_line(status), 120),
            "step   0/100  [>                   ]  training");
  status = {.step = 25,
            .steps = 100,
            .loss = 3.25,
            .tokens_per_s = 12345,
            .seconds_left = 63,
            .doing = "saving"};
  EXPECT_EQ(fitted_line(training_line(status), 120),
            "step  25/100  [=====>              ]  loss 3.2500  12.3k tokens/s  1 min 03 s left  "
            "saving");
  EXPECT_EQ(fitted_line(training_line(status), 60),
            "step  25/100  loss 3.2500  1 min 03 s left  saving");
  status.step = 100;
  EXPECT_EQ(fitted_line(training_line(status), 37), "step 100/100  loss 3.2500  saving");
  status.step = 1'500'000'000;
  status.steps = 2'000'000'000;
  EXPECT_EQ(fitted_line(training_line(status), 50),
            "step 1500000000/2000000000  loss 3.2500  saving");
  EXPECT_EQ(training_line(status)[1].text, "[===============>    ]");
}

}  // namespace
}  // namespace sprat::cli
