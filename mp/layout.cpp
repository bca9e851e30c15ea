// Ranks as digits of a number: each axis has an extent and a stride, and all questions about groups
// are arithmetic on those.
#include "sprat/layout.hpp"

#include <algorithm>
#include <utility>

#include "comm/base/check.hpp"

namespace sprat {
namespace {

constexpr std::array<std::pair<Axes, std::string_view>, 7> axis_names = {{
    {Axes::data, "data"},  // sets come before what they are made of
    {Axes::shard, "shard"},
    {Axes::replica, "replica"},
    {Axes::batch_shard, "batch_shard"},
    {Axes::context, "context"},
    {Axes::pipeline, "pipeline"},
    {Axes::tensor, "tensor"},
}};

constexpr bool has(Axes axes, int bit) { return (static_cast<unsigned>(axes) >> bit & 1u) != 0; }

constexpr int bit_of(Axes axis) {
  int bit = 0;
  while (!has(axis, bit)) {
    ++bit;
  }
  return bit;
}
constexpr int replica_bit = bit_of(Axes::replica), batch_shard_bit = bit_of(Axes::batch_shard),
              context_bit = bit_of(Axes::context), pipeline_bit = bit_of(Axes::pipeline),
              tensor_bit = bit_of(Axes::tensor);

/// "3 or 6": the divisors of `whole` on either side of `degree`, which is none.
std::string nearest_divisors(int degree, int whole) {
  int below = std::min(degree - 1, whole), above = degree + 1;
  while (whole % below != 0) {
    --below;
  }
  if (above > whole) {
    return text(below);
  }
  while (whole % above != 0) {
    ++above;
  }
  return text(below, " or ", above);
}

void require_positive(std::string_view name, int degree, int least) {
  require(degree >= least, "the ", name, " degree is ", degree, "; it is ", least, " or more");
}

/// Takes `degree` out of `ranks`, which `what` describes.
int divided(int ranks, std::string_view name, int degree, const std::string& what) {
  if (ranks % degree != 0) {
    throw Error(ErrorCode::invalid_argument,
                text("the ", name, " degree ", degree, " does not divide ", what,
                     "; the nearest that does is ", nearest_divisors(degree, ranks)));
  }
  return ranks / degree;
}

std::string three_letters(const std::string& placement) {
  if (placement == "cluster") {
    return "DPT";
  }
  if (placement == "spread") {
    return "TPD";
  }
  std::string sorted = placement;
  std::ranges::sort(sorted);
  require(sorted == "DPT", "the placement \"", placement,
          "\" is neither \"cluster\" (DPT) nor \"spread\" (TPD) nor a permutation of D, P and T");
  return placement;
}

/// Fills in what is left to choose; throws if something does not fit.
ParallelDegrees resolved(ParallelDegrees degrees) {
  require(degrees.world >= 1, "the world has ", degrees.world, " ranks; it has 1 or more");
  require_positive("replica", degrees.replica, 0);
  require_positive("shard", degrees.shard, 0);
  require_positive("context", degrees.context, 1);
  require_positive("pipeline", degrees.pipeline, 1);
  require_positive("tensor", degrees.tensor, 1);
  degrees.placement = three_letters(degrees.placement);
  const int world = degrees.world;
  // Each degree divides what those before it leave, so a refusal names the first that does not fit,
  // and no product can overflow.
  int left = divided(world, "tensor", degrees.tensor, text("the ", world, " ranks of the world"));
  left = divided(
      left, "pipeline", degrees.pipeline,
      text("the ", left, " ranks that tensor degree ", degrees.tensor, " leaves of ", world));
  const std::string data_ranks =
      text("the ", left, " data ranks that pipeline degree ", degrees.pipeline,
           " and tensor degree ", degrees.tensor, " leave of ", world);
  if (degrees.shard == 0) {
    degrees.replica = std::max(degrees.replica, 1);
    degrees.shard = divided(left, "replica", degrees.replica, data_ranks);
  }
  const int replicas = divided(left, "shard", degrees.shard, data_ranks);
  require(degrees.replica == 0 || degrees.replica == replicas, "replica degree ", degrees.replica,
          " times shard degree ", degrees.shard, " is not ", data_ranks,
          "; leave the replica degree out, or make it ", replicas);
  degrees.replica = replicas;
  divided(degrees.shard, "context", degrees.context, text("the shard degree ", degrees.shard));
  return degrees;
}

}  // namespace

std::string describe(Axes axes) {
  std::string out;
  for (const auto& [set, name] : axis_names) {
    if ((axes & set) == set) {
      out += text(out.empty() ? "" : "+", name);
      axes = axes & ~set;
    }
  }
  return out.empty() ? "none" : out;
}

ParallelLayout::ParallelLayout(const ParallelDegrees& degrees) : degrees_(resolved(degrees)) {
  extents_[replica_bit] = degrees_.replica;
  extents_[batch_shard_bit] = degrees_.shard / degrees_.context;
  extents_[context_bit] = degrees_.context;
  extents_[pipeline_bit] = degrees_.pipeline;
  extents_[tensor_bit] = degrees_.tensor;
  int stride = 1;
  const auto place = [&](int bit) {
    strides_[bit] = stride;
    stride *= extents_[bit];
  };
  for (auto letter = degrees_.placement.rbegin(); letter != degrees_.placement.rend(); ++letter) {
    if (*letter == 'P') {
      place(pipeline_bit);
    } else if (*letter == 'T') {
      place(tensor_bit);
    } else {
      // What talks most stands closest: keys and values in every layer, then its parameters, then
      // the gradients of a step.
      place(context_bit);
      place(batch_shard_bit);
      place(replica_bit);
    }
  }
}

int ParallelLayout::size(Axes axes) const noexcept {
  int ranks = 1;
  for (int bit = 0; bit < axis_count; ++bit) {
    ranks *= has(axes, bit) ? extents_[bit] : 1;
  }
  return ranks;
}

std::array<int, ParallelLayout::axis_count> ParallelLayout::places(int rank) const {
  require(rank >= 0 && rank < world(), "rank ", rank, " is none of the layout's; it has 0 to ",
          world() - 1);
  std::array<int, axis_count> places{};
  for (int bit = 0; bit < axis_count; ++bit) {
    places[bit] = rank / strides_[bit] % extents_[bit];
  }
  return places;
}

ParallelCoordinate ParallelLayout::coordinate(int rank) const {
  const auto at = places(rank);
  return {.replica = at[replica_bit],
          .shard = at[batch_shard_bit] * degrees_.context + at[context_bit],
          .context = at[context_bit],
          .pipeline = at[pipeline_bit],
          .tensor = at[tensor_bit]};
}

int ParallelLayout::rank(const ParallelCoordinate& at) const {
  require(at.context == at.shard % degrees_.context, "context ", at.context,
          " is not the remainder of shard ", at.shard, " by the context degree ", degrees_.context);
  const auto inside = [](std::string_view name, int place, int degree) {
    require(place >= 0 && place < degree, name, " ", place,
            " is none of the layout's; it has 0 to ", degree - 1);
  };
  inside("replica", at.replica, degrees_.replica);
  inside("shard", at.shard, degrees_.shard);
  inside("pipeline stage", at.pipeline, degrees_.pipeline);
  inside("tensor rank", at.tensor, degrees_.tensor);
  return at.replica * strides_[replica_bit] +
         at.shard / degrees_.context * strides_[batch_shard_bit] +
         at.context * strides_[context_bit] + at.pipeline * strides_[pipeline_bit] +
         at.tensor * strides_[tensor_bit];
}

std::vector<int> ParallelLayout::group(Axes axes, int rank) const {
  const auto at = places(rank);
  int first = rank;
  for (int bit = 0; bit < axis_count; ++bit) {
    first -= has(axes, bit) ? at[bit] * strides_[bit] : 0;
  }
  // Doubled, tripled ... along each axis in turn; the order is that of ranks, whatever the
  // placement, as SMP has it.
  std::vector<int> ranks{first};
  for (int bit = 0; bit < axis_count; ++bit) {
    const std::size_t before = ranks.size();
    for (int place = 1; has(axes, bit) && place < extents_[bit]; ++place) {
      for (std::size_t i = 0; i < before; ++i) {
        ranks.push_back(ranks[i] + place * strides_[bit]);
      }
    }
  }
  std::ranges::sort(ranks);
  return ranks;
}

std::vector<std::vector<int>> ParallelLayout::groups(Axes axes) const {
  std::vector<std::vector<int>> all;
  for (int rank = 0; rank < world(); ++rank) {
    if (rank_in(axes, rank) == 0) {
      all.push_back(group(axes, rank));
    }
  }
  return all;
}

int ParallelLayout::rank_in(Axes axes, int rank) const {
  const auto at = places(rank);
  int before = 0;
  for (int bit = 0; bit < axis_count; ++bit) {
    int weight = has(axes, bit) ? 1 : 0;
    // An axis counts as often as there are places on the axes of the set that vary faster.
    for (int faster = 0; faster < axis_count; ++faster) {
      weight *= has(axes, faster) && strides_[faster] < strides_[bit] ? extents_[faster] : 1;
    }
    before += at[bit] * weight;
  }
  return before;
}

int ParallelLayout::data_share(int rank) const {
  const auto at = places(rank);
  return at[replica_bit] * extents_[batch_shard_bit] + at[batch_shard_bit];
}

Communicator split_along(Communicator& world, const ParallelLayout& layout, Axes axes) {
  require(world.size() == layout.world(), "a layout of ", layout.world(),
          " ranks does not fit a communicator of ", world.size());
  // All members of a group know its first rank, and no other group has it.
  const int color = layout.group(axes, world.rank()).front();
  return std::move(*world.split(color, world.rank(), describe(axes), Failing::together));
}

}  // namespace sprat
