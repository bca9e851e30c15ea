// Joining neighbours of the canonical tree as they become whole.
#include "fsdp/plan/microbatch_tree.hpp"

#include <algorithm>

#include "collectives/kernels/canonical_tree.hpp"
#include "comm/base/check.hpp"
#include "sprat/fsdp.hpp"

namespace sprat {

const char* name(GradientOrder order) noexcept {
  switch (order) {
    case GradientOrder::sequence:
      return "sequence";
    case GradientOrder::tree:
      return "tree";
  }
  return "?";
}

double tree_sum(std::span<const double> values) noexcept {
  if (values.size() < 2) {
    return values.empty() ? 0 : values.front();
  }
  const auto count = static_cast<int>(values.size());
  const auto middle = static_cast<std::size_t>(collectives::split_point({0, count}));
  return tree_sum(values.first(middle)) + tree_sum(values.subspan(middle));
}

namespace fsdp {
namespace {

using collectives::RankRange;

/// A node of the canonical tree, and the other half of the node above it.
struct Family {
  RankRange parent, sibling;
};

/// `node` is in the tree over `all`, and not its root.
Family family_of(RankRange node, RankRange all) {
  RankRange above = all;
  while (true) {
    const int middle = collectives::split_point(above);
    const RankRange left = {above.first, middle}, right = {middle, above.last};
    if (node == left || node == right) {
      return {.parent = above, .sibling = node == left ? right : left};
    }
    above = node.first < middle ? left : right;
  }
}

}  // namespace

MicrobatchTree::MicrobatchTree(int contributions) : contributions_(contributions) {}

int MicrobatchTree::buffer(int contribution) {
  const auto found = open_.find(contribution);
  if (found != open_.end()) {
    return found->second;
  }
  // The first that is free: as long as anything has come, something is in buffer 0, where a sum of
  // two stays if one of them was there. So the last sum of all ends there.
  const auto free = std::ranges::find(in_use_, false);
  const auto buffer = static_cast<int>(free - in_use_.begin());
  in_use_.resize(std::max(in_use_.size(), static_cast<std::size_t>(buffer) + 1));
  in_use_[static_cast<std::size_t>(buffer)] = true;
  open_[contribution] = buffer;
  return buffer;
}

std::vector<MicrobatchTree::Addition> MicrobatchTree::finish(int contribution) {
  const auto made = open_.find(contribution);
  if (made == open_.end()) {
    throw Error(ErrorCode::internal,
                text("contribution ", contribution, " is finished and was not begun"));
  }
  RankRange node = {contribution, contribution + 1};
  int buffer = made->second;
  open_.erase(made);
  std::vector<Addition> additions;
  const RankRange all = {0, contributions_};
  while (node != all) {
    const Family family = family_of(node, all);
    const auto other = sums_.find(family.sibling.first);
    if (other == sums_.end() || other->second.last != family.sibling.last) {
      break;
    }
    const Addition addition = {.into = std::min(buffer, other->second.buffer),
                               .from = std::max(buffer, other->second.buffer)};
    additions.push_back(addition);
    in_use_[static_cast<std::size_t>(addition.from)] = false;
    buffer = addition.into;
    node = family.parent;
    sums_.erase(other);
  }
  sums_[node.first] = {.last = node.last, .buffer = buffer};
  return additions;
}

bool MicrobatchTree::is_finished(int contribution) const {
  const auto after = sums_.upper_bound(contribution);
  return after != sums_.begin() && std::prev(after)->second.last > contribution;
}

}  // namespace fsdp
}  // namespace sprat
