// NCCL's tuner interface as NCCL plays it, of every version that is exported.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "plugins/nccl_net/abi/tuner_v2.hpp"
#include "plugins/nccl_net/abi/tuner_v3.hpp"
#include "plugins/nccl_net/abi/tuner_v4.hpp"
#include "plugins/nccl_net/abi/tuner_v5.hpp"
#include "plugins/nccl_net/abi/tuner_v6.hpp"
#include "tests/unit/no_files.hpp"
#include "tests/unit/plugins/nccl_net/played_net.hpp"

namespace sprat::nccl_net {
namespace {

constexpr int all_reduce = 4, tree = 0, ring = 1, ll = 0, simple = 2;

using Table = std::array<std::array<float, 3>, 7>;

/// What NCCL then takes.
struct Taken {
  int algorithm = -1, protocol = -1, channels = 0;
  bool operator==(const Taken&) const = default;
};

Taken cheapest(const Table& table, int channels) {
  Taken taken{.channels = channels};
  float least = 1e30f;
  for (int a = 0; a < 7; ++a) {
    for (int p = 0; p < 3; ++p) {
      const float cost = table[static_cast<std::size_t>(a)][static_cast<std::size_t>(p)];
      if (cost >= 0 && cost < least) {
        least = cost;
        taken = {a, p, channels};
      }
    }
  }
  return taken;
}

/// A table in which NCCL itself would take ring and simple, and can do no more than tree and ring.
Table own_costs() {
  Table table;
  for (auto& row : table) {
    row.fill(-1);
  }
  table[tree] = {40, -1, 30};
  table[ring] = {35, -1, 20};
  return table;
}

template <class Tuner>
Taken ask(int version, std::size_t bytes) {
  auto* tuner = static_cast<Tuner*>(plugin_symbol("ncclTunerPlugin_v" + std::to_string(version)));
  if (tuner == nullptr) {
    throw std::runtime_error("no tuner of version " + std::to_string(version));
  }
  void* context = nullptr;
  constexpr std::size_t ranks = 16, nodes = 4;
  Table table = own_costs();
  auto** costs = reinterpret_cast<float**>(&table);
  Taken taken;
  int channels = 0;
  if constexpr (requires { tuner->finalize; }) {
    check("init", tuner->init(&context, 1, ranks, nodes, &keep_line, nullptr, nullptr));
  } else {
    check("init", tuner->init(ranks, nodes, &keep_line, &context));
  }
  if constexpr (std::is_same_v<Tuner, TunerV2>) {
    check("getCollInfo", tuner->get_coll_info(context, all_reduce, bytes, 0, 0, 1, &taken.algorithm,
                                              &taken.protocol, &taken.channels));
    check("destroy", tuner->destroy(context));
    return taken;
  } else if constexpr (std::is_same_v<Tuner, TunerV3>) {
    check("getCollInfo",
          tuner->get_coll_info(context, all_reduce, bytes, 1, costs, 7, 3, &channels));
    check("destroy", tuner->destroy(context));
  } else {
    check("getCollInfo",
          tuner->get_coll_info(context, all_reduce, bytes, 1, costs, 7, 3, 0, &channels));
    if constexpr (requires { tuner->finalize; }) {
      check("finalize", tuner->finalize(context));
    } else {
      check("destroy", tuner->destroy(context));
    }
  }
  EXPECT_EQ(table[ring][1], -1) << "what cannot be had stays so";
  EXPECT_EQ(table[6][0], -1);
  return cheapest(table, channels);
}

Taken ask(int version, std::size_t bytes) {
  switch (version) {
    case 6:
      return ask<TunerV6>(version, bytes);
    case 5:
      return ask<TunerV5>(version, bytes);
    case 4:
      return ask<TunerV4>(version, bytes);
    case 3:
      return ask<TunerV3>(version, bytes);
    default:
      return ask<TunerV2>(version, bytes);
  }
}

const std::vector<int> versions = {
#define SPRAT_TUNER_VERSION(number) number,
#include "plugins/nccl_net/tuner_versions.def"
};

/// What NCCL takes where the tuner says nothing: of version 2, which has no table, nothing is set.
Taken untouched(int version) { return version == 2 ? Taken{} : Taken{ring, simple, 0}; }

TEST(NcclTuner, changes_nothing_that_nobody_asked_for) {
  unsetenv("SPRAT_NCCL_TUNING");
  for (const int version : versions) {
    EXPECT_EQ(ask(version, 1000), untouched(version)) << "version " << version;
  }
  EXPECT_EQ(plugin_symbol("ncclTunerPlugin_v7"), nullptr);
  EXPECT_EQ(plugin_symbol("ncclTunerPlugin_v1"), nullptr);
}

TEST(NcclTuner, takes_rules_of_a_file) {
  const auto path =
      std::filesystem::temp_directory_path() / ("nccl_rules_" + std::to_string(::getpid()));
  std::ofstream(path) << "all_reduce 0-64k nodes=4 tree ll channels=2\n";
  setenv("SPRAT_NCCL_TUNING", path.c_str(), 1);
  for (const int version : versions) {
    EXPECT_EQ(ask(version, 1000), (Taken{tree, ll, 2})) << "version " << version;
    EXPECT_EQ(ask(version, 1 << 20), untouched(version)) << "version " << version;
  }
  std::filesystem::remove(path);
}

TEST(NcclTuner, takes_the_model) {
  setenv("SPRAT_NCCL_TUNING", "model", 1);
  for (const int version : versions) {
    EXPECT_EQ(ask(version, 8), (Taken{tree, ll, 0})) << "version " << version;
    EXPECT_EQ(ask(version, std::size_t{1} << 30), (Taken{ring, simple, 0}))
        << "version " << version;
  }
}

TEST(NcclTuner, a_file_that_is_wrong_is_said_and_costs_nobody_his_job) {
  setenv("SPRAT_NCCL_TUNING", "/no/such/file", 1);
  last_line().clear();
  EXPECT_EQ(ask(5, 1000), untouched(5));
  EXPECT_NE(last_line().find("/no/such/file"), std::string::npos) << last_line();
  const NoFiles none;
  for (const std::string& path : none.paths()) {
    setenv("SPRAT_NCCL_TUNING", path.c_str(), 1);
    EXPECT_EQ(ask(5, 1000), untouched(5));
    EXPECT_NE(last_line().find("SPRAT_NCCL_TUNING=\"" + path + "\": it is a "), std::string::npos)
        << last_line();
  }
}

}  // namespace
}  // namespace sprat::nccl_net
