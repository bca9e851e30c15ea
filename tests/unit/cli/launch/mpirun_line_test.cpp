// What `sprat launch` gives to mpirun.
#include "cli/launch/mpirun_line.hpp"

#include <gtest/gtest.h>

#include "cli/command.hpp"

namespace sprat::cli {
namespace {

using Words = std::vector<std::string>;

TEST(MpirunLine, is_what_was_asked_for) {
  struct Case {
    LaunchRequest request;
    const char* line;
  };
  const Words train = {"./train", "-x", "a b"};
  const Case cases[] = {
      {{.ranks = 4, .command = {"./train"}}, "mpirun -np 4 --oversubscribe ./train"},
      {{.command = {"./train"}, .as_root = true, .cores = 6},
       "mpirun -np 6 --allow-run-as-root --oversubscribe ./train"},
      {{.ranks = 2, .command = train, .variables = {"SPRAT_LOG"}},
       "mpirun -np 2 --oversubscribe -x SPRAT_LOG ./train -x 'a b'"},
      {{.hosts = "a:8,b:8", .command = {"./train"}, .interface = "eth0"},
       "mpirun --host a:8,b:8 -np 16 --tag-output -mca plm_rsh_no_tree_spawn 1 "
       "-mca btl_tcp_if_include eth0 -mca oob_tcp_if_include eth0 ./train"},
      {{.hosts = "a:8,b:8", .command = {"./train"}, .interface = "^docker0"},
       "mpirun --host a:8,b:8 -np 16 --tag-output -mca plm_rsh_no_tree_spawn 1 ./train"},
      {{.hosts = "a,b", .ranks = 3, .command = {"./train"}},
       "mpirun --host a,b -np 3 --oversubscribe --tag-output -mca plm_rsh_no_tree_spawn 1 ./train"},
      // Custom options come after ours, as they are.
      {{.hosts = "a:8,b:8",
        .custom_options = "-verbose -x NCCL_DEBUG=VERSION",
        .command = {"./train"}},
       "mpirun --host a:8,b:8 -np 16 --tag-output -mca plm_rsh_no_tree_spawn 1 "
       "-verbose -x NCCL_DEBUG=VERSION ./train"},
      // The user's value holds, whether or not it has one.
      {{.ranks = 2,
        .custom_options = "-x SPRAT_LOG=debug --x SPRAT_TOKEN",
        .command = {"./train"},
        .variables = {"SPRAT_LOG", "SPRAT_PORTS", "SPRAT_TOKEN"}},
       "mpirun -np 2 --oversubscribe -x SPRAT_PORTS -x SPRAT_LOG=debug --x SPRAT_TOKEN ./train"},
      {{.hosts = "a:2",
        .custom_options = "--mca plm_rsh_no_tree_spawn 0 -n 1 -H b",
        .command = {"./train"}},
       "mpirun --tag-output --mca plm_rsh_no_tree_spawn 0 -n 1 -H b ./train"},
      // Options that nobody here knows.
      {{.ranks = 1, .custom_options = "--frobnicate 'all of it'", .command = {"./train"}},
       "mpirun -np 1 --oversubscribe --frobnicate 'all of it' ./train"},
  };
  for (const Case& one : cases) {
    EXPECT_EQ(shell_line(mpirun_line(one.request)), one.line);
  }
}

TEST(MpirunLine, is_refused_where_it_makes_no_sense) {
  EXPECT_THROW(mpirun_line({.ranks = 4}), UsageError);
  for (const char* hosts : {"a:0", "a:x", "a:8,", ",", ":8", "a:-1", "a:8:", "a:2147483647,b:2"}) {
    EXPECT_THROW(mpirun_line({.hosts = hosts, .command = {"x"}}), UsageError) << hosts;
  }
  EXPECT_THROW(mpirun_line({.custom_options = "-x 'A", .command = {"x"}}), UsageError);
}

TEST(Words, are_split_as_a_shell_splits_them) {
  const std::pair<const char*, Words> cases[] = {
      {"", {}},
      {"  a\tb \n c ", {"a", "b", "c"}},
      {R"('a b' "c d" e\ f)", {"a b", "c d", "e f"}},
      {R"(a'b'"c"d)", {"abcd"}},
      {R"('' "" x)", {"", "", "x"}},
      {R"("a\"b\\c\d" 'a\b')", {R"(a"b\c\d)", R"(a\b)"}},
      {R"(a\)", {R"(a\)"}},
  };
  for (const auto& [text, words] : cases) {
    EXPECT_EQ(split_words(text), words) << text;
  }
}

TEST(Words, come_back_from_a_shell_line) {
  const Words words = {"", "a", "a b", "it's", R"(\ "$x" `y`)", "*", "~", "-x", "A=b;c"};
  EXPECT_EQ(split_words(shell_line(words)), words);
}

}  // namespace
}  // namespace sprat::cli
