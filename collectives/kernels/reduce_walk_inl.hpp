// Evaluates the canonical tree over terms, block by block in the first-level cache.
// Compiled once per instruction set.
#if defined(SPRAT_COLLECTIVES_REDUCE_WALK_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef SPRAT_COLLECTIVES_REDUCE_WALK_INL_HPP
#undef SPRAT_COLLECTIVES_REDUCE_WALK_INL_HPP
#else
#define SPRAT_COLLECTIVES_REDUCE_WALK_INL_HPP
#endif

#include <cstddef>
#include <type_traits>

#include "collectives/kernels/reduce_kernels.hpp"
#include "collectives/kernels/reduce_lanes_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace sprat::collectives {
namespace HWY_NAMESPACE {

/// Lanes [i, i + Lanes(d)) of the canonical tree over Count sources.
template <class Format, class Op, int Count, class D>
HWY_INLINE hn::Vec<D> tree(D d, const typename Format::Element* const* from, std::size_t i) {
  if constexpr (Count == 1) {
    return Format::load(d, from[0] + i);
  } else {
    constexpr int left = Count == 3 ? 2 : Count / 2;  // Count is 3 or a power of two.
    return Op::apply(d, tree<Format, Op, left>(d, from, i),
                     tree<Format, Op, Count - left>(d, from + left, i));
  }
}

/// to[i] <- sink of the canonical tree over Count sources' elements i, in one pass.
/// Reads all sources of an element before it writes it, so `to` may be one of them.
template <class Format, class Op, int Count, class Sink>
HWY_NOINLINE void sweep(const typename Format::Element* const* sources, const Sink sink,
                        typename Sink::Element* to, std::size_t count) {
  const typename Format::Element* from[Count];
  for (int k = 0; k < Count; ++k) {
    from[k] = sources[k];
  }
  const hn::ScalableTag<typename Format::Lane> all;
  const hn::CappedTag<typename Format::Lane, 1> one;
  const std::size_t lanes = hn::Lanes(all);
  constexpr bool in_pairs = HWY_TARGET != HWY_SCALAR && std::is_same_v<Format, Brain16> &&
                            std::is_same_v<Sink, Scaled<Brain16>>;
  std::size_t i = 0;
  const auto is_aligned = [&] {
    const std::size_t unit = (in_pairs ? 2 : 1) * lanes * sizeof *to;
    return reinterpret_cast<std::uintptr_t>(to + i) % unit == 0;
  };
  for (; i < count && !is_aligned(); ++i) {
    sink.store(one, tree<Format, Op, Count>(one, from, i), to + i);
  }
  if constexpr (in_pairs) {
    for (; i + 2 * lanes <= count; i += 2 * lanes) {
      sink.store_pair(all, tree<typename Format::Even, Op, Count>(all, from, i),
                      tree<typename Format::Odd, Op, Count>(all, from, i), to + i);
    }
  }
  for (; i + lanes <= count; i += lanes) {
    sink.store(all, tree<Format, Op, Count>(all, from, i), to + i);
  }
  for (; i < count; ++i) {
    sink.store(one, tree<Format, Op, Count>(one, from, i), to + i);
  }
}

/// One walk over the tree of terms, for the elements [offset, offset + count) of each.
template <class Format, class Op>
class Walk {
 public:
  using Element = typename Format::Element;
  using Lane = typename Format::Lane;
  /// Elements of a block: a page of lanes.
  static constexpr std::size_t block_count = 4096 / sizeof(Lane);

  Walk(const CheckedReduction& reduction, std::size_t offset, std::size_t count)
      : next_(reduction.terms.data()),
        last_(next_ + reduction.terms.size()),
        offset_(offset),
        count_(count),
        factor_(static_cast<Lane>(reduction.arithmetic.factor)) {}

  /// True if `node` is evaluated in one pass without blocks.
  bool is_single_pass(RankRange node) const { return next_->covers == node || fusible(node) > 0; }

