// Ranks laid out along named axes, each axis a communicator.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sprat/communicator.hpp"

namespace sprat {

/// One axis of a mesh.
struct MeshAxis {
  std::string name;
  int size = 1;
};

/// Axes from outermost to innermost; their sizes multiply to world.size(). Collective to build.
/// mesh["shard"] holds the ranks that differ from this one only along "shard".
class SPRAT_API Mesh {
 public:
  Mesh(Communicator& world, std::vector<MeshAxis> axes);
  Mesh(Mesh&&) noexcept;
  ~Mesh();

  /// Throws Error{invalid_argument} listing the axes if there is none of that name.
  Communicator& operator[](std::string_view axis);
  /// This rank's position along an axis.
  int coordinate(std::string_view axis) const;
  const std::vector<MeshAxis>& axes() const noexcept;
  Communicator& world() noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sprat
