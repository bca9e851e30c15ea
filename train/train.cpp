// A run as `sprat train` asks for it.
#include "train/train.hpp"

#include <fmt/core.h>

#include "train/config.hpp"
#include "train/trainer.hpp"

namespace sprat::train {

int run(Communicator& world, const TrainRequest& request) {
  const TrainConfig config = read_train_config(request.config);
  check_ranks(config, world.size());
  const int steps = request.steps.value_or(config.train.steps);
  if (steps < 1) {
    throw Error(ErrorCode::invalid_argument, fmt::format("--steps is {}; it is at least 1", steps));
  }
  Communicator by_host = order_by_host(world);
  return Trainer(by_host, config, request).run();
}

}  // namespace sprat::train
