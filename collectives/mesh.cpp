// A mesh: one split of the world for each axis.
#include "sprat/mesh.hpp"

#include <optional>
#include <utility>

#include "comm/base/check.hpp"

namespace sprat {
namespace {

std::string describe(const std::vector<MeshAxis>& axes) {
  std::string out;
  for (const MeshAxis& axis : axes) {
    out += text(out.empty() ? "" : " x ", "\"", axis.name, "\" ", axis.size);
  }
  return out.empty() ? "none" : out;
}

void check(int ranks, const std::vector<MeshAxis>& axes) {
  std::int64_t product = 1;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    require(axes[i].size >= 1, "mesh axis \"", axes[i].name, "\" has size ", axes[i].size,
            "; sizes are 1 or more");
    for (std::size_t j = 0; j < i; ++j) {
      require(axes[i].name != axes[j].name, "two mesh axes are named \"", axes[i].name, "\"");
    }
    product *= axes[i].size;
    // Looked at for each factor, so that the product cannot overflow.
    require(product <= ranks, "mesh axes ", describe(axes), " need more than the ", ranks,
            " ranks of the world");
  }
  require(product == ranks, "mesh axes ", describe(axes), " make ", product,
          " ranks; the world has ", ranks);
}

}  // namespace

struct Mesh::Impl {
  Communicator& world;
  std::vector<MeshAxis> axes;
  std::vector<int> coordinates;
  std::vector<Communicator> groups;

  std::size_t index(std::string_view name) const {
    for (std::size_t i = 0; i < axes.size(); ++i) {
      if (axes[i].name == name) {
        return i;
      }
    }
    throw Error(ErrorCode::invalid_argument,
                text("the mesh has no axis \"", name, "\"; it has ", describe(axes)));
  }
};

Mesh::Mesh(Communicator& world, std::vector<MeshAxis> axes) {
  check(world.size(), axes);
  impl_ = std::make_unique<Impl>(Impl{world, std::move(axes), {}, {}});
  const std::size_t count = impl_->axes.size();
  impl_->coordinates.resize(count);
  int stride = 1;
  std::vector<int> strides(count);
  // The last axis is the innermost: neighbours on it have neighbouring ranks, which mostly share a
  // host.
  for (std::size_t i = count; i-- > 0;) {
    strides[i] = stride;
    impl_->coordinates[i] = world.rank() / stride % impl_->axes[i].size;
    stride *= impl_->axes[i].size;
  }
  for (std::size_t i = 0; i < count; ++i) {
    // A group's color is the rank of its member at coordinate 0: ranks of a group differ along this
    // axis only, so all of them compute the same.
    const int color = world.rank() - impl_->coordinates[i] * strides[i];
    std::optional<Communicator> group =
        world.split(color, impl_->coordinates[i], impl_->axes[i].name, Failing::together);
    impl_->groups.push_back(std::move(*group));
  }
}

Mesh::Mesh(Mesh&&) noexcept = default;
Mesh::~Mesh() = default;

Communicator& Mesh::operator[](std::string_view axis) { return impl_->groups[impl_->index(axis)]; }

int Mesh::coordinate(std::string_view axis) const { return impl_->coordinates[impl_->index(axis)]; }

const std::vector<MeshAxis>& Mesh::axes() const noexcept { return impl_->axes; }

Communicator& Mesh::world() noexcept { return impl_->world; }

}  // namespace sprat
