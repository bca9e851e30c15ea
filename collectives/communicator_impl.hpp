// What a Communicator owns.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "collectives/engine/executor.hpp"
#include "collectives/engine/point_to_point.hpp"
#include "comm/context/context.hpp"
#include "comm/coordinator/rendezvous.hpp"
#include "sprat/communicator.hpp"

namespace sprat {

class Communicator::Impl {
 public:
  Impl(std::shared_ptr<comm::Context> context, collectives::Membership membership,
       std::shared_ptr<const collectives::Rules> rules);

  /// Joins as `meet` says.
  static std::unique_ptr<Impl> join(const Config& config,
                                    const std::function<std::unique_ptr<comm::Rendezvous>()>& meet);
  /// The communicator of all ranks of a freshly joined context. Collective over the job.
  static std::unique_ptr<Impl> world(std::shared_ptr<comm::Context> context,
                                     std::shared_ptr<const collectives::Rules> rules);

  std::shared_ptr<comm::Context> context;  ///< Shared with other communicators and with Works.
  std::shared_ptr<const collectives::Rules> rules;  ///< Shared with communicators split off.
  std::shared_ptr<const collectives::Grouping> grouping;
  std::vector<int> hosts;
  collectives::Executor executor;
  collectives::PointToPoint messages;
  int children = 0;           ///< Names of communicators split off are numbered.
  std::uint64_t shrinks = 0;  ///< How often it was shrunk.

  /// Those that are left of it, in the same job: a communicator that fails alone.
  std::unique_ptr<Impl> shrink(int at_least, std::chrono::milliseconds patience);
  /// A job of its ranks, and of newcomers, who come where `meet` says.
  std::unique_ptr<Impl> grow(
      int newcomers, std::optional<std::chrono::milliseconds> patience,
      const std::function<std::unique_ptr<comm::Rendezvous>(const Config&, const comm::Growth&)>&
          meet);
};

}  // namespace sprat
