// Ranks that are threads of this process, and to each other as processes on several hosts.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/communicator_impl.hpp"
#include "collectives/engine/control_block.hpp"
#include "comm/context/context.hpp"
#include "sprat/communicator.hpp"

namespace sprat::collectives {

/// What a test wants of one rank besides its place.
using PrepareRank = std::function<void(int rank, Config&, comm::Environment&)>;

/// `hosts` has a rank's host each, a comma list. An error that ends `body` fails the test.
inline void run_on_hosts(const std::string& hosts, int size, const PrepareRank& prepare,
                         const std::function<void(Communicator&)>& body) {
  auto rendezvous = comm::open_rendezvous_in_process(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      Config config;
      config.rank = rank;
      config.size = size;
      config.host = hosts;
      comm::Environment environment{.rendezvous =
                                        std::move(rendezvous[static_cast<std::size_t>(rank)])};
      prepare(rank, config, environment);
      auto context = comm::Context::join(config, std::move(environment), sizeof(ControlBlock));
      auto rules = std::make_shared<const Rules>(rules_of(config));
      Communicator world(Communicator::Impl::world(std::move(context), std::move(rules)));
      try {
        body(world);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace sprat::collectives
