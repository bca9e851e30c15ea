#include "tests/system/simulation/rank_words.hpp"

#include <vector>

#include "comm/base/check.hpp"

namespace sprat::simulation {
namespace {

std::string host_id(int host) {
  Random random(static_cast<std::uint64_t>(host) + 1);
  return fmt::format("{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}", random.next() >> 32,
                     random.next() >> 48, random.next() >> 52, random.next() >> 52,
                     random.next() >> 16);
}

std::vector<int> cores_of(int place) {
  std::vector<int> cores;
  for (int core = 0; core < 12; ++core) {
    cores.push_back(12 * place + core);
  }
  return cores;
}

}  // namespace

comm::PeerInfo RankWords::greeting(int rank) {
  const int host = rank / ranks_per_host_;
  const std::string machine = text(host_id(host), "/pid=4026531836");
  return {
      .label = machine + "/mnt=4026531841/ipc=4026531839/user=4026531837",
      .machine = machine,
      .name = text("ip-10-0-", host / 250, "-", host % 250),
      .cores = cores_of(rank % ranks_per_host_),
      .memory = {.pid = static_cast<pid_t>(2'000 + random_.below(4'000'000)),
                 .segment = {comm::MemoryRef::Kind::segment, 7, random_.next() >> 44, 1 << 20, 0},
                 .address = 0x7f0000000000 + (random_.next() >> 28 << 12),
                 .nonce = random_.next() | 1},
      .context = 0x550000000000 + (random_.next() >> 24),
      .survival = comm::PeerInfo::Survival{
          .addresses = {{text("10.0.", host / 250, ".", host % 250),
                         static_cast<int>(32'768 + random_.below(28'000))}},
          .secret = rank == 0 ? std::string(32, 's') : ""}};
}

comm::Reach RankWords::reach(int rank) const {
  comm::Reach reach{.label = text(host_id(rank / ranks_per_host_),
                                  "/pid=4026531836/mnt=4026531841/ipc=4026531839/user=4026531837")};
  const int first = rank / ranks_per_host_ * ranks_per_host_;
  for (int peer = first; peer < first + ranks_per_host_; ++peer) {
    reach.mapped.push_back(peer);
    reach.readable.push_back(peer);
  }
  return reach;
}

comm::TransportAddresses RankWords::address(int rank) {
  comm::TransportAddresses address{.wire_kind = "sockets"};
  const std::string endpoint =
      text("10.0.", rank / ranks_per_host_ / 250, ".", rank / ranks_per_host_ % 250, ":");
  for (const char letter : endpoint) {
    address.wire.push_back(static_cast<std::byte>(letter));
  }
  for (int byte = 0; byte < 18; ++byte) {
    address.wire.push_back(static_cast<std::byte>(random_.next() & 0xff));
  }
  return address;
}

}  // namespace sprat::simulation
