// What `sprat plan storage` prints.
#include "cli/plan/storage.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace sprat::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

io::StorageDemand documents_example() {
  return {.epoch_bytes = 100e9, .epoch_seconds = 30, .hosts = 4};
}

TEST(PlanStorage, times_are_read_with_their_units) {
  EXPECT_EQ(duration_seconds("30s"), 30);
  EXPECT_EQ(duration_seconds("30"), 30);
  EXPECT_EQ(duration_seconds("1.5h"), 5400);
  EXPECT_EQ(duration_seconds("5min"), 300);
  for (const char* wrong : {"", "s", "-1s", "30 s", "30d", "nan", "inf", "1e999"}) {
    EXPECT_FALSE(duration_seconds(wrong).has_value()) << wrong;
  }
}

TEST(PlanStorage, worked_example_is_printed) {
  const std::string plan = storage_plan_text(documents_example(), {});
  EXPECT_THAT(plan, HasSubstr("3,333 MB/s are needed, 4,000 with a margin of 1.2"));
  for (const char* row :
       {"SCRATCH_2                           16.8", "PERSISTENT_1-200                    16.8",
        "PERSISTENT_1-100                    33.6", "PERSISTENT_2-125                    28.8",
        "PERSISTENT_2-250                    14.4", "PERSISTENT_2-500                     7.2",
        "PERSISTENT_2-1000                    4.8"}) {
    EXPECT_THAT(plan, HasSubstr(row));
  }
}

TEST(PlanStorage, documents_own_answer_is_judged) {
  const std::string plan =
      storage_plan_text(documents_example(), io::parse_fsx("SCRATCH_2:200:12000"));
  EXPECT_THAT(plan, HasSubstr("SCRATCH_2 of 12.0 TiB:\n  disks: 2,400 MB/s base"));
  EXPECT_THAT(plan, HasSubstr("servers' memory: 80.4 GiB"));
  EXPECT_THAT(plan, HasSubstr("first epoch                          41.7 s"));
  EXPECT_THAT(plan, HasSubstr("28 % from clients' caches, 7.00 GB on each host"));
  EXPECT_THAT(plan, HasSubstr("or SCRATCH_2 of 16.8 TiB"));
  EXPECT_THAT(plan,
              HasSubstr("less storage that feeds the first epoch: PERSISTENT_2-500 of 7.2 TiB"));
}

TEST(PlanStorage, first_and_later_epochs_stand_apart) {
  io::StorageDemand demand = documents_example();
  demand.cache_bytes = 28e9;
  const std::string plan = storage_plan_text(demand, {});
  EXPECT_THAT(plan,
              HasSubstr("any sample on any host: 28 % come from clients' caches: 2,400 MB/s"));
  EXPECT_THAT(plan, HasSubstr("serve each other: 100 % come from clients' caches: 0.00 MB/s"));
}

TEST(PlanStorage, files_are_warned_of_only_where_there_are_many) {
  io::StorageDemand demand = documents_example();
  EXPECT_THAT(storage_plan_text(demand, {}), Not(HasSubstr("metadata")));
  demand.files = 1'281'167;
  EXPECT_THAT(storage_plan_text(demand, io::parse_fsx("PERSISTENT_2:250:12000")),
              HasSubstr("21,353 metadata operations; 12,000 come with it: too many"));
}

TEST(PlanStorage, machines_read_the_same_numbers) {
  const auto json = nlohmann::json::parse(
      storage_plan_json(documents_example(), io::parse_fsx("SCRATCH_2:200:12000")));
  EXPECT_NEAR(json["need_mbps"]["first"].get<double>(), 3333.3, 0.1);
  EXPECT_EQ(json["choices"].size(), io::fsx_kinds().size());
  EXPECT_NEAR(json["given"]["first"]["seconds"].get<double>(), 41.67, 0.01);
  EXPECT_TRUE(json["choices"][0]["memory_bytes"].is_null()) << "AWS does not publish it";
}

}  // namespace
}  // namespace sprat::cli
