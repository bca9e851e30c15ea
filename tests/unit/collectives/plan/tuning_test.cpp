// Rules: their grammar, which one wins, and that the defaults use the whole table.
#include "collectives/plan/tuning.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "collectives/plan/planner.hpp"
#include "comm/base/check.hpp"
#include "sprat/error.hpp"
#include "tests/unit/collectives/plan/problem_table.hpp"
#include "tests/unit/no_files.hpp"

namespace sprat::collectives {
namespace {

using ::testing::HasSubstr;

/// f32, `ranks` ranks over `hosts` equal hosts, as close to `bytes` of payload as counts allow.
Problem problem_of(Collective collective, int ranks, int hosts, std::size_t bytes) {
  Problem problem;
  problem.collective = collective;
  std::vector<int> host_of;
  for (int rank = 0; rank < ranks; ++rank) {
    host_of.push_back(rank * hosts / ranks);
  }
  problem.grouping = std::make_shared<const Grouping>(host_of);
  problem.count = 1;
  problem.count =
      std::max<std::size_t>(bytes / std::max<std::size_t>(problem.payload_bytes(), 1), 1);
  return problem;
}

Config with_rules(std::string_view algorithm, ReduceOrder order = ReduceOrder::canonical) {
  Config config;
  config.algorithm = algorithm;
  config.order = order;
  return config;
}

Config with_file(const std::string& path, std::string_view algorithm = "") {
  Config config = with_rules(algorithm);
  config.tuning = path;
  return config;
}

std::string chosen(std::string_view override_text, const Problem& problem) {
  return choose(problem, rules_of(with_rules(override_text))).name;
}

TEST(Tuning, rules_read_back_as_they_were_written) {
  for (const char* rule : {
           "all_reduce one_shot",
           "all_reduce 0-64k one_shot",
           "all_gather 1m- hierarchical",
           "all_gather 1025-3g direct",
           "reduce_scatter 5-5 ranks<8 hosts>1 per_host=1 direct",
           "broadcast ranks>=3 hosts<=4 dtype=bf16 chain",
       }) {
    const Rules rules = parse_rules(rule);
    ASSERT_EQ(rules.size(), 1) << rule;
    EXPECT_EQ(describe(rules[0]), rule);
  }
}

TEST(Tuning, lines_end_rules_and_hashes_begin_comments) {
  const Rules rules = parse_rules(
      "# measured\n\nall_reduce 0-1k one_shot # 0.5; fast\nall_gather direct; barrier "
      "dissemination\n",
      "/a/file");
  ASSERT_EQ(rules.size(), 3);
  EXPECT_EQ(describe(rules[0]), "all_reduce 0-1k one_shot");
  EXPECT_EQ(rules[0].origin, "/a/file line 3");
  EXPECT_EQ(rules[2].origin, "/a/file line 4");
}

/// A file that is gone with this.
class RulesFile {
 public:
  explicit RulesFile(const std::string& content) { std::ofstream(path_) << content; }
  ~RulesFile() { std::filesystem::remove(path_); }
  std::string path() const { return path_; }

 private:
  std::string path_ = std::filesystem::temp_directory_path() / fmt::format("rules-{}", ::getpid());
};

TEST(Tuning, a_file_comes_before_the_defaults_and_behind_the_variable) {
  const RulesFile file("all_reduce 0-1m hosts=1 direct\nall_gather hosts>1 direct\n");
  const Problem small = problem_of(Collective::all_reduce, 4, 1, 1024);
  EXPECT_STREQ(choose(small, rules_of({})).name, "one_shot");
  EXPECT_STREQ(choose(small, rules_of(with_file(file.path()))).name, "direct");
  const Rules rules = rules_of(with_file(file.path(), "all_reduce one_shot"));
  EXPECT_STREQ(choose(small, rules).name, "one_shot");
  EXPECT_EQ(rules[0].origin, "SPRAT_ALGORITHM line 1");
  EXPECT_EQ(rules[2].origin, file.path() + " line 2");
  EXPECT_EQ(rules[3].origin, "default");
}

TEST(Tuning, a_bad_file_is_refused_with_the_line) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {"# fine\nall_reduce 0-4k one_shoot\n",
       " line 2: algorithm rule \"all_reduce 0-4k one_shoot\""},
      {"\x7f"
       "ELF\x02\x01",
       " line 1: algorithm rule"},
      {"all_reduce ring", "set SPRAT_ORDER=any"},
  };
  for (const auto& [content, complaint] : table) {
    const RulesFile file(content);
    try {
      rules_of(with_file(file.path()));
      ADD_FAILURE() << content << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), testing::AllOf(HasSubstr(file.path()), HasSubstr(complaint)));
    }
  }
  try {
    rules_of(with_file("/nowhere/at/all"));
    FAIL() << "was read";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unavailable);
    EXPECT_THAT(error.what(), HasSubstr("\"/nowhere/at/all\""));
  }
}

