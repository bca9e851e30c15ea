// One rank of bench/fsdp/run's own side: the trainer's GPT over ShardedModel, a few steps at a time.
//
//   sprat_bench_fsdp CONFIG.json --way '{"name": "zero3", "hybrid_shard_degree": 4}' [--way ...]
//
// CONFIG.json is one of `sprat train`. Each line "NAME COUNT" of standard input asks for so many steps
// of that way; the answer is a line of JSON, this rank's seconds and losses. Otherwise nothing runs.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "sprat/communicator.hpp"
#include "sprat/fsdp.hpp"
#include "sprat/mp.hpp"
#include "train/batches.hpp"
#include "train/config.hpp"
#include "train/gpt.hpp"

namespace {

using sprat::Communicator;
using sprat::train::TrainConfig;

/// What a way is, beside the configuration.
struct Way {
  std::string name;
  int hybrid_shard_degree = 1;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Way, name, hybrid_shard_degree)

sprat::FsdpOptions sharding(const TrainConfig& config, const Way& way) {
  return {.hybrid_shard_degree = way.hybrid_shard_degree,
          .forward = gpt_forward_order(config.model),
          .backward = gpt_backward_order(config.model),
          .prefetch_units = config.parallel.prefetch_units,
          .adamw = {.beta1 = static_cast<float>(config.train.beta1),
                    .beta2 = static_cast<float>(config.train.beta2),
                    .weight_decay = static_cast<float>(config.train.weight_decay)},
          .clip_norm = static_cast<float>(config.train.clip_norm)};
}

/// One way of training: a model with its own state, and its place in the text.
class Training {
 public:
  Training(Communicator& world, const TrainConfig& config, const Way& way,
           const std::shared_ptr<const sprat::GemmBackend>& gemm)
      : world_(world),
        config_(config),
        batches_(sprat::read_text(config.data.files), config),
        model_(world, gpt_units(config.model, config.train.seed), sharding(config, way)),
        parameters_(model_),
        gpt_(config.model, config.train.batch / world.size(), gemm) {}

  /// As the trainer's: the mean loss over all ranks.
  double step() {
    const auto batch = batches_.training(step_, {world_.rank(), world_.size()});
    double loss = gpt_.forward(parameters_, batch.inputs, batch.targets);
    gpt_.backward(parameters_);
    model_.step(static_cast<float>(learning_rate(config_.train, step_)));
    ++step_;
    world_.all_reduce(sprat::elements(std::span(&loss, 1)), sprat::ReduceOp::sum,
                      {.timeout = {}, .blocking = true})
        .wait();
    return loss / (1.0 * config_.train.batch * config_.model.context);
  }

 private:
  Communicator& world_;
  const TrainConfig& config_;
  sprat::train::Batches batches_;
  sprat::ShardedModel model_;
  sprat::train::ShardedParameters parameters_;
  sprat::train::Gpt gpt_;
  int step_ = 0;
};

nlohmann::json measure(Training& training, int count) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> seconds, losses;
  for (int i = 0; i < count; ++i) {
    const auto begin = Clock::now();
    losses.push_back(training.step());
    seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return {{"seconds", seconds}, {"losses", losses}};
}

void serve(const std::string& path, const std::vector<std::string>& ways) {
  const TrainConfig config = sprat::train::read_train_config(path);
  Communicator world = Communicator::join();
  check_ranks(config, world.size());
  const auto gemm = sprat::open_gemm_backend(sprat::choose_gemm_backend());
  std::map<std::string, std::unique_ptr<Training>> training;
  for (const std::string& text : ways) {
    const auto way = nlohmann::json::parse(text).get<Way>();
    training[way.name] = std::make_unique<Training>(world, config, way, gemm);
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
  app.add_option("--way", ways, "A way of training as JSON: its name, and what differs")->required();
  CLI11_PARSE(app, argc, argv);
  try {
    serve(config, ways);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "sprat_bench_fsdp: %s\n", error.what());
    return 1;
  }
}
