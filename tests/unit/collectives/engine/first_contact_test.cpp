// Messages between ranks of two hosts that have not met yet.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/communicator_impl.hpp"
#include "collectives/engine/control_block.hpp"
#include "comm/context/context.hpp"
#include "sprat/communicator.hpp"

namespace sprat::collectives {
namespace {

using namespace std::chrono_literals;

/// Ranks are threads of this process, on the hosts that are listed.
void run_on_hosts(const std::string& hosts, int size,
                  const std::function<void(Communicator&)>& body) {
  auto rendezvous = comm::open_rendezvous_in_process(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      Config config;
      config.rank = rank;
      config.size = size;
      config.host = hosts;
      config.provider = "sockets";
      config.interface = "lo";
      config.timeout = 20s;
      try {
        auto context = comm::Context::join(
            config, {.rendezvous = std::move(rendezvous[static_cast<std::size_t>(rank)])},
            sizeof(ControlBlock));
        auto rules = std::make_shared<const Rules>(rules_of(config));
        Communicator world(Communicator::Impl::world(std::move(context), std::move(rules)));
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

TEST(FirstContact, a_short_send_ends_though_its_receiver_waits_for_its_own_host_alone) {
  run_on_hosts("a,a,b,b,c,c", 6, [](Communicator& world) {
    Communicator here = *world.split(world.hosts()[static_cast<std::size_t>(world.rank())]);
    std::vector<std::int32_t> data(1, world.rank());
    if (world.rank() == 0) {
      // So far the first ranks of hosts alone have met.
      world.send(elements(data), 3).wait();
      world.send(elements(data), 2).wait();
    }
    // Rank 2 enters only once it has heard from rank 0, and until then rank 3 awaits no message.
    if (world.rank() == 2) {
      world.recv(elements(data), 0).wait();
    }
    here.barrier();
    if (world.rank() == 3) {
      world.recv(elements(data), 0).wait();
    }
    EXPECT_EQ(data[0], world.rank() == 2 || world.rank() == 3 ? 0 : world.rank());
  });
}

}  // namespace
}  // namespace sprat::collectives
