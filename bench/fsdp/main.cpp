// One rank of bench/fsdp/run's own side: the trainer's GPT, sharded, a few steps at a time.
//
//   sprat_bench_fsdp CONFIG.json --way '{"name": "zero3", "hybrid_shard_degree": 4}' [--way ...]
//
// CONFIG.json is one of `sprat train`. Each line "NAME COUNT" of standard input asks for so many
// steps of that way; the answer is a line of JSON, this rank's seconds and losses. Otherwise
// nothing runs. A way that saves does so behind the first of several steps, and ends it in the
// last.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/fsdp/training.hpp"
#include "comm/base/check.hpp"

namespace {

using namespace sprat;

nlohmann::json measure(bench::Training& training, int count) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> seconds, losses;
  for (int i = 0; i < count; ++i) {
    const auto begin = Clock::now();
    losses.push_back(training.step());
    if (i == 0 && count > 1) {
      training.begin_save();
    }
    if (i == count - 1) {
      training.end_save();
    }
    seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return {{"seconds", seconds}, {"losses", losses}, {"sent", training.bytes_sent()}};
}

void serve(const std::string& path, const std::vector<std::string>& ways) {
  const train::TrainConfig config = train::read_train_config(path);
  require(config.data.tokenizer.empty(), path, " gives data.tokenizer; this measures bytes alone");
  Communicator joined = Communicator::join();
  Communicator world = order_by_host(joined);
  const auto gemm = agree_on_gemm_backend(world);
  std::map<std::string, std::unique_ptr<bench::Training>> training;
  for (const std::string& text : ways) {
    const auto way = nlohmann::json::parse(text).get<bench::Way>();
    training[way.name] = std::make_unique<bench::Training>(world, config, way, gemm);
  }
  std::string name;
  int count = 0;
  while (std::cin >> name >> count) {
    std::printf("%s\n", measure(*training.at(name), count).dump().c_str());
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("One rank of bench/fsdp/run, which starts it and says when it computes.");
  std::string config;
  std::vector<std::string> ways;
  app.add_option("CONFIG", config, "A configuration of `sprat train`")->required();
  app.add_option("--way", ways, "A way of training as JSON: its name, and what differs")
      ->required();
  CLI11_PARSE(app, argc, argv);
  try {
    serve(config, ways);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "sprat_bench_fsdp: %s\n", error.what());
    return 1;
  }
}
