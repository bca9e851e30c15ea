#include "mp/context/key_spans.hpp"

#include <algorithm>

namespace sprat::mp::context {

KeySpans key_spans(const Span& chunk, int block) {
  KeySpans spans;
  const int block_first = chunk.first / block * block;
  int direct = chunk.first;
  if (block_first < chunk.first) {
    direct = std::min(block_first + block, chunk.end);
    spans.border = {block_first, direct};
    spans.from = {chunk.first, direct};
  }
  spans.direct = {direct, chunk.end};
  // At or behind `direct`, unless the border's block goes on: then nothing is direct.
  spans.leftover = {std::max(chunk.end / block * block, direct), chunk.end};
  spans.block = block;
  return spans;
}

Span KeySpans::whole_border() const { return border.count() == block ? border : Span{}; }

}  // namespace sprat::mp::context
