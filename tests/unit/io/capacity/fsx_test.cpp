// AWS's table, and the numbers that follow from it: those of AWS's own examples, and of the
// SageMaker documents' example.
#include "io/capacity/fsx.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "io/capacity/demand.hpp"
#include "sprat/error.hpp"

namespace sprat::io {
namespace {

using ::testing::HasSubstr;

TEST(Fsx, every_kind_comes_back_from_what_users_type) {
  EXPECT_EQ(fsx_kinds().size(), 14u);
  for (const FsxKind& kind : fsx_kinds()) {
    const FsxSystem system = fsx_for_rate(kind, 1234);
    const FsxSystem again = parse_fsx(fsx_option(system));
    EXPECT_EQ(again, system) << fsx_option(system);
    EXPECT_GE(fsx_rates(system).disk, 1234) << fsx_text(system);
    EXPECT_GE(fsx_rates(system).disk_burst, fsx_rates(system).disk);
    EXPECT_GE(fsx_rates(system).memory, fsx_rates(system).disk);
    EXPECT_GE(fsx_rates(system).servers, 1);
  }
}

TEST(Fsx, capacities_come_in_steps) {
  const FsxKind& scratch_1 = *parse_fsx("SCRATCH_1:200:1200").kind;
  EXPECT_EQ(fsx_capacity(scratch_1, 1), 1200u);
  EXPECT_EQ(fsx_capacity(scratch_1, 1201), 2400u);
  EXPECT_EQ(fsx_capacity(scratch_1, 2401), 3600u);
  EXPECT_EQ(fsx_capacity(scratch_1, 3601), 7200u);
  const FsxKind& persistent_2 = *parse_fsx("PERSISTENT_2:250:12000").kind;
  EXPECT_EQ(fsx_capacity(persistent_2, 1200), 1200u);
  EXPECT_EQ(fsx_capacity(persistent_2, 2400), 2400u);
  EXPECT_EQ(fsx_capacity(persistent_2, 2401), 4800u);
}

TEST(Fsx, what_is_spelt_wrong_is_refused_with_what_there_is) {
  for (const char* wrong :
       {"", "PERSISTENT_2", "PERSISTENT_2:250", "PERSISTENT_2:251:12000", "PERSISTENT_3:250:12000",
        "PERSISTENT_2:250:-5", "PERSISTENT_2:250:1e4", "PERSISTENT_2:250:0",
        "PERSISTENT_2:250:12000:1", "PERSISTENT_2:250:12001", "INTELLIGENT_TIERING:4001",
        "PERSISTENT_2:250:99999999999999999999"}) {
    try {
      parse_fsx(wrong);
      ADD_FAILURE() << wrong << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), HasSubstr("PERSISTENT_1:12+cache:GIB"));
    }
  }
}

TEST(Fsx, rates_are_those_of_awss_examples) {
  const FsxRates first = fsx_rates(parse_fsx("SCRATCH_2:200:1200"));
  EXPECT_DOUBLE_EQ(first.disk, 240);
  const FsxRates second = fsx_rates(parse_fsx("PERSISTENT_1:50:4800"));
  EXPECT_DOUBLE_EQ(second.disk, 240);
  EXPECT_DOUBLE_EQ(second.disk_burst, 1152);
}

TEST(Fsx, metadata_operations_come_with_the_capacity) {
  const std::map<std::uint64_t, std::uint64_t> expected = {
      {1200, 1500},   {2400, 3000},   {4800, 6000},   {9600, 6000},
      {12000, 12000}, {45600, 12000}, {48000, 24000}, {72000, 36000}};
  for (const auto& [gib, iops] : expected) {
    EXPECT_EQ(fsx_metadata_iops({.kind = parse_fsx("PERSISTENT_2:125:1200").kind, .gib = gib}),
              iops)
        << gib;
  }
  EXPECT_FALSE(fsx_metadata_iops(parse_fsx("SCRATCH_2:200:1200")).has_value());
}

/// 100 GB in 30 s on 4 hosts.
StorageDemand documents_example() {
  return {.epoch_bytes = 100e9, .epoch_seconds = 30, .hosts = 4};
}

double tib_of(const char* kind) {
  for (const StorageChoice& choice : storage_choices(documents_example())) {
    if (fsx_kind_text(*choice.system.kind) == kind) {
      return static_cast<double>(choice.system.gib) / 1000;
    }
  }
  return 0;
}

TEST(StorageDemand, worked_example_asks_for_3333_mbps) {
  const StorageDemand demand = documents_example();
  EXPECT_NEAR(needed_mbps(demand, 0), 3333, 0.5);
  EXPECT_NEAR(demand.margin * needed_mbps(demand, 0), 4000, 0.5);
}

