// Every collective on every type with every operation, in place and not: what comes out is what
// NCCL's users expect.
#include <algorithm>
#include <functional>
#include <string>

#include "tests/system/nccl/numbers.hpp"
#include "tests/system/nccl/ranks.hpp"

namespace sprat::nccl_tests {
namespace {

constexpr std::size_t count = 37;  // of a block: no whole number of vectors

struct Op {
  ncclRedOp_t op;
  const char* name;
  /// Of what all ranks have.
  std::function<double(const std::vector<double>&)> of;
};
const std::vector<Op>& all_ops() {
  static const auto sum = [](const std::vector<double>& all) {
    double total = 0;
    for (const double one : all) {
      total += one;
    }
    return total;
  };
  static const std::vector<Op> ops = {
      {ncclSum, "sum", sum},
      {ncclProd, "prod",
       [](const std::vector<double>& all) {
         double product = 1;
         for (const double one : all) {
           product *= one;
         }
         return product;
       }},
      {ncclMax, "max",
       [](const std::vector<double>& all) { return *std::ranges::max_element(all); }},
      {ncclMin, "min",
       [](const std::vector<double>& all) { return *std::ranges::min_element(all); }},
      {ncclAvg, "avg",
       [](const std::vector<double>& all) { return sum(all) / static_cast<double>(all.size()); }}};
  return ops;
}

/// One rank's checks. Element `at` of rank `rank` is 1 or 2: sums and products are right in all
/// types.
class Rank {
 public:
  Rank(ncclComm_t comm, int rank, int ranks)
      : comm_(comm),
        rank_(static_cast<std::size_t>(rank)),
        ranks_(static_cast<std::size_t>(ranks)) {}

  void check_all() {
    for (const Type& type : all_types()) {
      for (const Op& op : all_ops()) {
        check_reductions(type, op);
      }
      check_moves(type);
    }
  }

 private:
  static double value(std::size_t rank, std::size_t at) {
    return 1 + static_cast<double>((rank + at) % 2);
  }
  Bytes mine(const Type& type, std::size_t elements) const {
    return make(type, elements, [this](std::size_t at) { return value(rank_, at); });
  }
  Bytes reduced(const Type& type, const Op& op, std::size_t from, std::size_t elements) const {
    return make(type, elements, [&](std::size_t at) {
      std::vector<double> all;
      for (std::size_t rank = 0; rank < ranks_; ++rank) {
        all.push_back(value(rank, from + at));
      }
      return op.of(all);
    });
  }

  void check_reductions(const Type& type, const Op& op) {
    const std::string what = std::string(type.name) + " " + op.name + " on rank " +
                             std::to_string(rank_) + " of " + std::to_string(ranks_);
    const Bytes expected = reduced(type, op, 0, count);
    Bytes in = mine(type, count), out(in.size());
    EXPECT_SUCCESS(ncclAllReduce(in.data(), out.data(), count, type.type, op.op, comm_, nullptr));
    EXPECT_EQ(out, expected) << "all_reduce " << what;
    EXPECT_SUCCESS(ncclAllReduce(in.data(), in.data(), count, type.type, op.op, comm_, nullptr));
    EXPECT_EQ(in, expected) << "all_reduce in place " << what;

    const int root = static_cast<int>(ranks_) - 1;
    const bool is_root = rank_ + 1 == ranks_;
    in = mine(type, count);
    EXPECT_SUCCESS(ncclReduce(in.data(), is_root ? out.data() : nullptr, count, type.type, op.op,
                              root, comm_, nullptr));
    EXPECT_EQ(is_root ? out : expected, expected) << "reduce " << what;

    Bytes whole = mine(type, count * ranks_);
    Bytes part(count * type.bytes);
    const Bytes part_expected = reduced(type, op, rank_ * count, count);
    EXPECT_SUCCESS(
        ncclReduceScatter(whole.data(), part.data(), count, type.type, op.op, comm_, nullptr));
    EXPECT_EQ(part, part_expected) << "reduce_scatter " << what;
    std::byte* const own = whole.data() + rank_ * part.size();
    EXPECT_SUCCESS(ncclReduceScatter(whole.data(), own, count, type.type, op.op, comm_, nullptr));
    EXPECT_EQ(Bytes(own, own + part.size()), part_expected) << "reduce_scatter in place " << what;
  }

  /// Every rank's block, one after the other.
  Bytes gathered(const Type& type) const {
    return make(type, count * ranks_, [](std::size_t at) { return value(at / count, at % count); });
  }

