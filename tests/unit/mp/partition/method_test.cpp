// Tests of mp/partition/method.hpp: models as text, cut by methods that are named.
#include "mp/partition/method.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sprat/error.hpp"
#include "sprat/partition.hpp"

namespace sprat::mp {
namespace {

constexpr std::string_view two_modules_json = R"({"module": {"name": "m", "children": [
    {"name": "m.a", "parameter_bytes": 8, "children": [{"name": "m.a.x", "parameter_bytes": 8}]},
    {"name": "m.b", "parameter_bytes": 16}]}})";

std::string placed_as_text(const std::vector<PlacedPiece>& pieces) {
  std::string out;
  for (const PlacedPiece& piece : pieces) {
    out += piece.name + "=" + std::to_string(piece.partition) + " ";
  }
  return out;
}

TEST(PartitionModel, cuts_by_the_method_of_the_models_form) {
  EXPECT_EQ(placed_as_text(partition_model({.model = two_modules_json, .partitions = 2})),
            "m=0 m.a=0 m.a.x=0 m.b=1 ");
  EXPECT_EQ(placed_as_text(
                partition_model({.model = two_modules_json, .method = "chain", .partitions = 2})),
            "m=0 m.a=0 m.a.x=0 m.b=1 ");
  EXPECT_EQ(placed_as_text(partition_model({.model = two_modules_json, .partitions = 1})),
            "m=0 m.a=0 m.a.x=0 m.b=0 ");
}

TEST(PartitionModel, says_what_it_cannot_cut) {
  EXPECT_THROW(partition_model({.model = "{", .partitions = 2}), Error);
  EXPECT_THROW(partition_model({.model = two_modules_json, .method = "saw", .partitions = 2}),
               Error);
  EXPECT_THROW(partition_model({.model = two_modules_json, .partitions = 9}), Error);
}

}  // namespace
}  // namespace sprat::mp
