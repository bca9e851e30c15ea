// Read plans against a slow model that looks at every byte, and the rules of requests.
#include "io/reading/plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "sprat/error.hpp"

namespace sprat::io {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kibibyte = 1024, mebibyte = 1024 * kibibyte;

struct PlannedWorld {
  std::vector<std::uint64_t> bytes;
  std::vector<FileLayout> layouts;
  std::uint32_t alignment = 1;

  PlannedFile place(std::uint32_t file) const {
    return {.bytes = bytes[file],
            .layout = layouts[file].empty() ? nullptr : &layouts[file],
            .target = 100,
            .alignment = alignment};
  }
};

/// What target has a byte, found without any run.
Target slow_target(const PlannedWorld& world, std::uint32_t file, std::uint64_t offset) {
  for (const StripedRange& range : world.layouts[file]) {
    if (offset >= range.begin && offset < range.end && !range.targets.empty()) {
      return range.stripe_bytes == 0
                 ? range.targets[0]
                 : range.targets[(offset / range.stripe_bytes) % range.targets.size()];
    }
  }
  return 100;
}

std::uint64_t below(std::mt19937_64& random, std::uint64_t bound) { return random() % bound; }

PlannedWorld random_world(std::mt19937_64& random) {
  PlannedWorld world;
  world.alignment = 1u << below(random, 5);
  const std::uint64_t files = 1 + below(random, 3);
  for (std::uint64_t file = 0; file < files; ++file) {
    world.bytes.push_back(200 + below(random, 3000));
    FileLayout layout;
    std::uint64_t begin = below(random, 4) == 0 ? 64 : 0;
    for (std::uint64_t ranges = below(random, 4); ranges > 0; --ranges) {
      // Stripes are multiples of all alignments, as Lustre's are.
      const std::uint64_t end = begin + 64 * (1 + below(random, 30));
      StripedRange range{.begin = begin,
                         .end = end,
                         .stripe_bytes = 16 * below(random, 9),
                         .targets = std::vector<Target>(below(random, 5))};
      for (Target& target : range.targets) {
        target = static_cast<Target>(below(random, 6));
      }
      layout.push_back(range);
      begin = end + (below(random, 4) == 0 ? 64 : 0);
    }
    world.layouts.push_back(layout);
  }
  return world;
}

Extents random_extents(std::mt19937_64& random, const PlannedWorld& world) {
  Extents extents;
  for (std::uint64_t count = below(random, 4); count > 0; --count) {
    const auto file = static_cast<std::uint32_t>(below(random, world.bytes.size()));
    const std::uint64_t offset = below(random, world.bytes[file] + 1);
    const std::uint64_t most = std::min<std::uint64_t>(world.bytes[file] - offset, 300);
    extents.push_back({.file = file, .offset = offset, .bytes = below(random, most + 1)});
  }
  return extents;
}

/// All that a planner has told, looked at byte by byte.
class SlowModel {
 public:
  SlowModel(const PlannedWorld& world, const ReadPlanLimits& limits)
      : world_(world), limits_(limits) {}

