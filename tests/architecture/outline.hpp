// What a source file defines: its types with their data members, and its functions with their
// length. Reads our own formatting, not all of C++.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tests/architecture/source_tree.hpp"

namespace sprat::architecture {

struct DefinedType {
  std::string space;        ///< "sprat::comm".
  std::string name;         ///< "A::B" of one that is defined outside of A, else without it.
  std::size_t line = 0;     ///< From 1.
  std::size_t members = 0;  ///< Data members, those of types defined inside it counted.
};

/// Of a namespace: those of a type are told apart by its name.
struct DefinedEnum {
  std::string space, name;
  std::size_t line = 0;
};

struct DefinedFunction {
  std::string head;  ///< Up to its parameters.
  std::size_t line = 0, lines = 0;
};

struct Outline {
  std::vector<DefinedType> types;  ///< Nested ones too.
  std::vector<DefinedEnum> enums;
  std::vector<DefinedFunction> functions;
};

Outline outline_of(const SourceFile& file);

/// The namespace that each line lies in: "sprat::comm::", or "sprat::comm::(anonymous)::".
std::vector<std::string> spaces_of(const SourceFile& file);

/// Lines that hold a comment, and lines that are not blank.
struct CommentShare {
  std::size_t comments = 0, lines = 0;
};
CommentShare comments_of(const SourceFile& file);

}  // namespace sprat::architecture
