// Which keys a forward may take at once while chunks of them come in ascending order: blocks of
// keys stay whole, so that bits are those of a sequence that is not cut.
#pragma once

namespace sprat::mp::context {

/// Positions in a sequence.
struct Span {
  int first = 0, end = 0;
  int count() const { return end > first ? end - first : 0; }
  friend bool operator==(const Span&, const Span&) = default;
};

/// A chunk of keys, cut at the ends of blocks. A block in which another chunk ends is put together
/// apart, in the border; `border` is what is there of it, earlier chunks' keys first.
struct KeySpans {
  Span border;    ///< Empty: the chunk begins with a block.
  Span from;      ///< What the border takes of this chunk, behind what it has.
  Span direct;    ///< What is read where the chunk lies.
  Span leftover;  ///< Of direct: in a block that the chunk does not end, so the next border's.
  int block = 1;
  /// For queries that are all behind the chunk.
  Span whole_border() const;
  Span whole_direct() const { return {direct.first, leftover.first}; }
};
KeySpans key_spans(const Span& chunk, int block);

}  // namespace sprat::mp::context