  void check(std::span<const WantedSample> samples, const ReadPlan& plan) {
    for (const Request& request : plan.requests) {
      check_request(request);
    }
    std::size_t next = 0;
    for (const WantedSample& sample : samples) {
      std::uint64_t at = 0;
      for (const Extent& extent : sample.extents) {
        for (std::uint64_t byte = 0; byte < extent.bytes; ++at, ++byte) {
          ASSERT_LT(next, plan.pieces.size());
          const SamplePiece& piece = plan.pieces[next];
          ASSERT_EQ(piece.position, sample.position);
          ASSERT_LE(piece.at, at);
          ASSERT_LT(at - piece.at, piece.bytes);
          ASSERT_TRUE(requests_.contains(piece.request)) << "forgotten, or never told";
          const Request& request = requests_.at(piece.request);
          ASSERT_EQ(request.extent.file, extent.file);
          ASSERT_EQ(request.extent.offset + piece.from + (at - piece.at), extent.offset + byte);
          ASSERT_LT(piece.from + (at - piece.at), request.in_file_bytes);
          ASSERT_LE(request.due, sample.position);
          wanted_of_.insert(request.id);
          if (at + 1 == piece.at + piece.bytes) {
            ++next;
          }
        }
      }
    }
    ASSERT_EQ(next, plan.pieces.size());
    for (const Request& request : plan.requests) {
      EXPECT_TRUE(wanted_of_.contains(request.id)) << "nobody wants " << request.id;
    }
  }
  void forget(std::uint64_t id) {
    const Request& request = requests_.at(id);
    for (std::uint64_t byte = 0; byte < request.extent.bytes; ++byte) {
      asked_.erase({request.extent.file, request.extent.offset + byte});
    }
    requests_.erase(id);
  }
  std::vector<std::uint64_t> ids() const {
    std::vector<std::uint64_t> ids;
    for (const auto& [id, request] : requests_) {
      ids.push_back(id);
    }
    return ids;
  }
  std::uint64_t bytes() const { return asked_.size(); }

 private:
  void check_request(const Request& request) {
    const Extent& extent = request.extent;
    EXPECT_TRUE(requests_.emplace(request.id, request).second) << "two have id " << request.id;
    EXPECT_GT(extent.bytes, 0u);
    EXPECT_LE(extent.bytes, limits_.request_bytes);
    EXPECT_EQ(extent.offset % world_.alignment, 0u);
    EXPECT_EQ(extent.bytes % world_.alignment, 0u);
    EXPECT_EQ(request.alignment, world_.alignment);
    EXPECT_EQ(request.in_file_bytes,
              std::min(extent.bytes, world_.bytes[extent.file] - extent.offset));
    for (std::uint64_t byte = 0; byte < extent.bytes; ++byte) {
      const std::uint64_t offset = extent.offset + byte;
      EXPECT_EQ(slow_target(world_, extent.file, offset), request.target) << offset;
      EXPECT_TRUE(asked_.insert({extent.file, offset}).second)
          << "byte " << offset << " of file " << extent.file << " is asked for twice";
    }
  }