  void check_moves(const Type& type) {
    const std::string what = std::string(type.name) + " on rank " + std::to_string(rank_) + " of " +
                             std::to_string(ranks_);
    const std::size_t block = count * type.bytes;
    const int root = static_cast<int>(ranks_) / 2;
    const bool is_root = rank_ == ranks_ / 2;
    const Bytes all = gathered(type);
    const Bytes of_root = make(type, count, [&](std::size_t at) { return value(ranks_ / 2, at); });

    Bytes in = mine(type, count), whole(all.size());
    EXPECT_SUCCESS(ncclAllGather(in.data(), whole.data(), count, type.type, comm_, nullptr));
    EXPECT_EQ(whole, all) << "all_gather " << what;
    std::fill(whole.begin(), whole.end(), std::byte{});
    std::copy(in.begin(), in.end(), whole.begin() + static_cast<std::ptrdiff_t>(rank_ * block));
    EXPECT_SUCCESS(ncclAllGather(whole.data() + rank_ * block, whole.data(), count, type.type,
                                 comm_, nullptr));
    EXPECT_EQ(whole, all) << "all_gather in place " << what;

    Bytes out(block);
    EXPECT_SUCCESS(ncclBroadcast(is_root ? in.data() : nullptr, out.data(), count, type.type, root,
                                 comm_, nullptr));
    EXPECT_EQ(out, of_root) << "broadcast " << what;
    out = in;
    EXPECT_SUCCESS(ncclBcast(out.data(), count, type.type, root, comm_, nullptr));
    EXPECT_EQ(out, of_root) << "bcast " << what;

    std::fill(whole.begin(), whole.end(), std::byte{});
    EXPECT_SUCCESS(ncclGather(in.data(), is_root ? whole.data() : nullptr, count, type.type, root,
                              comm_, nullptr));
    EXPECT_EQ(is_root ? whole : all, all) << "gather " << what;
    EXPECT_SUCCESS(ncclScatter(is_root ? all.data() : nullptr, out.data(), count, type.type, root,
                               comm_, nullptr));
    EXPECT_EQ(out, in) << "scatter " << what;

    // Block q of rank r: r's value at q, shifted by the block.
    const auto cell = [](std::size_t from, std::size_t to) {
      return value(from, to) + static_cast<double>(to % 2);
    };
    const Bytes leaving =
        make(type, count * ranks_, [&](std::size_t at) { return cell(rank_, at / count); });
    const Bytes coming =
        make(type, count * ranks_, [&](std::size_t at) { return cell(at / count, rank_); });
    EXPECT_SUCCESS(ncclAlltoAll(leaving.data(), whole.data(), count, type.type, comm_, nullptr));
    EXPECT_EQ(whole, coming) << "all_to_all " << what;
  }

  ncclComm_t comm_;
  std::size_t rank_, ranks_;
};

class NcclValues : public testing::TestWithParam<int> {};

TEST_P(NcclValues, are_right_in_processes) {
  run_processes(GetParam(), [](int rank, ncclUniqueId id) {
    ncclComm_t comm = nullptr;
    EXPECT_SUCCESS(ncclCommInitRank(&comm, GetParam(), id, rank));
    int found = -1, ranks = -1;
    EXPECT_SUCCESS(ncclCommUserRank(comm, &found));
    EXPECT_SUCCESS(ncclCommCount(comm, &ranks));
    EXPECT_EQ(found, rank);
    EXPECT_EQ(ranks, GetParam());
    Rank(comm, rank, ranks).check_all();
    EXPECT_SUCCESS(ncclCommFinalize(comm));
    EXPECT_SUCCESS(ncclCommDestroy(comm));
  });
}
INSTANTIATE_TEST_SUITE_P(Ranks, NcclValues, testing::Values(1, 2, 4, 8));

TEST(NcclThreads, have_right_values_by_init_all) {
  const std::vector<ncclComm_t> comms = init_all(3);
  run_threads(3,
              [&](int rank) { Rank(comms[static_cast<std::size_t>(rank)], rank, 3).check_all(); });
  destroy_all(comms);
}

// Ranks may multiply by different numbers, as nccl-tests does.
TEST(NcclThreads, multiply_before_they_add) {
  const std::vector<ncclComm_t> comms = init_all(4);
  run_threads(4, [&](int rank) {
    const ncclComm_t comm = comms[static_cast<std::size_t>(rank)];
    for (const Type& type : all_types()) {
      alignas(8) std::array<std::byte, 8> factor{};
      put(type, factor.data(), rank % 2 == 0 ? 2 : 1);
      for (const auto where : {ncclScalarHostImmediate, ncclScalarDevice}) {
        ncclRedOp_t op = ncclSum;
        EXPECT_SUCCESS(ncclRedOpCreatePreMulSum(&op, factor.data(), type.type, where, comm));
        const Bytes in = make(type, count, [&](std::size_t) { return 1.0; });
        Bytes out(in.size());
        EXPECT_SUCCESS(ncclAllReduce(in.data(), out.data(), count, type.type, op, comm, nullptr));
        EXPECT_EQ(out, make(type, count, [](std::size_t) { return 6.0; })) << type.name;
        EXPECT_EQ(in, make(type, count, [](std::size_t) { return 1.0; })) << "the input is kept";
        EXPECT_SUCCESS(ncclRedOpDestroy(op, comm));
        EXPECT_EQ(ncclAllReduce(in.data(), out.data(), count, type.type, op, comm, nullptr),
                  ncclInvalidArgument);
      }
    }
  });
  destroy_all(comms);
}

TEST(NcclThreads, carry_long_messages_and_none) {
  const std::vector<ncclComm_t> comms = init_all(2);
  run_threads(2, [&](int rank) {
    const ncclComm_t comm = comms[static_cast<std::size_t>(rank)];
    EXPECT_SUCCESS(ncclAllReduce(nullptr, nullptr, 0, ncclFloat32, ncclSum, comm, nullptr));
    std::vector<float> data(1'000'000, static_cast<float>(rank + 1));
    EXPECT_SUCCESS(
        ncclAllReduce(data.data(), data.data(), data.size(), ncclFloat32, ncclSum, comm, nullptr));
    EXPECT_EQ(data, std::vector<float>(data.size(), 3));
  });
  destroy_all(comms);
}

}  // namespace
}  // namespace sprat::nccl_tests
