// What a call of the c10d backend costs beside the same call of the C API: two ranks, in turns.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <vector>

#include "plugins/torch/native/backend.hpp"
#include "sprat/sprat.h"

namespace {

using Clock = std::chrono::steady_clock;
using sprat::pytorch::Backend;

constexpr int ranks = 2, samples = 61, warmups = 10, calls = 200;

void check(sprat_status status) {
  if (status != SPRAT_ok) {
    std::fprintf(stderr, "%s\n", sprat_last_error());
    std::exit(1);
  }
}

template <class Call>
double microseconds_each(const Call& call) {
  const auto begin = Clock::now();
  for (int i = 0; i < calls; ++i) {
    call();
  }
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / calls;
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

/// Prints the medians of both and of their paired differences.
template <class Plain, class Wrapped>
void compare(const char* name, int rank, const Plain& plain, const Wrapped& wrapped) {
  std::vector<double> plains, wrappeds, differences;
  for (int sample = -warmups; sample < samples; ++sample) {
    const double one = microseconds_each(plain);
    const double other = microseconds_each(wrapped);
    if (sample >= 0) {
      plains.push_back(one);
      wrappeds.push_back(other);
      differences.push_back(other - one);
    }
  }
  if (rank == 0) {
    std::printf("%-16s %8.2f %8.2f %8.2f\n", name, median(plains), median(wrappeds),
                median(differences));
  }
}

int run(int rank, const std::string& folder) {
  const std::string meeting = "file://" + folder + "/meeting";
  sprat_config config{};
  config.size = ranks;
  config.rank = rank;
  config.rendezvous = meeting.c_str();
  sprat_comm* comm = nullptr;
  check(sprat_comm_join(&config, &comm));
  auto backend =
      Backend::join({.store = c10::make_intrusive<c10d::FileStore>(folder + "/store", ranks),
                     .rank = rank,
                     .size = ranks,
                     .timeout = std::chrono::seconds(60),
                     .group = "overhead"});
  if (rank == 0) {
    std::printf("%-16s %8s %8s %8s   us a call, medians of %d samples of %d calls\n", "", "C API",
                "backend", "more", samples, calls);
  }
  for (const std::int64_t count : {2, 1024}) {
    std::vector<at::Tensor> data = {at::zeros({count})};
    auto* values = data[0].data_ptr<float>();
    c10d::AllreduceOptions now;
    now.asyncOp = false;
    const std::string name = "all_reduce " + std::to_string(4 * count) + " B";
    compare(
        name.c_str(), rank,
        [&] {
          check(sprat_all_reduce(comm, values, values, static_cast<std::size_t>(count), SPRAT_f32,
                                 SPRAT_sum, nullptr, nullptr));
        },
        [&] { backend->allreduce(data, now); });
    compare((name + " async").c_str(), rank,
            [&] {
              sprat_work* work = nullptr;
              check(sprat_all_reduce(comm, values, values, static_cast<std::size_t>(count),
                                     SPRAT_f32, SPRAT_sum, nullptr, &work));
              check(sprat_work_wait(work));
              check(sprat_work_free(work));
            },
            [&] { backend->allreduce(data, {})->wait(); });
  }
  c10d::BarrierOptions now;
  now.asyncOp = false;
  compare(
      "barrier", rank, [&] { check(sprat_barrier(comm, nullptr)); },
      [&] { backend->barrier(now); });
  backend->shutdown();
  check(sprat_comm_free(comm));
  return 0;
}

}  // namespace

int main() {
  std::string folder = "/tmp/sprat-overhead-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) {
    std::perror(folder.c_str());
    return 1;
  }
  const pid_t other = fork();
  const int status = run(other == 0 ? 1 : 0, folder);
  if (other == 0) {
    _exit(status);
  }
  int ended = 0;
  waitpid(other, &ended, 0);
  std::remove((folder + "/store").c_str());
  std::remove((folder + "/meeting").c_str());
  rmdir(folder.c_str());
  return ended;
}
