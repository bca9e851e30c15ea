// Messages between ranks of two hosts that have not met yet.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "sprat/communicator.hpp"
#include "tests/unit/collectives/engine/ranks_on_hosts.hpp"
#include "tests/unit/comm/bootstrap/map_store.hpp"

namespace sprat::collectives {
namespace {

using namespace std::chrono_literals;

void by_sockets(int, Config& config, comm::Environment&) {
  config.provider = "sockets";
  config.interface = "lo";
  config.timeout = 20s;
}

TEST(FirstContact, a_short_send_ends_though_its_receiver_waits_for_its_own_host_alone) {
  run_on_hosts("a,a,b,b,c,c", 6, by_sockets, [](Communicator& world) {
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

TEST(FirstContact, a_short_send_ends_though_its_receiver_grows_already) {
  comm::SharedMap map;
  std::thread newcomer([&map] {
    Config config;
    config.host = "c";
    comm::Environment none;
    by_sockets(4, config, none);
    comm::MapStore store(map);
    Communicator::join_growing(config, store).barrier();
  });
  const auto alone = [](int rank, Config& config, comm::Environment& environment) {
    by_sockets(rank, config, environment);
    config.host = rank < 2 ? "a" : "b";  // of the rank, for the list is as long as the job was
  };
  run_on_hosts("", 4, alone, [&map](Communicator& world) {
    std::vector<std::int32_t> data(1, world.rank());
    if (world.rank() == 0) {
      world.send(elements(data), 3).wait();
    }
    comm::MapStore store(map);
    Communicator grown = world.grow(1, store);
    if (world.rank() == 3) {
      world.recv(elements(data), 0).wait();
      EXPECT_EQ(data[0], 0);
    }
    grown.barrier();
  });
  newcomer.join();
}

}  // namespace
}  // namespace sprat::collectives
