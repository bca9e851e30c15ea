// Sprat; "malloc" and "huge" are private memory, "shared" is sprat::Memory.
#include <map>

#include "bench/compare/driver.hpp"
#include "sprat/communicator.hpp"

namespace {

using compare::Collective;

class Ours final : public compare::Library {
 public:
  explicit Ours(sprat::Communicator world)
      : Library("sprat", world.rank(), world.size()), world_(std::move(world)) {}

  float* allocate(std::size_t bytes, const std::string& kind) override {
    if (kind != "shared") {
      return Library::allocate(bytes, kind);
    }
    sprat::Memory memory(bytes);
    auto* data = static_cast<float*>(memory.data());
    shared_.emplace(data, std::move(memory));
    return data;
  }
  void release(float* memory, std::size_t bytes, const std::string& kind) override {
    if (shared_.erase(memory) == 0) {
      Library::release(memory, bytes, kind);
    }
  }

  void prepare(const compare::Cell& cell) override {
    counts_.assign(static_cast<std::size_t>(size), cell.block);
  }

  void call(const compare::Cell& cell, int root) override {
    const sprat::Elements in{cell.input, cell.in, sprat::DType::f32};
    const sprat::Elements out{cell.output, cell.out, sprat::DType::f32};
    constexpr auto sum = sprat::ReduceOp::sum;
    const sprat::Options options{.timeout = {}, .blocking = true};
    switch (cell.collective) {
      case Collective::all_reduce:
        world_.all_reduce(in, out, sum, options);
        return;
      case Collective::all_gather:
        world_.all_gather(in, out, options);
        return;
      case Collective::reduce_scatter:
        world_.reduce_scatter(in, out, sum, options);
        return;
      case Collective::broadcast:
        world_.broadcast(out, root, options);
        return;
      case Collective::all_to_all:
        world_.all_to_all(in, out, options);
        return;
      case Collective::all_to_allv:
        world_.all_to_allv(in, out, counts_, counts_, options);
        return;
      case Collective::send_recv:
        send_recv(in, out);
        return;
      case Collective::barrier:
        world_.barrier();
        return;
    }
  }
  void barrier() override { world_.barrier(); }

 private:
  void send_recv(sprat::ConstElements in, sprat::Elements out) {
    sprat::Work recv = world_.recv(out, previous());
    world_.send(in, next()).wait();
    recv.wait();
  }

  sprat::Communicator world_;
  std::vector<std::size_t> counts_;
  std::map<float*, sprat::Memory> shared_;
};

}  // namespace

int main(int argc, char** argv) {
  try {
    Ours library(sprat::Communicator::join());
    return compare::serve(library, argc > 1 ? argv[1] : nullptr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "sprat: %s\n", error.what());
    return 1;
  }
}
