// Values as symbols: what a piece of memory holds, said as an expression over ranks' inputs.
//
// A plan does the same to each element of a range, so a range is one segment, however long it is:
// an expression, and from which position on. Expressions are interned (hash consing, Ershov 1958),
// so that comparing two of them, trees of thousands of ranks, is comparing two numbers.
#include "collectives/verify/symbols.hpp"

#include <algorithm>

#include "comm/base/check.hpp"

namespace sprat::collectives {

namespace {

/// Appends, joining what continues the last segment: so equal contents have equal segments, and
/// there are no more of them than pieces that differ.
void append(Value& value, const Segment& segment) {
  if (segment.count == 0) {
    return;
  }
  if (!value.empty()) {
    Segment& last = value.back();
    const bool continues =
        last.expression == segment.expression &&
        (segment.expression == undefined || last.origin + last.count == segment.origin);
    if (continues) {
      last.count += segment.count;
      return;
    }
  }
  value.push_back(segment);
}

Segment part_of(const Segment& segment, std::size_t skip, std::size_t count) {
  return {.count = count, .expression = segment.expression, .origin = segment.origin + skip};
}

}  // namespace

std::size_t Symbols::NodeHash::operator()(const Node& node) const {
  // Multiplied, low bits reach the high ones; shifted back, these reach the low ones that a table
  // looks at.
  constexpr std::uint64_t odd = 0x9e3779b97f4a7c15u;  // 2^64 over the golden ratio
  std::uint64_t hash = static_cast<std::uint64_t>(node.kind);
  hash = (hash ^ static_cast<std::uint64_t>(node.a)) * odd;
  hash = (hash ^ (hash >> 32) ^ static_cast<std::uint64_t>(node.b)) * odd;
  return hash ^ (hash >> 29);
}

Expression Symbols::intern(const Node& node) {
  const auto [entry, is_new] = numbers_.try_emplace(node, static_cast<Expression>(nodes_.size()));
  if (is_new) {
    nodes_.push_back(node);
  }
  return entry->second;
}

Expression Symbols::contribution(int rank, int block) {
  return intern({Kind::contribution, rank, block});
}

// What nobody has written makes all that is made of it undefined.
Expression Symbols::combined(Expression left, Expression right) {
  if (left == undefined || right == undefined) {
    return undefined;
  }
  return intern({Kind::combined, left, right});
}

Expression Symbols::finished(Expression sum) {
  return sum == undefined ? undefined : intern({Kind::finished, sum, 0});
}

Expression Symbols::shifted(Expression of, std::ptrdiff_t distance) {
  if (of == undefined || distance == 0) {
    return of;
  }
  return intern({Kind::shifted, of, distance});
}

// With a stack of its own: a chain over many ranks is as deep as it is long.
std::vector<Expression> Symbols::terms(Expression expression) const {
  std::vector<Expression> open = {expression}, found;
  while (!open.empty()) {
    const Expression one = open.back();
    open.pop_back();
    if (one == undefined || nodes_[one].kind != Kind::combined) {
      found.push_back(one);
      continue;
    }
    open.push_back(static_cast<Expression>(nodes_[one].a));
    open.push_back(static_cast<Expression>(nodes_[one].b));
  }
  std::ranges::sort(found);
  return found;
}

Expression Symbols::unordered(Expression expression) {
  if (expression == undefined) {
    return undefined;
  }
  if (nodes_[expression].kind == Kind::finished) {
    return finished(unordered(static_cast<Expression>(nodes_[expression].a)));
  }
  // A chain of the sorted terms stands for all orders of them.
  const std::vector<Expression> found = terms(expression);
  Expression sum = found.front();
  for (std::size_t i = 1; i < found.size(); ++i) {
    sum = combined(sum, found[i]);
  }
  return sum;
}

std::string Symbols::text(Expression expression) const {
  if (expression == undefined) {
    return "nothing";
  }
  const Node& node = nodes_[expression];
  const auto child = [this](std::int64_t number) { return text(static_cast<Expression>(number)); };
  switch (node.kind) {
    case Kind::contribution:
      return fmt::format("{}[{}]", node.a, node.b);
    case Kind::combined:
      return fmt::format("({}+{})", child(node.a), child(node.b));
    case Kind::finished:
      return fmt::format("result{}", child(node.a));
    case Kind::shifted:
      return fmt::format("{}@{:+}", child(node.a), node.b);
  }
  return "?";
}

// Cuts both sides wherever either begins a new segment. If they stand at different positions of
// their blocks, the right one is said in the left one's, so that a wrong offset shows in the
// result.
Value combined(Symbols& symbols, const Value& left, const Value& right) {
  Value out;
  std::size_t l = 0, r = 0, left_skip = 0, right_skip = 0;
  while (l < left.size() && r < right.size()) {
    const std::size_t count = std::min(left[l].count - left_skip, right[r].count - right_skip);
    const Segment a = part_of(left[l], left_skip, count), b = part_of(right[r], right_skip, count);
    const auto distance = static_cast<std::ptrdiff_t>(b.origin - a.origin);
    const Expression both = symbols.combined(a.expression, symbols.shifted(b.expression, distance));
    append(out, {.count = count, .expression = both, .origin = a.origin});
    left_skip += count;
    right_skip += count;
    if (left_skip == left[l].count) {
      ++l, left_skip = 0;
    }
    if (right_skip == right[r].count) {
      ++r, right_skip = 0;
    }
  }
  return out;
}

Value finished(Symbols& symbols, const Value& value) {
  Value out = value;
  for (Segment& segment : out) {
    segment.expression = symbols.finished(segment.expression);
  }
  return out;
}

Value SymbolMemory::read(std::size_t offset, std::size_t count) const {
  Value out;
  std::size_t begin = 0;
  const std::size_t end = offset + count;
  for (const Segment& segment : segments_) {
    const std::size_t first = std::max(begin, offset), last = std::min(begin + segment.count, end);
    if (first < last) {
      append(out, part_of(segment, first - begin, last - first));
    }
    begin += segment.count;
    if (begin >= end) {
      break;
    }
  }
  return out;
}

// Made anew: what lies before, the value, what lies behind.
void SymbolMemory::write(std::size_t offset, const Value& value) {
  std::size_t count = 0, total = 0;
  for (const Segment& segment : value) {
    count += segment.count;
  }
  for (const Segment& segment : segments_) {
    total += segment.count;
  }
  Value next = read(0, offset);
  for (const Segment& segment : value) {
    append(next, segment);
  }
  for (const Segment& segment : read(offset + count, total - offset - count)) {
    append(next, segment);
  }
  segments_ = std::move(next);
}

}  // namespace sprat::collectives
