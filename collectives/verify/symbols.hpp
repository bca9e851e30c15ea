// Values as symbols: what a piece of memory holds, said as an expression over ranks' inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace sprat::collectives {

/// An expression in one element position e, interned: equal expressions have equal numbers.
using Expression = std::int32_t;
inline constexpr Expression undefined = -1;  ///< What nobody has written.

/// The expressions of one verification.
class Symbols {
 public:
  /// Element e of a block of a rank's input.
  Expression contribution(int rank, int block);
  /// The reduction's operator applied to both at e.
  Expression combined(Expression left, Expression right);
  /// The operator finished and rounded: what a reduction writes to output.
  Expression finished(Expression sum);
  /// `of` at e + distance.
  Expression shifted(Expression of, std::ptrdiff_t distance);
  /// What an expression joins by combined(), ascending; itself if it is no such thing.
  std::vector<Expression> terms(Expression expression) const;
  /// Equal for expressions that differ in the order of what they combine, and for no others.
  Expression unordered(Expression expression);
  /// For reports: "(0+1)+2" are the ranks in the tree's shape.
  std::string text(Expression expression) const;

 private:
  enum class Kind : std::uint8_t { contribution, combined, finished, shifted };
  struct Node {
    Kind kind;
    std::int64_t a, b;
    bool operator==(const Node&) const = default;
  };
  struct NodeHash {
    std::size_t operator()(const Node& node) const;
  };
  Expression intern(const Node& node);

  std::unordered_map<Node, Expression, NodeHash> numbers_;
  std::vector<Node> nodes_;
};

/// `count` elements: the i-th is `expression` at position origin + i.
struct Segment {
  std::size_t count = 0;
  Expression expression = undefined;
  std::size_t origin = 0;
};
using Value = std::vector<Segment>;

/// combined() element by element. Both have the same number of elements.
Value combined(Symbols& symbols, const Value& left, const Value& right);
Value finished(Symbols& symbols, const Value& value);

/// An array of elements that remembers what was written where.
class SymbolMemory {
 public:
  SymbolMemory() = default;
  explicit SymbolMemory(Value initial) : segments_(std::move(initial)) {}
  /// `count` elements that nobody has written.
  static SymbolMemory unwritten(std::size_t count) { return SymbolMemory(Value{{.count = count}}); }
  Value read(std::size_t offset, std::size_t count) const;
  void write(std::size_t offset, const Value& value);

 private:
  Value segments_;
};

}  // namespace sprat::collectives