TEST(Tuning, what_is_no_file_is_refused_and_not_waited_for) {
  const NoFiles none;
  for (const std::string& path : none.paths()) {
    try {
      rules_of(with_file(path));
      ADD_FAILURE() << path << " was read";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unavailable);
      EXPECT_THAT(error.what(),
                  testing::StartsWith("cannot read SPRAT_TUNING=\"" + path + "\": it is a "));
    }
  }
}

TEST(Tuning, sizes_take_units_of_1024) {
  const Rules rules = parse_rules("all_reduce 2k-3m direct;; all_reduce 1g- direct ;");
  ASSERT_EQ(rules.size(), 2);
  EXPECT_EQ(rules[0].least_bytes, 2048);
  EXPECT_EQ(rules[0].most_bytes, 3 << 20);
  EXPECT_EQ(rules[1].least_bytes, 1 << 30);
}

TEST(Tuning, bad_words_are_shown_with_their_place) {
  const std::vector<std::pair<const char*, const char*>> table = {
      {"all_reduze one_shot", "\"all_reduze\" (at character 1)"},
      {"all_reduce", "\"all_reduce\" (at character 1)"},
      {"all_reduce best", "\"best\" (at character 12)"},
      {"all_reduce one_shot hosts>1", "\"one_shot\" (at character 12)"},
      {"all_reduce 0-64q one_shot", "\"0-64q\" (at character 12)"},
      {"all_reduce 64k one_shot", "\"64k\" (at character 12)"},
      {"all_reduce 9-3 one_shot", "\"9-3\" (at character 12)"},
      {"all_reduce 99999999999g- one_shot", "\"99999999999g-\" (at character 12)"},
      {"all_reduce nodes>1 one_shot", "\"nodes>1\" (at character 12)"},
      {"all_reduce hosts>>1 one_shot", "\"hosts>>1\" (at character 12)"},
      {"all_reduce hosts> one_shot", "\"hosts>\" (at character 12)"},
      {"all_reduce hosts>x one_shot", "\"hosts>x\" (at character 12)"},
      {"all_reduce dtype=f31 one_shot", "\"dtype=f31\" (at character 12)"},
      {"all_reduce dtype<f32 one_shot", "\"dtype<f32\" (at character 12)"},
      {"all_gather direct; all_reduce fast", "\"fast\" (at character 12)"},
  };
  for (const auto& [rule, complaint] : table) {
    try {
      parse_rules(rule);
      ADD_FAILURE() << rule << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << rule;
      EXPECT_THAT(error.what(), HasSubstr(complaint)) << rule;
    }
  }
}

TEST(Tuning, a_wrong_algorithm_is_answered_with_the_right_ones) {
  try {
    parse_rules("broadcast ring");
    FAIL() << "was taken";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("chain, flat"));
  }
}

TEST(Tuning, the_first_rule_that_applies_wins) {
  const char* rules =
      "all_reduce 0-1k one_shot; all_reduce hosts>1 hierarchical; all_reduce 1m- one_shot";
  EXPECT_EQ(chosen(rules, problem_of(Collective::all_reduce, 4, 1, 1024)), "one_shot");
  EXPECT_EQ(chosen(rules, problem_of(Collective::all_reduce, 4, 2, 1024)), "one_shot");
  EXPECT_EQ(chosen(rules, problem_of(Collective::all_reduce, 4, 2, 1028)), "hierarchical");
  EXPECT_EQ(chosen(rules, problem_of(Collective::all_reduce, 4, 1, 1 << 20)), "one_shot");
}

TEST(Tuning, conditions_hold_each_property_against_its_number) {
  const Problem problem = problem_of(Collective::all_gather, 6, 2, 4800);
  const std::vector<std::pair<std::string, bool>> table = {
      {"ranks=6", true},    {"ranks<6", false},    {"ranks<=6", true},  {"ranks>5", true},
      {"ranks>6", false},   {"ranks>=7", false},   {"hosts=2", true},   {"hosts>2", false},
      {"per_host=3", true}, {"per_host<3", false}, {"dtype=f32", true}, {"dtype=f64", false},
      {"partials=2", true}, {"partials<2", false}, {"4800-4800", true}, {"4801-", false},
      {"0-4799", false},    {"0-5k", true},
  };
  for (const auto& [condition, holds] : table) {
    const Rules rules = parse_rules("all_gather " + condition + " direct");
    EXPECT_EQ(applies(rules[0], problem), holds) << condition;
  }
  EXPECT_FALSE(applies(parse_rules("broadcast chain")[0], problem));
}

TEST(Tuning, an_override_that_does_not_fit_leaves_it_to_the_defaults) {
  const Problem two_hosts = problem_of(Collective::all_reduce, 4, 2, 1 << 20);
  EXPECT_EQ(chosen("all_reduce direct", two_hosts), chosen("", two_hosts));
  EXPECT_EQ(chosen("all_reduce direct", problem_of(Collective::all_reduce, 4, 1, 8)), "direct");
}

