// Gloo over TCP, as PyTorch uses it: compare_gloo SOCKET RANK RANKS FOLDER ADDRESS; ranks meet in
// the folder.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

#include "bench/compare/driver.hpp"

namespace {

using compare::Collective;

std::shared_ptr<gloo::rendezvous::Context> join(int rank, int ranks, const char* folder,
                                                const char* address) {
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  gloo::rendezvous::FileStore store(folder);
  gloo::transport::tcp::attr where;
  where.hostname = address;
  auto device = gloo::transport::tcp::CreateDevice(where);
  context->connectFullMesh(store, device);
  return context;
}

void sum(void* out, const void* a, const void* b, std::size_t count) {
  gloo::sum<float>(out, a, b, count);
}

class Gloo final : public compare::Library {
 public:
  Gloo(int its_rank, int ranks, const char* folder, const char* address)
      : Library("gloo", its_rank, ranks), context_(join(its_rank, ranks, folder, address)) {}

  /// Its reduce_scatter is an object bound to a buffer, which it overwrites.
  void prepare(const compare::Cell& cell) override {
    scatter_.reset();
    source_.reset();
    target_.reset();
    if (cell.collective == Collective::send_recv) {
      source_ = context_->createUnboundBuffer(cell.input, cell.in * sizeof(float));
      target_ = context_->createUnboundBuffer(cell.output, cell.out * sizeof(float));
    }
    if (cell.collective == Collective::reduce_scatter) {
      scratch_.assign(cell.input, cell.input + cell.in);
      scatter_.emplace(
          context_, std::vector<float*>{scratch_.data()}, static_cast<int>(cell.in),
          std::vector<int>(static_cast<std::size_t>(size), static_cast<int>(cell.block)));
    }
  }

  void call(const compare::Cell& cell, int root) override {
    switch (cell.collective) {
      case Collective::all_reduce: {
        gloo::AllreduceOptions options(context_);
        options.setInput(cell.input, cell.in);
        options.setOutput(cell.output, cell.out);
        options.setReduceFunction(sum);
        gloo::allreduce(options);
        return;
      }
      case Collective::all_gather: {
        gloo::AllgatherOptions options(context_);
        options.setInput(cell.input, cell.in);
        options.setOutput(cell.output, cell.out);
        gloo::allgather(options);
        return;
      }
      case Collective::reduce_scatter:
        std::memcpy(scratch_.data(), cell.input, cell.in * sizeof(float));
        scatter_->run();
        std::memcpy(cell.output, scratch_.data(), cell.out * sizeof(float));
        return;
      case Collective::broadcast: {
        gloo::BroadcastOptions options(context_);
        options.setOutput(cell.output, cell.out);
        options.setRoot(root);
        gloo::broadcast(options);
        return;
      }
      case Collective::all_to_all: {
        gloo::AlltoallOptions options(context_);
        options.setInput(cell.input, cell.in);
        options.setOutput(cell.output, cell.out);
        gloo::alltoall(options);
        return;
      }
      case Collective::all_to_allv: {
        const std::vector<std::int64_t> counts(static_cast<std::size_t>(size),
                                               static_cast<std::int64_t>(cell.block));
        gloo::AlltoallvOptions options(context_);
        options.setInput(cell.input, counts);
        options.setOutput(cell.output, counts);
        gloo::alltoallv(options);
        return;
      }
      case Collective::send_recv:
        send_recv(cell);
        return;
      case Collective::barrier:
        barrier();
        return;
    }
  }
  void barrier() override {
    gloo::BarrierOptions options(context_);
    gloo::barrier(options);
  }

 private:
  void send_recv(const compare::Cell& cell) {
    target_->recv(previous(), 0, 0, cell.out * sizeof(float));
    source_->send(next(), 0, 0, cell.in * sizeof(float));
    source_->waitSend();
    target_->waitRecv();
  }

  std::shared_ptr<gloo::rendezvous::Context> context_;
  std::unique_ptr<gloo::transport::UnboundBuffer> source_, target_;
  std::vector<float> scratch_;
  std::optional<gloo::ReduceScatterHalvingDoubling<float>> scatter_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    return 2;
  }
  Gloo library(std::atoi(argv[2]), std::atoi(argv[3]), argv[4], argv[5]);
  return compare::serve(library, argv[1]);
}
