// A run as `sprat train` asks for it.
#include "train/train.hpp"

#include <fmt/core.h>

#include <optional>
#include <utility>

#include "train/batches.hpp"
#include "train/config/config.hpp"
#include "train/config/settings.hpp"
#include "train/pipeline_plan.hpp"
#include "train/trainer.hpp"

namespace sprat::train {

int run(Communicator& world, const TrainRequest& request) {
  TrainConfig config;
  std::optional<Batches> batches;
  agree_on_settings(world, [&] {  // before anything that waits for ranks that do the same
    config = read_train_config(request.config);
    batches.emplace(read_text(config.data.files), config);
    Settings settings = settings_of(config);
    settings.merge(text_settings(*batches));
    settings.merge(request_settings(request));
    return settings;
  });
  plan_pipeline(config, world.size());  // refuses what does not go together
  const int steps = request.steps.value_or(config.train.steps);
  if (steps < 1) {
    throw Error(ErrorCode::invalid_argument, fmt::format("--steps is {}; it is at least 1", steps));
  }
  Communicator by_host = order_by_host(world);
  return Trainer(by_host, config, request, *std::move(batches)).run();
}

}  // namespace sprat::train
