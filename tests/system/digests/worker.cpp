// One rank of a job whose digests are compared: digests_worker STEPS [FLIP STEP RANK ELEMENT BIT].
//
// Each step is like one of training: a loss and gradients are summed, sums scattered and gathered,
// and a message goes to the next rank. FLIP says where one bit flips, once:
//   input    in the rank's gradients, before it calls
//   sum      in the same, once it has called and before others read them: on the way
//   sent     in its message, before it sends
//   message  in the same, once it has sent: on the way
//   core     in what the rank's own sum of the losses gives: a broken core, on one rank alone
//   none     nowhere
// Ends with 1 and "worker: CODE: TEXT" on standard error if the job fails.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "sprat/communicator.hpp"

namespace {

using sprat::elements;

constexpr std::size_t gradients = 60'000;

struct Flip {
  std::string where = "none";
  int step = 0, rank = 0;
  std::size_t element = 0;
  unsigned bit = 0;
};

class Training {
 public:
  Training(sprat::Communicator& world, Flip flip)
      : world_(world),
        sync_(world.duplicate("sync")),
        flip_(std::move(flip)),
        parameters_(gradients, 0.5f),
        gradient_(gradients),
        sum_(gradients) {}

  void step(int step) {
    step_ = step;
    world_.mark_step(step);
    sum_losses();
    sum_gradients();
    shard();
    pass_on();
  }

 private:
  bool now(const char* where) const {
    return flip_.where == where && flip_.step == step_ && flip_.rank == world_.rank();
  }
  void plant(const char* where, std::vector<float>& values) const {
    if (now(where)) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &values[flip_.element], sizeof bits);
      bits ^= 1u << flip_.bit;
      std::memcpy(&values[flip_.element], &bits, sizeof bits);
    }
  }

  // Every rank sums what all have told it, so a broken core spoils its own sum alone.
  void sum_losses() {
    const bool broken = now("core");
    const auto sum = [broken](const void* left, void* right, std::size_t count, sprat::DType) {
      for (std::size_t i = 0; i < count; ++i) {
        static_cast<double*>(right)[i] += static_cast<const double*>(left)[i] + (broken ? 1 : 0);
      }
    };
    std::vector<double> losses(8, 1.0 / step_);
    world_
        .all_reduce(elements(losses), sprat::Reduction::user({.name = "losses", .function = sum}),
                    {.timeout = {}, .blocking = true})
        .wait();
  }

  // The rank whose bit flips on the way calls first, so that its flip comes before anybody reads.
  void sum_gradients() {
    for (std::size_t i = 0; i < gradients; ++i) {
      gradient_[i] = parameters_[i] * 0.1f + static_cast<float>(world_.rank()) * 1e-3f +
                     static_cast<float>(i % 101) * 1e-4f;
    }
    plant("input", gradient_);
    sprat::Work work;
    const auto call = [&] {
      work = world_.all_reduce(elements(std::as_const(gradient_)), elements(sum_));
    };
    const bool first = flip_.where == "sum" && world_.rank() == flip_.rank;
    if (first) {
      call();
      plant("sum", gradient_);
    }
    sync_.barrier();
    if (!first) {
      call();
    }
    work.wait();
    for (std::size_t i = 0; i < gradients; ++i) {
      parameters_[i] -= 0.01f * sum_[i];
    }
  }

  void shard() {
    const auto ranks = static_cast<std::size_t>(world_.size());
    std::vector<float> part(gradients / ranks), whole(part.size() * ranks);
    std::copy_n(sum_.begin(), whole.size(), whole.begin());
    world_.reduce_scatter(elements(std::as_const(whole)), elements(part), sprat::ReduceOp::avg)
        .wait();
    world_.all_gather(elements(std::as_const(part)), elements(whole)).wait();
  }

  void pass_on() {
    const int next = (world_.rank() + 1) % world_.size();
    const int last = (world_.rank() + world_.size() - 1) % world_.size();
    std::vector<float> message = sum_, received(gradients);
    plant("sent", message);
    sprat::Work sent;
    const auto send = [&] { sent = world_.send(elements(std::as_const(message)), next, 3); };
    const bool first = flip_.where == "message" && world_.rank() == flip_.rank;
    if (first) {
      send();
      plant("message", message);
    }
    sync_.barrier();
    if (!first) {
      send();
    }
    world_.recv(elements(received), last, 3).wait();
    sent.wait();
    for (std::size_t i = 0; i < gradients; ++i) {  // what came matters from here on
      parameters_[i] += 1e-3f * received[i];
    }
  }

  sprat::Communicator& world_;
  sprat::Communicator sync_;
  const Flip flip_;
  std::vector<float> parameters_, gradient_, sum_;
  int step_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 7) {
    std::fprintf(stderr, "digests_worker STEPS [FLIP STEP RANK ELEMENT BIT]\n");
    return 2;
  }
  Flip flip;
  if (argc == 7) {
    flip = {.where = argv[2],
            .step = std::atoi(argv[3]),
            .rank = std::atoi(argv[4]),
            .element = static_cast<std::size_t>(std::atoll(argv[5])),
            .bit = static_cast<unsigned>(std::atoi(argv[6]))};
  }
  try {
    sprat::Communicator world = sprat::Communicator::join();
    Training training(world, flip);
    for (int step = 1; step <= std::atoi(argv[1]); ++step) {
      training.step(step);
    }
  } catch (const sprat::Error& error) {
    std::fprintf(stderr, "worker: %s: %s\n", sprat::name(error.code()), error.what());
    return 1;
  }
  return 0;
}