  /// to <- sink of the tree's node, whose first term is the next one. At most block_count elements,
  /// unless is_single_pass(node).
  template <class Sink>
  void evaluate(RankRange node, const Sink& sink, typename Sink::Element* to) {
    if (next_->covers == node) {
      const Term& term = *next_++;
      if (holds_lanes(term)) {  // One term: the op does not matter.
        const Lane* const from[] = {at<Lane>(term)};
        sweep<Native<Lane>, Sum, 1>(from, sink, to, count_);
      } else {
        const Element* const from[] = {at<Element>(term)};
        sweep<Format, Sum, 1>(from, sink, to, count_);
      }
      return;
    }
    const int terms = fusible(node);
    if (terms == 2) {
      return fuse<2>(sink, to);
    }
    if constexpr (fuses_many) {
      if (terms == 3) {
        return fuse<3>(sink, to);
      }
      if (terms == 4) {
        return fuse<4>(sink, to);
      }
      if (terms == 8) {
        return fuse<8>(sink, to);
      }
    }
    combine(node, sink, to);
  }

 private:
  /// Whether contributions are multiplied as they enter the tree.
  bool multiplies() const { return std::is_same_v<Op, Sum> && factor_ != Lane{1}; }

  /// Sums are what training does; the others make do with pairs, for a third of the code.
  static constexpr bool fuses_many = std::is_same_v<Op, Sum>;

  static bool holds_lanes(const Term& term) {
    return std::is_same_v<Element, Lane> || term.partial;
  }
  template <class T>
  const T* at(const Term& term) const {
    return static_cast<const T*>(term.data) + offset_;
  }

  /// How many terms make up the node, if they are each rank's own contribution and of a number that
  /// a sweep exists for; else 0.
  int fusible(RankRange node) const {
    const int size = node.size();
    const bool has_sweep = size == 2 || (fuses_many && (size == 3 || size == 4 || size == 8));
    if (!has_sweep || multiplies() || last_ - next_ < size ||
        next_[size - 1].covers.last != node.last) {
      return 0;
    }
    if constexpr (!std::is_same_v<Element, Lane>) {
      for (int k = 0; k < size; ++k) {
        if (next_[k].partial) {
          return 0;
        }
      }
    }
    return size;
  }

  template <int Count, class Sink>
  void fuse(const Sink& sink, typename Sink::Element* to) {
    const Element* from[Count];
    for (int k = 0; k < Count; ++k) {
      from[k] = at<Element>(next_[k]);
    }
    next_ += Count;
    sweep<Format, Op, Count>(from, sink, to, count_);
  }

  template <class Sink>
  HWY_NOINLINE void combine(RankRange node, const Sink& sink, typename Sink::Element* to) {
    if (next_ == last_ || node.size() < 2) {
      refuse_terms(node);
    }
    const int middle = split_point(node, next_->covers);
    alignas(64) Lane left_block[block_count];
    alignas(64) Lane right_block[block_count];
    const Lane* const left = lanes_of({node.first, middle}, left_block);
    const Lane* const right = lanes_of({middle, node.last}, right_block);
    const Lane* const from[] = {left, right};
    sweep<Native<Lane>, Op, 2>(from, sink, to, count_);
  }

  /// The node's lanes: a term's own memory if it holds them, else `block`.
  const Lane* lanes_of(RankRange node, Lane* block) {
    if (next_ == last_) {
      refuse_terms(node);
    }
    if constexpr (std::is_floating_point_v<Lane>) {
      if (multiplies() && node.size() == 1) {
        evaluate(node, Multiplied<Lane>{factor_}, block);
        return block;
      }
    }
    if (next_->covers == node && holds_lanes(*next_)) {
      return at<Lane>(*next_++);
    }
    evaluate(node, Exact<Lane>(), block);
    return block;
  }

  const Term* next_;
  const Term* last_;
  std::size_t offset_, count_;
  Lane factor_;
};

/// Everything the reduction asks for, through one sink.
template <class Format, class Op, class Sink>
void walk_all(const CheckedReduction& reduction, const Sink& sink) {
  using Blocks = Walk<Format, Op>;
  auto* const to = static_cast<typename Sink::Element*>(reduction.to);
  Blocks whole(reduction, 0, reduction.count);
  if (whole.is_single_pass(reduction.covers)) {
    return whole.evaluate(reduction.covers, sink, to);
  }
  for (std::size_t i = 0; i < reduction.count; i += Blocks::block_count) {
    const std::size_t left = reduction.count - i;
    Blocks block(reduction, i, left < Blocks::block_count ? left : Blocks::block_count);
    block.evaluate(reduction.covers, sink, to + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace sprat::collectives
HWY_AFTER_NAMESPACE();

#endif
