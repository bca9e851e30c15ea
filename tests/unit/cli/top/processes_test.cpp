// What /proc says.
#include "cli/top/processes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace sprat::cli {
namespace {

using ::testing::HasSubstr;

TEST(TopProcesses, have_names_with_blanks_and_brackets) {
  const std::string rest =
      " 1 2 3 4 5 6 7 8 9 10 250 50 13 14 15 16 17 18 19 20 4096 22 23 24 25\n";
  for (const char* name : {"train", "a b", "x) R 1 2 (y", "))"}) {
    const auto stat = parse_stat(std::string("4711 (") + name + ") S" + rest);
    ASSERT_TRUE(stat.has_value()) << name;
    EXPECT_EQ(stat->state, 'S') << name;
    EXPECT_EQ(stat->cpu_ticks, 300u) << name;
    EXPECT_EQ(stat->started_ticks, 19u) << name;
    EXPECT_EQ(stat->resident_pages, 4096u) << name;
  }
  for (const char* bad : {"", "4711", "4711 (train)", "4711 (train) S 1 2 3"}) {
    EXPECT_FALSE(parse_stat(bad).has_value()) << bad;
  }
}

TEST(TopProcesses, have_command_lines_that_a_terminal_bears) {
  EXPECT_EQ(command_line(std::string_view("./a\0b c\0\0", 9)), "./a b c");
  EXPECT_EQ(command_line("\033[2J\xff"), "?[2J?");
  EXPECT_EQ(command_line(""), "?");
}

TEST(TopProcesses, this_one_is_seen) {
  const auto use = process_use(getpid());
  ASSERT_TRUE(use.has_value());
  EXPECT_EQ(use->state, 'R');
  EXPECT_EQ(use->user, "");
  EXPECT_GT(use->resident_bytes, 100'000u);
  EXPECT_GE(use->lived, 0);
  EXPECT_LT(use->lived, 3600);
  EXPECT_THAT(use->command, HasSubstr("test_cli"));
  EXPECT_FALSE(process_use(0).has_value());
}

}  // namespace
}  // namespace sprat::cli
