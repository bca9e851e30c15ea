// Buffers of micro-batches, and their additions.
#include "fsdp/full_gradient.hpp"

#include <algorithm>

#include "fsdp/plan/lifetimes.hpp"

namespace sprat::fsdp {
namespace {

/// Elements that are added at a time, so that what several additions touch is still in the cache.
constexpr std::size_t chunk_elements = 4096;

void add_chunk(std::span<const float> values, std::span<float> onto) {
  for (std::size_t i = 0; i < onto.size(); ++i) {
    onto[i] += values[i];
  }
}

}  // namespace

FullGradient::FullGradient(const UnitCut& cut, const UnitHome& home, std::span<float> kept)
    : cut_(cut), home_(home), kept_(kept), tree_(empty_tree()) {}

MicrobatchTree FullGradient::empty_tree() const {
  return MicrobatchTree(in_tree() ? home_.options.micro_steps : 1);
}

std::span<float> FullGradient::buffer(int number) const {
  if (number == 0 && !cut_.shards_gradients) {
    return kept_;
  }
  void* const slot = slots_[static_cast<std::size_t>(number)].data();
  return {static_cast<float*>(slot), cut_.layout.padded};
}

void FullGradient::expect(int microbatch) {
  if (!is_finished(microbatch)) {
    tree_.buffer(contribution(microbatch));
  }
}

/// The first write of a contribution finds its buffer with what others left there.
std::vector<bool>& FullGradient::open(int contribution) {
  const auto [fresh, is_new] = fresh_.try_emplace(contribution, cut_.spec.parameters.size(), true);
  if (!is_new) {
    return fresh->second;
  }
  const int number = tree_.buffer(contribution);
  const auto at = static_cast<std::size_t>(number);
  slots_.resize(std::max(slots_.size(), at + 1));
  if (cut_.layout.padded > 0 && (number > 0 || cut_.shards_gradients)) {
    slots_[at] = home_.gradient_slots->take_or_make(gradient_buffer(cut_.id, number, home_.units),
                                                    cut_.layout.padded * sizeof(float));
  }
  zero_gaps(buffer(number));
  return fresh->second;
}

/// What lies between parameters is summed too, and counted in the norm.
void FullGradient::zero_gaps(std::span<float> values) const {
  std::size_t end = 0;
  for (const FlatItem& item : cut_.layout.items) {
    std::ranges::fill(values.subspan(end, item.offset - end), 0.0f);
    end = item.offset + item.count;
  }
  std::ranges::fill(values.subspan(end), 0.0f);
}

GradientTarget FullGradient::target(int index, int microbatch) {
  const auto at = static_cast<std::size_t>(index);
  const int mine = contribution(microbatch);
  std::vector<bool>& all_fresh = open(mine);
  const bool fresh = all_fresh[at];
  all_fresh[at] = false;
  const FlatItem& item = cut_.layout.items[at];
  return {.values = buffer(tree_.buffer(mine)).subspan(item.offset, item.count), .fresh = fresh};
}

void FullGradient::finish(int microbatch) {
  if (in_tree()) {
    complete(microbatch);
  }
}

bool FullGradient::is_finished(int microbatch) const {
  return tree_.is_finished(contribution(microbatch));
}

void FullGradient::finish_all() {
  const int contributions = in_tree() ? home_.options.micro_steps : 1;
  for (int one = 0; one < contributions; ++one) {
    if (!tree_.is_finished(one)) {
      complete(one);
    }
  }
}

void FullGradient::complete(int contribution) {
  const std::vector<bool>& fresh = open(contribution);
  const std::span<float> values = buffer(tree_.buffer(contribution));
  for (std::size_t index = 0; index < fresh.size(); ++index) {
    if (fresh[index]) {
      const FlatItem& item = cut_.layout.items[index];
      std::ranges::fill(values.subspan(item.offset, item.count), 0.0f);
    }
  }
  fresh_.erase(contribution);
  add(tree_.finish(contribution));
}

void FullGradient::add(const std::vector<MicrobatchTree::Addition>& additions) {
  for (std::size_t at = 0; at < cut_.layout.padded; at += chunk_elements) {
    const std::size_t count = std::min(chunk_elements, cut_.layout.padded - at);
    for (const auto& [into, from] : additions) {
      add_chunk(buffer(from).subspan(at, count), buffer(into).subspan(at, count));
    }
  }
  for (const auto& addition : additions) {
    slots_[static_cast<std::size_t>(addition.from)] = {};
  }
}

void FullGradient::clear() {
  tree_ = empty_tree();
  fresh_.clear();
  slots_.clear();
}

}  // namespace sprat::fsdp