TEST(StorageDemand, worked_example_has_these_capacities) {
  EXPECT_DOUBLE_EQ(tib_of("SCRATCH_2"), 16.8);
  EXPECT_DOUBLE_EQ(tib_of("PERSISTENT_1-200"), 16.8);
  EXPECT_DOUBLE_EQ(tib_of("PERSISTENT_1-100"), 33.6);
  EXPECT_DOUBLE_EQ(tib_of("PERSISTENT_2-125"), 28.8);
  EXPECT_DOUBLE_EQ(tib_of("PERSISTENT_2-250"), 14.4);
  EXPECT_DOUBLE_EQ(tib_of("PERSISTENT_2-500"), 7.2);
  EXPECT_DOUBLE_EQ(tib_of("PERSISTENT_2-1000"), 4.8);
}

TEST(StorageDemand, the_documents_own_answer_takes_41_7_seconds_cold) {
  const FsxSystem system = parse_fsx("SCRATCH_2:200:12000");
  const StorageVerdict verdict = judge_storage(documents_example(), system);
  EXPECT_DOUBLE_EQ(verdict.rates.disk, 2400);
  EXPECT_NEAR(*verdict.rates.memory_bytes / (1 << 30), 80.4, 0.05);
  EXPECT_NEAR(verdict.first.seconds, 41.7, 0.05);
  EXPECT_TRUE(verdict.first.storage_limits);
  // Only with 28 of 100 GB in clients' caches are 2.4 GB/s enough.
  EXPECT_NEAR(verdict.hit_share_wanted, 0.28, 0.001);
  EXPECT_NEAR(verdict.sticky_cache_bytes_wanted, 7e9, 1e7);
}

TEST(StorageDemand, caches_of_clients_lower_the_need) {
  StorageDemand demand = documents_example();
  demand.cache_bytes = 28e9;
  const double any = client_hit_share(demand, Ownership::any_host);
  EXPECT_DOUBLE_EQ(any, 0.28);
  EXPECT_NEAR(needed_mbps(demand, any), 2400, 0.5);
  demand.cache_bytes = 25e9;
  EXPECT_DOUBLE_EQ(client_hit_share(demand, Ownership::sticky_host), 1);
  const StorageVerdict verdict = judge_storage(demand, parse_fsx("SCRATCH_2:200:1200"));
  EXPECT_DOUBLE_EQ(verdict.later_sticky.seconds, 30) << "from the second epoch on";
  EXPECT_GT(verdict.later_any.seconds, 30);
}

TEST(StorageDemand, memory_of_servers_helps_later_epochs_only) {
  // PERSISTENT_2-250: 640 MB/s a TiB by network, 250 by disk; 6.8 GiB a TiB.
  StorageDemand demand = documents_example();
  demand.epoch_seconds = 10;
  const StorageVerdict verdict = judge_storage(demand, parse_fsx("PERSISTENT_2:250:12000"));
  EXPECT_DOUBLE_EQ(verdict.first.server_share, 0);
  EXPECT_NEAR(verdict.first.seconds, 100e3 / 3000, 1e-9);
  const double share = 6.8 * 12 * (1 << 30) / 100e9;
  EXPECT_NEAR(verdict.later_any.server_share, share, 1e-9);
  EXPECT_NEAR(verdict.later_any.seconds, 100e3 * (share / 7680 + (1 - share) / 3000), 1e-9);
}

TEST(StorageDemand, opens_are_held_against_metadata) {
  StorageDemand demand = documents_example();
  demand.files = 1'281'167;
  const FsxSystem system = parse_fsx("PERSISTENT_2:250:12000");
  const MetadataDemand metadata = metadata_demand(demand, &system);
  EXPECT_NEAR(metadata.iops, 1'281'167 / 30.0 / 2, 1e-6);
  EXPECT_TRUE(metadata.too_many);
  demand.files = 1000;
  EXPECT_FALSE(metadata_demand(demand, &system).too_many);
}

TEST(StorageDemand, a_host_has_limits_of_its_own) {
  StorageDemand demand = documents_example();
  demand.hosts = 1;
  demand.nic_mbps = 3125;  // 25 Gbit/s
  const FsxRates rates = fsx_rates(parse_fsx("PERSISTENT_2:1000:4800"));
  const HostDemand host = host_demand(demand, &rates);
  EXPECT_TRUE(host.above_nic);
  EXPECT_TRUE(host.above_flows) << "two servers carry 1250 MB/s to one client";
  demand.efa = true;
  EXPECT_FALSE(host_demand(demand, &rates).above_flows);
}

TEST(StorageDemand, what_makes_no_sense_is_refused_by_name) {
  const std::pair<StorageDemand, const char*> wrong[] = {
      {{.epoch_bytes = 0, .epoch_seconds = 1}, "epoch of 0 bytes"},
      {{.epoch_bytes = 1, .epoch_seconds = 0}, "epoch of 0 seconds"},
      {{.epoch_bytes = 1, .epoch_seconds = 1, .hosts = 0}, "0 hosts"},
      {{.epoch_bytes = 1, .epoch_seconds = 1, .cache_bytes = -1}, "cache of -1"},
      {{.epoch_bytes = 1, .epoch_seconds = 1, .margin = 0.5}, "margin of 0.5"}};
  for (const auto& [demand, why] : wrong) {
    try {
      storage_choices(demand);
      ADD_FAILURE() << why;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(why));
    }
  }
}

}  // namespace
}  // namespace sprat::io
