#include "io/order/best_fit.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>

namespace sprat::io {
namespace {

/// A set of numbers below a bound that finds the next one: bits, and bits that say which words of
/// the level below have any. Four levels hold 16 Mi numbers, so that a step costs a few
/// instructions where a tree would miss the cache.
class NumberSet {
 public:
  explicit NumberSet(std::uint64_t bound) {
    do {
      bound = (bound + 63) / 64;
      levels_.emplace_back(bound);
    } while (bound > 1);
  }

  void insert(std::uint64_t number) {
    for (auto& level : levels_) {
      level[number / 64] |= std::uint64_t{1} << number % 64;
      number /= 64;
    }
  }

  void erase(std::uint64_t number) {
    for (auto& level : levels_) {
      level[number / 64] &= ~(std::uint64_t{1} << number % 64);
      number /= 64;
      if (level[number] != 0) {
        return;  // the word still has others, so the levels above stay
      }
    }
  }

  /// The least from `number` on.
  std::optional<std::uint64_t> next(std::uint64_t number) const {
    for (std::size_t height = 0; height < levels_.size(); ++height) {
      const std::uint64_t word = number / 64;
      if (word >= levels_[height].size()) {
        return std::nullopt;
      }
      const std::uint64_t rest = levels_[height][word] >> number % 64;
      if (rest != 0) {
        return lowest_below(height, number + static_cast<std::uint64_t>(std::countr_zero(rest)));
      }
      number = word + 1;
    }
    return std::nullopt;
  }

 private:
  std::uint64_t lowest_below(std::size_t height, std::uint64_t number) const {
    while (height > 0) {
      --height;
      number = number * 64 + static_cast<std::uint64_t>(std::countr_zero(levels_[height][number]));
    }
    return number;
  }

  std::vector<std::vector<std::uint64_t>> levels_;
};

/// Bins by the room that they have left; of those with equal room the latest is taken first.
class OpenBins {
 public:
  explicit OpenBins(std::uint32_t capacity)
      : capacity_(capacity), rooms_(std::uint64_t{capacity} + 1) {}

  /// The bin that the item goes to.
  std::uint32_t place(std::uint32_t size) {
    const std::optional<std::uint64_t> room = rooms_.next(size);
    if (!room) {
      below_.push_back(none);
      put(static_cast<std::uint32_t>(below_.size() - 1), capacity_ - size);
      return static_cast<std::uint32_t>(below_.size() - 1);
    }
    std::uint32_t& top = tops_[index_of(static_cast<std::uint32_t>(*room))];
    const std::uint32_t bin = top;
    top = below_[bin];
    if (top == none) {
      rooms_.erase(*room);
    }
    put(bin, static_cast<std::uint32_t>(*room) - size);
    return bin;
  }

  std::size_t bins() const { return below_.size(); }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  void put(std::uint32_t bin, std::uint32_t room) {
    if (room == 0) {
      return;  // no item is so small
    }
    std::uint32_t& top = tops_[index_of(room)];
    if (top == none) {
      rooms_.insert(room);
    }
    below_[bin] = top;
    top = bin;
  }

  std::size_t index_of(std::uint32_t room) {
    if (room >= tops_.size()) {
      tops_.resize(std::size_t{room} + 1, none);
    }
    return room;
  }

  std::uint32_t capacity_;
  NumberSet rooms_;
  std::vector<std::uint32_t> tops_;   // by room: the bin on top of its stack
  std::vector<std::uint32_t> below_;  // by bin: the one below it
};

}  // namespace

BinPacking best_fit(std::span<const std::uint32_t> sizes, std::uint32_t capacity) {
  BinPacking packing;
  for (std::uint32_t item = 0; item < sizes.size(); ++item) {
    if (sizes[item] > 0) {
      packing.items.push_back(item);
    }
  }
  std::ranges::stable_sort(packing.items, std::greater<>(),
                           [&](std::uint32_t item) { return sizes[item]; });
  OpenBins open(capacity);
  std::vector<std::uint32_t> bin_of(packing.items.size());
  std::vector<std::uint32_t> count;  // items by bin
  for (std::uint32_t place = 0; place < packing.items.size(); ++place) {
    const std::uint32_t size = sizes[packing.items[place]];
    if (place == 0 || size != sizes[packing.items[place - 1]]) {
      packing.class_begins.push_back(place);
    }
    bin_of[place] = open.place(size);
    count.resize(open.bins());
    ++count[bin_of[place]];
  }
  packing.class_begins.push_back(static_cast<std::uint32_t>(packing.items.size()));
  packing.bin_begins.assign(count.size() + 1, 0);
  std::partial_sum(count.begin(), count.end(), packing.bin_begins.begin() + 1);
  // Items go to their bins from the back, so that the first in a bin is the largest.
  packing.slots.resize(packing.items.size());
  std::vector<std::uint32_t> free(packing.bin_begins.begin() + 1, packing.bin_begins.end());
  for (std::size_t place = packing.items.size(); place-- > 0;) {
    packing.slots[--free[bin_of[place]]] = static_cast<std::uint32_t>(place);
  }
  packing.items.shrink_to_fit();
  packing.class_begins.shrink_to_fit();
  return packing;
}

}  // namespace sprat::io
