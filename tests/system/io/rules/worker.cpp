// A loop of training that sleeps instead of computing, and reports each second:
//   rules_worker OPTIONS SECONDS REPORT [--compute MS] [--decode MS] [--outlier EVERY,MS]
// OPTIONS is the loader's JSON. Prints the samples and their bytes.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "sprat/data.hpp"
#include "sprat/error.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;

struct Work {
  double compute_ms = 0, decode_ms = 0, outlier_ms = 0;
  int outlier_every = 0;
};

Work parse_work(int argc, char** argv) {
  Work work;
  for (int i = 4; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--compute") {
      work.compute_ms = std::atof(argv[i + 1]);
    } else if (name == "--decode") {
      work.decode_ms = std::atof(argv[i + 1]);
    } else if (name == "--outlier") {
      char* rest = nullptr;
      work.outlier_every = static_cast<int>(std::strtol(argv[i + 1], &rest, 10));
      work.outlier_ms = std::atof(rest + 1);
    }
  }
  return work;
}

void burn(double ms) {
  const auto end = Clock::now() + Milliseconds(ms);
  while (Clock::now() < end) {
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Work work = parse_work(argc, argv);
    sprat::LoaderOptions options = sprat::parse_loader_options(argv[1]);
    if (work.decode_ms > 0) {
      options.decode = {
          {.name = "burning", .run = [&](sprat::DecodedRecord&) { burn(work.decode_ms); }}};
    }
    sprat::Loader loader(options);
    std::ofstream reports(argv[3]);
    const auto begin = Clock::now(), end = begin + std::chrono::seconds(std::atoi(argv[2]));
    auto report_at = begin + std::chrono::seconds(1);
    std::size_t samples = 0, bytes = 0;
    for (int step = 1; Clock::now() < end; ++step) {
      const auto step_begin = Clock::now();
      const std::optional<sprat::DataBatch> batch = loader.next();
      samples += batch->size();
      for (std::size_t i = 0; i < batch->size(); ++i) {
        bytes += batch->field(i, 0).bytes.size();
      }
      const bool slow = work.outlier_every > 0 && step % work.outlier_every == 0;
      std::this_thread::sleep_for(Milliseconds(slow ? work.outlier_ms : work.compute_ms));
      loader.note_step(Clock::now() - step_begin);
      if (Clock::now() >= report_at) {
        report_at += std::chrono::seconds(1);
        reports << loader.report().json << '\n';
      }
    }
    std::printf("%zu %zu %.3f\n", samples, bytes,
                std::chrono::duration<double>(Clock::now() - begin).count());
  } catch (const sprat::Error& error) {
    std::fprintf(stderr, "rules_worker: %s\n", error.what());
    return 1;
  }
  return 0;
}
