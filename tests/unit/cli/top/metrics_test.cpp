// Prometheus' text form.
#include "cli/top/metrics.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <sstream>

#include "tests/unit/cli/top/host_looks.hpp"

namespace sprat::cli {
namespace {

using ::testing::HasSubstr;

HostLook looked_at_ranks() {
  RankLook first = rank_look(0, 20, 1.5), second = rank_look(1, 20);
  first.record.totals = {{"all_reduce", 18446744073709551615u, 4096}, {"barrier", 2, 0}};
  second.record.failure = "lost rank 0";
  HostLook look = host_look({first, second});
  look.processes[100].command = "./train \"a b\" \\ c";
  look.gpus.emplace();
  (*look.gpus)[101] = {.bytes = 7, .busy = 0.25};
  return look;
}

TEST(TopMetrics, tell_counters_of_each_rank) {
  const std::string text = metrics_of(looked_at_ranks());
  for (const char* line :
       {"sprat_rank_up{job=\"100-aa\",rank=\"1\"} 1\n",
        "sprat_rank_failed{job=\"100-aa\",rank=\"0\"} 0\n",
        "sprat_rank_failed{job=\"100-aa\",rank=\"1\"} 1\n",
        "sprat_rank_start_time_seconds{job=\"100-aa\",rank=\"0\"} 1010\n",
        "sprat_job_ranks{job=\"100-aa\"} 2\n",
        "sprat_calls_total{job=\"100-aa\",rank=\"0\",operation=\"all_reduce\"} "
        "18446744073709551615\n",
        "sprat_bytes_total{job=\"100-aa\",rank=\"0\",operation=\"all_reduce\"} 4096\n",
        "sprat_wait_seconds_total{job=\"100-aa\",rank=\"0\"} 1.5\n",
        "sprat_process_resident_bytes{pid=\"100\"} 67108864\n",
        "sprat_gpu_memory_bytes{pid=\"101\"} 7\n", "sprat_gpu_busy_ratio{pid=\"101\"} 0.25\n",
        "pid=\"100\",host=\"host7\",command=\"./train \\\"a b\\\" \\\\ c\"} 1\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

// The grammar of the text form: a metric's help and type come before its values, which stand
// together, and no value comes twice.
TEST(TopMetrics, keep_to_the_grammar) {
  const std::regex value(
      R"re(([a-z_]+)\{([a-z]+="([^"\\]|\\["\\n])*",?)+\} [0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?)re");
  for (const HostLook& look : {looked_at_ranks(), HostLook{}}) {
    std::istringstream lines(metrics_of(look));
    std::set<std::string> begun, seen;
    std::string metric;
    for (std::string line; std::getline(lines, line);) {
      EXPECT_TRUE(seen.insert(line.substr(0, line.rfind(' '))).second) << line;
      if (line.starts_with("# HELP ")) {
        metric = line.substr(7, line.find(' ', 7) - 7);
        EXPECT_TRUE(begun.insert(metric).second) << line;
      } else if (line.starts_with("# TYPE ")) {
        EXPECT_THAT(line, testing::MatchesRegex("# TYPE " + metric + " (counter|gauge)"));
      } else {
        std::smatch match;
        ASSERT_TRUE(std::regex_match(line, match, value)) << line;
        EXPECT_EQ(match[1].str(), metric);
      }
    }
    EXPECT_GE(begun.size(), 10u);
  }
}

TEST(TopMetrics, escape_what_a_label_may_not_hold) {
  EXPECT_EQ(label_value("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
}

}  // namespace
}  // namespace sprat::cli
