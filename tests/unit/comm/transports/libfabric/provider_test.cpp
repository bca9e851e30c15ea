// The choice of a libfabric provider.
#include "comm/transports/libfabric/provider.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace sprat::comm {
namespace {

TEST(Provider, the_best_offers_are_chosen) {
  using libfabric::Offer;
  const std::vector<InterfaceChoice> interfaces = {
      {{.name = "ens5", .addresses = {"10.0.0.5", "fd00::5"}}, true, ""},
      {{.name = "ens6", .addresses = {"10.0.1.5"}}, true, ""},
      {{.name = "lo", .addresses = {"127.0.0.1"}, .loopback = true}, false, ""}};
  const Offer lo{"tcp;ofi_rxm", "lo", "127.0.0.1", 64}, ens6{"tcp;ofi_rxm", "ens6", "10.0.1.5", 64},
      ens5{"tcp;ofi_rxm", "ens5", "10.0.0.5", 64}, v6{"tcp;ofi_rxm", "ens5", "fd00::5", 64},
      few_bits{"tcp;ofi_rxm", "ens5", "10.0.0.5", 62}, efa{"efa", "rdmap0s6-rdm", "", 64},
      shm{"shm", "shm", "", 64}, sockets{"sockets", "ens5", "10.0.0.5", 64};
  struct Case {
    const char* wish;
    std::vector<Offer> offers;
    std::vector<std::size_t> chosen;
    std::size_t rails = 1;
  };
  const Case cases[] = {
      {"", {lo, ens6, ens5, efa}, {3}},     // efa before tcp
      {"tcp", {lo, ens6, ens5, efa}, {2}},  // unless tcp is named; the first interface
      {"tcp;ofi_rxm", {lo, ens6, ens5}, {2}},
      {"", {lo, ens6}, {1}},        // the next interface
      {"", {v6, ens5}, {1}},        // IPv4 before IPv6
      {"", {v6, ens6}, {0}},        // but the interface before that
      {"", {few_bits, ens5}, {1}},  // tags must be whole
      {"", {few_bits}, {}},
      {"", {shm, sockets}, {1}},  // anything that reaches other hosts
      {"", {shm}, {}},
      {"shm", {shm}, {0}},
      {"", {lo}, {}},           // no interface that was not chosen
      {"efa", {lo, ens5}, {}},  // never silently another provider
      {"", {}, {}},
      {"", {lo, ens6, v6, ens5}, {3, 1}, 3},  // a rail each, in the interfaces' order
      {"", {lo, ens6}, {1}, 3},
  };
  for (std::size_t at = 0; at < std::size(cases); ++at) {
    const auto& [wish, offers, chosen, rails] = cases[at];
    EXPECT_EQ(libfabric::choose_offers(offers, wish, interfaces, rails), chosen) << "case " << at;
  }
}

TEST(Provider, wakes_sleepers_where_that_costs_nothing) {
  EXPECT_EQ(libfabric::wakeup_of("net", FI_VERSION(1, 17)), libfabric::Wakeup::wait_set);
  EXPECT_EQ(libfabric::wakeup_of("tcp", FI_VERSION(1, 18)), libfabric::Wakeup::wait_set);
  EXPECT_EQ(libfabric::wakeup_of("tcp", FI_VERSION(1, 19)), libfabric::Wakeup::descriptor);
  EXPECT_EQ(libfabric::wakeup_of("tcp", FI_VERSION(2, 0)), libfabric::Wakeup::descriptor);
  EXPECT_EQ(libfabric::wakeup_of("tcp;ofi_rxm", FI_VERSION(1, 17)), libfabric::Wakeup::none);
  EXPECT_EQ(libfabric::wakeup_of("efa", FI_VERSION(1, 17)), libfabric::Wakeup::none);
}

}  // namespace
}  // namespace sprat::comm
