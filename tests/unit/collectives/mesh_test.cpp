// Meshes: who shares an axis with whom.
#include "sprat/mesh.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/unit/comm/base/refused.hpp"

namespace sprat {
namespace {

struct MeshCase {
  int ranks;
  std::vector<MeshAxis> axes;
};

const std::vector<MeshCase> cases = {
    {1, {{"only", 1}}},
    {1, {}},
    {4, {{"replica", 2}, {"shard", 2}}},
    {4, {{"replica", 4}, {"shard", 1}}},
    {4, {{"replica", 1}, {"shard", 4}}},
    {6, {{"outer", 3}, {"inner", 2}}},
    {8, {{"pipe", 2}, {"data", 2}, {"tensor", 2}}},
};

TEST(Mesh, an_axis_holds_the_ranks_that_differ_only_along_it) {
  for (const MeshCase& one : cases) {
    run_virtual_ranks(one.ranks, Config{}, [&](Communicator& world) {
      Mesh mesh(world, one.axes);
      EXPECT_EQ(mesh.axes().size(), one.axes.size());
      int stride = one.ranks;
      for (const MeshAxis& axis : one.axes) {
        stride /= axis.size;
        Communicator& group = mesh[axis.name];
        const int mine = world.rank() / stride % axis.size;
        EXPECT_EQ(mesh.coordinate(axis.name), mine) << "rank " << world.rank();
        ASSERT_EQ(group.size(), axis.size) << "rank " << world.rank();
        EXPECT_EQ(group.rank(), mine) << "rank " << world.rank();
        std::vector<int> members(axis.size, -1);
        const std::vector<int> self{world.rank()};
        group.all_gather(elements(self), elements(members)).wait();
        for (int other = 0; other < axis.size; ++other) {
          EXPECT_EQ(members[other], world.rank() + (other - mine) * stride)
              << "rank " << world.rank() << ", axis " << axis.name;
        }
      }
    });
  }
}

TEST(Mesh, sums_along_each_axis_make_the_sum_of_all) {
  for (const MeshCase& one : cases) {
    run_virtual_ranks(one.ranks, Config{}, [&](Communicator& world) {
      Mesh mesh(world, one.axes);
      std::vector<int> value{1 << world.rank()};
      for (const MeshAxis& axis : one.axes) {
        mesh[axis.name].all_reduce(elements(value)).wait();
      }
      EXPECT_EQ(value[0], (1 << one.ranks) - 1) << "rank " << world.rank();
    });
  }
}

TEST(Mesh, shapes_that_do_not_fit_are_refused_with_their_values) {
  run_virtual_ranks(2, Config{}, [](Communicator& world) {
    EXPECT_EQ(message_of([&] {
                Mesh(world, {{"a", 3}});
              }),
              "mesh axes \"a\" 3 need more than the 2 ranks of the world");
    EXPECT_EQ(message_of([&] {
                Mesh(world, {{"a", 1}, {"b", 1}});
              }),
              "mesh axes \"a\" 1 x \"b\" 1 make 1 ranks; the world has 2");
    EXPECT_EQ(message_of([&] {
                Mesh(world, {{"a", 0}});
              }),
              "mesh axis \"a\" has size 0; sizes are 1 or more");
    EXPECT_EQ(message_of([&] {
                Mesh(world, {{"a", 2}, {"a", 1}});
              }),
              "two mesh axes are named \"a\"");
    Mesh mesh(world, {{"a", 2}});
    EXPECT_EQ(message_of([&] { mesh["b"]; }), "the mesh has no axis \"b\"; it has \"a\" 2");
    EXPECT_EQ(message_of([&] { mesh.coordinate("b"); }),
              "the mesh has no axis \"b\"; it has \"a\" 2");
  });
}

}  // namespace
}  // namespace sprat
