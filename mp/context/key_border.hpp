// The block of keys that chunks cut, put together while they come one after another.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "mp/context/key_spans.hpp"
#include "sprat/layers.hpp"

namespace sprat::mp::context {

/// Of all heads. Holds two blocks: one that is complete, and the first keys of the next.
class KeyBorder {
 public:
  /// Without memory for chunks that blocks divide.
  KeyBorder(const layers::AttentionShape& shape, int chunk_length);

  /// The next forward begins at position 0, of so many sequences: at most those of the shape.
  void restart(int sequences) noexcept {
    sequences_ = sequences;
    next_is_begun_ = false;
  }
  /// Copies what the border needs of the next chunk, which lies at `keys`. What was complete before
  /// is gone.
  void take(const KeySpans& spans, const Span& chunk, const layers::AttentionKeys& keys);
  /// Where the border's first key and all behind it lie.
  layers::AttentionKeys keys() const noexcept;
  /// What one holds.
  static std::size_t bytes(const layers::AttentionShape& shape, int chunk_length) noexcept;

 private:
  void copy(const Span& span, const Span& chunk, const layers::AttentionKeys& keys,
            std::vector<float>& block) const;

  int sequences_, width_;
  std::array<std::vector<float>, 2> blocks_;
  std::size_t current_ = 0;
  bool next_is_begun_ = false;  ///< The other block has first keys.
};

}  // namespace sprat::mp::context
