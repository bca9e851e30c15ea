#include "mp/context/key_border.hpp"

#include <algorithm>
#include <cstddef>

namespace sprat::mp::context {

KeyBorder::KeyBorder(const layers::AttentionShape& shape, int chunk_length)
    : sequences_(shape.sequences), width_(shape.heads * shape.head_width) {
  for (std::vector<float>& block : blocks_) {
    block.resize(bytes(shape, chunk_length) / sizeof(float) / blocks_.size());
  }
}

void KeyBorder::take(const KeySpans& spans, const Span& chunk, const layers::AttentionKeys& keys) {
  if (next_is_begun_) {
    current_ = 1 - current_;
    next_is_begun_ = false;
  }
  copy(spans.from, chunk, keys, blocks_[current_]);
  // The rest waits in the other block: queries have yet to look at this one.
  copy(spans.leftover, chunk, keys, blocks_[1 - current_]);
  next_is_begun_ = spans.leftover.count() > 0;
}

layers::AttentionKeys KeyBorder::keys() const noexcept {
  if (blocks_[current_].empty()) {
    return {};
  }
  const float* block = blocks_[current_].data();
  return {.key = block,
          .value = block + width_,
          .stride = 2 * width_,
          .sequence_rows = layers::attention_keys};
}

std::size_t KeyBorder::bytes(const layers::AttentionShape& shape, int chunk_length) noexcept {
  if (chunk_length % layers::attention_keys == 0) {
    return 0;
  }
  const std::size_t block = std::size_t(shape.sequences) * layers::attention_keys;
  return 2 * block * 2 * std::size_t(shape.heads) * std::size_t(shape.head_width) * sizeof(float);
}

void KeyBorder::copy(const Span& span, const Span& chunk, const layers::AttentionKeys& keys,
                     std::vector<float>& block) const {
  for (int sequence = 0; sequence < sequences_; ++sequence) {
    for (int position = span.first; position < span.end; ++position) {
      const std::ptrdiff_t from =
          (std::ptrdiff_t{sequence} * keys.sequence_rows + position - chunk.first) * keys.stride;
      const std::ptrdiff_t row =
          std::ptrdiff_t{sequence} * layers::attention_keys + position % layers::attention_keys;
      float* to = block.data() + row * 2 * width_;
      std::copy_n(keys.key + from, width_, to);
      std::copy_n(keys.value + from, width_, to + width_);
    }
  }
}

}  // namespace sprat::mp::context