  const PlannedWorld& world_;
  const ReadPlanLimits& limits_;
  std::map<std::uint64_t, Request> requests_;
  std::set<std::pair<std::uint32_t, std::uint64_t>> asked_;
  std::set<std::uint64_t> wanted_of_;
};

/// One planner that plans sample after sample and forgets now and then.
void plan_at_random(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const PlannedWorld world = random_world(random);
  const ReadPlanLimits limits{.request_bytes = std::uint64_t{16} << below(random, 5),
                              .hole_bytes = below(random, 40)};
  ReadPlanner planner(limits);
  SlowModel model(world, limits);
  std::uint64_t position = 0;
  for (int round = 0; round < 8 && !testing::Test::HasFailure(); ++round) {
    std::vector<Extents> extents(below(random, 6));
    std::vector<WantedSample> samples;
    for (Extents& one : extents) {
      one = random_extents(random, world);
      samples.push_back({.position = position++, .extents = one});
    }
    model.check(samples,
                planner.plan(samples, [&](std::uint32_t file) { return world.place(file); }));
    EXPECT_EQ(planner.held_bytes(), model.bytes());
    EXPECT_LE(planner.most_needed_bytes(), model.bytes());
    for (const std::uint64_t id : model.ids()) {
      if (below(random, 3) == 0) {
        planner.forget(std::vector{id});
        model.forget(id);
      }
    }
  }
}

TEST(ReadPlans, cover_every_wanted_byte_once_on_its_target_within_the_cap) {
  for (std::uint64_t seed = 0; seed < 3000 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    plan_at_random(seed);
  }
}

ReadPlan plan_one_file(const PlannedFile& place, const std::vector<Extents>& wanted,
                       const ReadPlanLimits& limits = {}) {
  std::vector<WantedSample> samples;
  for (const Extents& extents : wanted) {
    samples.push_back({.position = samples.size(), .extents = extents});
  }
  ReadPlanner planner(limits);
  return planner.plan(samples, [&](std::uint32_t) { return place; });
}

TEST(ReadPlans, join_records_that_are_near_and_leave_wide_holes) {
  const PlannedFile place{.bytes = 10 * mebibyte};
  const std::vector<Extents> wanted{{{.offset = 3 * mebibyte, .bytes = 100}},
                                    {{.offset = 0, .bytes = 1000}},
                                    {{.offset = 1000 + 60 * kibibyte, .bytes = 8}}};
  const ReadPlan plan = plan_one_file(place, wanted);
  ASSERT_EQ(plan.requests.size(), 2u);
  EXPECT_EQ(plan.requests[0].extent, (Extent{.offset = 3 * mebibyte, .bytes = 100}));
  EXPECT_EQ(plan.requests[1].extent, (Extent{.offset = 0, .bytes = 1008 + 60 * kibibyte}));
  EXPECT_EQ(plan.requests[1].due, 1u);
}

TEST(ReadPlans, tell_what_is_wanted_earlier_than_it_was_planned_for) {
  const PlannedFile place{.bytes = mebibyte};
  ReadPlanner planner(ReadPlanLimits{});
  const auto plan_at = [&](std::uint64_t position, std::uint64_t offset) {
    const Extents extents{{.offset = offset, .bytes = 100}};
    const WantedSample sample{.position = position, .extents = extents};
    return planner.plan(std::span(&sample, 1), [&](std::uint32_t) { return place; });
  };
  const ReadPlan later = plan_at(9, 0);
  EXPECT_TRUE(later.earlier.empty());
  const ReadPlan sooner = plan_at(3, 0);
  ASSERT_EQ(sooner.earlier.size(), 1u);
  EXPECT_TRUE(sooner.requests.empty());
  EXPECT_EQ(sooner.earlier[0].request, later.requests[0].id);
  EXPECT_EQ(sooner.earlier[0].due, 3u);
  EXPECT_TRUE(plan_at(5, 0).earlier.empty()) << "it is due at 3 already";
}

TEST(ReadPlans, end_long_reads_at_multiples_of_a_request) {
  const ReadPlan plan =
      plan_one_file({.bytes = 100 * mebibyte}, {{{.offset = 3 * mebibyte, .bytes = 8 * mebibyte}}});
  std::vector<std::uint64_t> offsets;
  for (const Request& request : plan.requests) {
    offsets.push_back(request.extent.offset / mebibyte);
  }
  EXPECT_EQ(offsets, (std::vector<std::uint64_t>{3, 4, 8}));
}

TEST(ReadPlans, never_split_a_short_record_for_its_place_in_the_file) {
  const ReadPlan plan =
      plan_one_file({.bytes = 100 * mebibyte}, {{{.offset = 4 * mebibyte - 100, .bytes = 200}}});
  ASSERT_EQ(plan.requests.size(), 1u);
  EXPECT_EQ(plan.pieces.size(), 1u);
}

TEST(ReadPlans, read_whole_blocks_directly_and_ask_for_none_twice) {
  const PlannedFile place{.bytes = 10'000, .alignment = 4096};
  ReadPlanner planner({.hole_bytes = 0});
  const auto place_of = [&](std::uint32_t) { return place; };
  const Extents first{{.offset = 100, .bytes = 5000}}, second{{.offset = 5100, .bytes = 4900}};
  const ReadPlan before = planner.plan(std::vector{WantedSample{0, first}}, place_of);
  ASSERT_EQ(before.requests.size(), 1u);
  EXPECT_EQ(before.requests[0].extent.bytes, 8192u);
  const ReadPlan after = planner.plan(std::vector{WantedSample{1, second}}, place_of);
  ASSERT_EQ(after.requests.size(), 1u);
  EXPECT_EQ(after.requests[0].extent, (Extent{.offset = 8192, .bytes = 4096}));
  EXPECT_EQ(after.requests[0].in_file_bytes, 10'000u - 8192u);
  ASSERT_EQ(after.pieces.size(), 2u);
  EXPECT_EQ(after.pieces[0].request, before.requests[0].id);
}

TEST(ReadPlans, clip_at_stripes_where_the_target_changes) {
  const FileLayout striped{
      {.begin = 0, .end = 8 * mebibyte, .stripe_bytes = mebibyte, .targets = {3, 5, 5, 7}}};
  const ReadPlan plan = plan_one_file({.bytes = 8 * mebibyte, .layout = &striped},
                                      {{{.offset = 0, .bytes = 4 * mebibyte}}});
  std::vector<std::pair<Target, std::uint64_t>> requests;
  for (const Request& request : plan.requests) {
    requests.emplace_back(request.target, request.extent.bytes / mebibyte);
  }
  EXPECT_EQ(requests, (std::vector<std::pair<Target, std::uint64_t>>{{3, 1}, {5, 2}, {7, 1}}));
}

TEST(ReadPlans, charge_a_block_that_two_targets_share_to_the_one_where_it_begins) {
  const FileLayout odd{{.begin = 0, .end = 100'000, .stripe_bytes = 5000, .targets = {1, 2}}};
  const ReadPlan plan = plan_one_file({.bytes = 100'000, .layout = &odd, .alignment = 4096},
                                      {{{.offset = 0, .bytes = 20'000}}});
  std::uint64_t next = 0;
  for (const Request& request : plan.requests) {
    EXPECT_EQ(request.extent.offset, next);
    EXPECT_EQ(request.extent.offset % 4096, 0u);
    EXPECT_EQ(request.target, 1 + static_cast<Target>(next / 5000 % 2));
    next += request.extent.bytes;
  }
  EXPECT_EQ(next, 20'480u);
}

TEST(ReadPlans, say_how_much_must_be_held_at_once) {
  // Request 0 is wanted by samples 0 and 2, so it is held beside that of sample 1.
  ReadPlanner planner({.hole_bytes = 0});
  const Extents a{{.offset = 0, .bytes = 100}}, b{{.offset = 1000, .bytes = 70}},
      c{{.offset = 50, .bytes = 50}}, d{{.offset = 2000, .bytes = 40}};
  const std::vector<WantedSample> samples{{0, a}, {1, b}, {2, c}, {3, d}};
  const ReadPlan plan =
      planner.plan(samples, [](std::uint32_t) { return PlannedFile{.bytes = 4000}; });
  EXPECT_EQ(plan.requests.size(), 3u);
  EXPECT_EQ(planner.held_bytes(), 210u);
  EXPECT_EQ(planner.most_needed_bytes(), 170u);
}

TEST(ReadPlans, refuse_what_lies_beyond_a_file) {
  const auto what = [](const Extent& extent) -> std::string {
    try {
      plan_one_file({.bytes = 1000}, {{extent}});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(what({.file = 4, .offset = 990, .bytes = 11}),
              HasSubstr("from 990 to 1001 of file 4, which has 1000"));
  EXPECT_THAT(what({.offset = 10, .bytes = ~std::uint64_t{0}}), HasSubstr("which no file has"));
  EXPECT_THROW(ReadPlanner({.request_bytes = 32 * mebibyte}), Error);
  EXPECT_THROW(ReadPlanner({.request_bytes = 3 * mebibyte}), Error);
}

TEST(ReadPlans, that_fail_leave_the_planner_as_it_was) {
  ReadPlanner planner({});
  const Extents good{{.offset = 0, .bytes = 10}}, bad{{.offset = 0, .bytes = 11}};
  const auto place_of = [](std::uint32_t) { return PlannedFile{.bytes = 10}; };
  EXPECT_THROW(planner.plan(std::vector{WantedSample{0, bad}}, place_of), Error);
  EXPECT_EQ(planner.held_bytes(), 0u);
  EXPECT_EQ(planner.plan(std::vector{WantedSample{0, good}}, place_of).requests.size(), 1u);
}

}  // namespace
}  // namespace sprat::io