TEST(Tuning, ranks_choose_alike) {
  const Rules rules = rules_of({});
  for (const Algorithm* algorithm : all_algorithms()) {
    for_each_case(*algorithm, [&rules](const Case& c) {
      const Algorithm& first = choose(c.problem, rules);
      EXPECT_EQ(first.collective, c.problem.collective);
      EXPECT_EQ(first.order, ReduceOrder::canonical) << c.label;
      for (const Problem& problem : c.each) {
        EXPECT_EQ(&choose(problem, rules), &first) << c.label << ", rank " << problem.rank;
      }
    });
  }
}

TEST(Tuning, another_order_must_be_allowed) {
  const Problem unaligned = problem_of(Collective::all_reduce, 12, 4, 64 << 20);
  EXPECT_STREQ(choose(unaligned, rules_of({})).name, "hierarchical");
  EXPECT_STREQ(choose(unaligned, rules_of(with_rules("", ReduceOrder::any))).name, "ring");
  EXPECT_STREQ(choose(unaligned, rules_of(with_rules("all_reduce ring", ReduceOrder::any))).name,
               "ring");
  try {
    rules_of(with_rules("all_reduce hosts>1 ring"));
    FAIL() << "was taken";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("\"all_reduce hosts>1 ring\""));
    EXPECT_THAT(error.what(), HasSubstr("SPRAT_ORDER=any"));
  }
}

TEST(Tuning, user_operations_keep_their_order) {
  Problem unaligned = problem_of(Collective::all_reduce, 12, 4, 64 << 20);
  unaligned.op = Reduction::user({"first", [](const void*, void*, std::size_t, DType) {}});
  EXPECT_STREQ(choose(unaligned, rules_of(with_rules("", ReduceOrder::any))).name, "hierarchical");
}

/// Aligned blocks of ranks, and others.
const int rank_counts_to_tune[] = {1, 2, 4, 6, 8, 12, 16, 24, 32, 64};

TEST(Tuning, every_algorithm_is_chosen_by_default_for_something) {
  std::set<const Algorithm*> used;
  const Rules rules = rules_of(with_rules("", ReduceOrder::any));
  for (const Algorithm* algorithm : all_algorithms()) {
    for (int ranks : rank_counts_to_tune) {
      for (int hosts = 1; hosts <= ranks; hosts *= 2) {
        for (std::size_t bytes = 1; bytes <= std::size_t{1} << 34; bytes *= 4) {
          used.insert(&choose(problem_of(algorithm->collective, ranks, hosts, bytes), rules));
        }
      }
    }
  }
  for (const Algorithm* algorithm : all_algorithms()) {
    EXPECT_TRUE(used.contains(algorithm)) << name(algorithm->collective) << " " << algorithm->name;
  }
}

std::shared_ptr<const Grouping> round_robin(int ranks, int hosts) {
  std::vector<int> host_of;
  for (int rank = 0; rank < ranks; ++rank) {
    host_of.push_back(rank % hosts);
  }
  return std::make_shared<Grouping>(host_of);
}

TEST(Tuning, every_default_rule_wins_for_something) {
  // Sizes beside every boundary, so that a rule hidden behind another is noticed.
  const Rules rules = rules_of(with_rules("", ReduceOrder::any));
  constexpr std::size_t most = std::size_t{1} << 34;
  std::set<const Rule*> winners;
  for (const Rule& candidate : rules) {
    for (int ranks : rank_counts_to_tune) {
      for (int hosts = 1; hosts <= ranks; hosts *= 2) {
        for (const std::size_t bytes :
             {candidate.least_bytes, std::min(candidate.most_bytes, most), most}) {
          Problem problem = problem_of(candidate.algorithm->collective, ranks, hosts, bytes);
          for (const std::string kind : {"apart", "even", "round robin", "uneven"}) {
            problem.out_of_place = hosts == 1 && kind == "apart";
            if (kind == "round robin") {
              problem.grouping = round_robin(ranks, hosts);
            }
            if (kind == "uneven") {
              problem.counts = std::make_shared<const BlockCounts>(
                  std::vector<std::size_t>(ranks, problem.count));
            }
            for (const Rule& rule : rules) {
              if (!applies(rule, problem) || !rule.algorithm->fits(problem)) {
                continue;
              }
              winners.insert(&rule);
              break;
            }
          }
        }
      }
    }
  }
  for (const Rule& rule : rules) {
    EXPECT_TRUE(winners.contains(&rule)) << describe(rule);
  }
}

TEST(Planner, refuses_an_algorithm_that_does_not_fit) {
  const Algorithm& direct = *find_algorithm(Collective::all_reduce, "direct");
  EXPECT_THROW(make_plan(problem_of(Collective::all_reduce, 4, 2, 64), direct), Error);
  EXPECT_THROW(make_plan(problem_of(Collective::all_gather, 4, 1, 64), direct), Error);
}

}  // namespace
}  // namespace sprat::collectives
