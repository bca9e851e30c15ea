// `sprat top`: the jobs of this host, how fast they go and who waits for whom, again every second.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cli/command.hpp"
#include "cli/top/metrics.hpp"
#include "cli/top/metrics_server.hpp"
#include "cli/top/rows.hpp"
#include "cli/top/sampler.hpp"
#include "cli/top/screen.hpp"
#include "cli/top/table.hpp"
#include "cli/whole_number.hpp"
#include "comm/base/whole_file.hpp"

namespace sprat::cli {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// Between two looks there are so many at who waits for whom: enough for a share of 5 %.
constexpr int samples_a_look = 20;

struct TopOptions {
  double interval = 1;
  std::string order = name(RankOrder::rank);
  bool once = false, json = false;
  std::string prometheus, listen;
};

RankOrder order_named(const std::string& word) {
  const std::vector<RankOrder> orders = all_rank_orders();
  const auto found =
      std::ranges::find_if(orders, [&](RankOrder order) { return word == name(order); });
  if (found == orders.end()) {
    throw UsageError(fmt::format("--sort {} is none of rank, wait, late, bytes, cpu", word));
  }
  return *found;
}

RankOrder order_after(RankOrder order) {
  const std::vector<RankOrder> orders = all_rank_orders();
  const auto at = std::ranges::find(orders, order) - orders.begin();
  return orders[static_cast<std::size_t>(at + 1) % orders.size()];
}

int show_once(const TopOptions& options, RankOrder order) {
  HostSampler sampler;
  sampler.find();
  const HostLook before = sampler.look();
  for (int sample = 0; sample < samples_a_look; ++sample) {
    std::this_thread::sleep_for(std::chrono::duration<double>(options.interval / samples_a_look));
    sampler.sample();
  }
  HostRows rows = rows_between(before, sampler.look());
  sort_ranks(rows, order);
  if (options.json) {
    fmt::print("{}\n", to_json(rows));
    return 0;
  }
  for (const std::string& line : table_of(rows, {})) {
    fmt::print("{}\n", line);
  }
  return 0;
}

/// What stands on the screen: the two last looks, in an order that a key changes.
class LiveTable {
 public:
  LiveTable(double interval, RankOrder order)
      : interval_(
            std::chrono::duration_cast<milliseconds>(std::chrono::duration<double>(interval))),
        order_(order) {}

  int run() {
    sampler_.find();
    after_ = sampler_.look();  // with nothing before it: what ranks did since they joined
    for (;;) {
      draw();
      if (!watch()) {
        return 0;
      }
      before_ = std::move(after_);
      sampler_.find();
      after_ = sampler_.look();
    }
  }

 private:
  void draw() {
    HostRows rows = rows_between(before_, after_);
    sort_ranks(rows, order_);
    TableSpace space = screen_.space();
    std::string title = fmt::format("sprat top: ranks by {}; s sorts, q quits", name(order_));
    title.resize(std::min(title.size(), space.columns));
    std::vector<std::string> lines{std::move(title)};
    if (space.lines > 1) {  // none left would mean as many as it takes
      --space.lines;
      std::ranges::move(table_of(rows, space), std::back_inserter(lines));
    }
    screen_.draw(lines);
  }

  /// Samples until the next look is due; false if the user has seen enough.
  bool watch() {
    const Clock::time_point due = Clock::now() + interval_;
    while (Clock::now() < due) {
      const char key = screen_.key(std::max(milliseconds(1), interval_ / samples_a_look));
      if (key == 'q') {
        return false;
      }
      if (key == 's') {
        order_ = order_after(order_);
        draw();
      }
      sampler_.sample();
    }
    return true;
  }

  const milliseconds interval_;
  RankOrder order_;
  Screen screen_;  ///< Before threads of NVML's: none of them may take a signal that ends us.
  HostSampler sampler_;
  HostLook before_, after_;
};

/// node_exporter reads files at any moment, so it must find the old one or the new one.
int write_metrics(const std::string& path) {
  HostSampler sampler;
  sampler.find();
  const std::string text = metrics_of(sampler.look());
  if (path == "-") {
    fmt::print("{}", text);
    return 0;
  }
  write_whole_file(path, text);
  return 0;
}

int serve_metrics(const std::string& listen) {
  MetricsServer server(parse_listen_address(listen));
  fmt::print("{}\n", server.url());
  std::fflush(stdout);
  HostSampler sampler;
  server.serve([&] {
    sampler.find();
    return metrics_of(sampler.look());
  });
}

int run_top(const TopOptions& options) {
  const RankOrder order = order_named(options.order);
  if (!options.listen.empty()) {
    return serve_metrics(options.listen);
  }
  if (!options.prometheus.empty()) {
    return write_metrics(options.prometheus);
  }
  if (options.once || options.json || !has_screen()) {
    return show_once(options, order);
  }
  return LiveTable(options.interval, order).run();
}

Action prepare_top(CLI::App& app) {
  auto options = std::make_shared<TopOptions>();
  app.add_option("--interval", options->interval, "Seconds between two looks")
      ->check(RealNumber(0.1, 3600.0))
      ->capture_default_str();
  app.add_option("--sort", options->order, "Ranks of a job by rank, wait, late, bytes or cpu")
      ->capture_default_str();
  app.add_flag("--once", options->once, "Two looks, one table, as without a terminal");
  app.add_flag("--json", options->json, "The same as one JSON object");
  app.add_option(
         "--prometheus", options->prometheus,
         "Write counters in Prometheus' text form to this file, or to - for standard output")
      ->excludes("--once")
      ->excludes("--json");
  app.add_option("--listen", options->listen,
                 "Serve them at GET /metrics of PORT on this host alone, or of HOST:PORT")
      ->excludes("--once")
      ->excludes("--json")
      ->excludes("--prometheus");
  return [options] { return run_top(*options); };
}

}  // namespace

extern const Command top_command;
const Command top_command = {
    "top",
    "Watch the jobs of this host: rates, waits, stragglers, cores, GPUs",
    R"(Every second, of each job whose ranks this user may look into: what each rank calls and moves, the share of the
time that its threads wait (WAIT), how often others were seen to wait for it (LATE), its cores, memory and GPUs, and
what it is in now. It reads what ranks show in shared memory, and /proc: nothing is asked of them, nothing stops.
Jobs of other users are not listed; root sees all. Ranks that are threads share what their process has (").
Keys: s sorts by the next of rank, wait, late, bytes, cpu; q quits.

Examples:
  sprat top                                on a terminal; elsewhere as with --once
  sprat top --once --sort wait
  sprat top --json | jq '.jobs[].straggler'
  sprat top --prometheus /var/lib/node_exporter/textfile/sprat.prom
  sprat top --listen 9400                  http://127.0.0.1:9400/metrics, until it is ended
)",
    prepare_top,
};

}  // namespace sprat::cli
