// Lanes on a real GPU: every collective's values, and rates beside the limits of plain copies.
//
//   gpu_collectives [--device cuda:0] [--ranks 1,2,4] [--as threads,processes] [--bytes 64M]
//   [--limit SECONDS]
//
// Ranks share the device; as processes each has a context of its own. It needs include/sprat and
// the library alone, no toolkit: g++ -std=c++20 -O2 -I. -Iinclude tests/gpu/collectives.cpp
// -lsprat. Prints one JSON line a case and ends with status 0 if all were right, 77 without a
// device, 3 if a case hung.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "sprat/sprat.hpp"
#include "tests/gpu/collective_cases.hpp"

namespace sprat::gpu {
namespace {

using Bytes = std::vector<std::byte>;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Arguments {
  std::string device = "cuda:0";
  std::vector<int> ranks = {1, 2, 4};
  std::vector<std::string> as = {"threads", "processes"};
  std::size_t bytes = 64 << 20;  ///< Of the operands whose rates are measured.
  int limit = 60;                ///< Seconds that one case may take.
};

/// One line of results, in the order of its fields.
class Line {
 public:
  Line& add(const char* key, const std::string& value) { return put(key, '"' + value + '"'); }
  Line& add(const char* key, bool value) { return put(key, value ? "true" : "false"); }
  Line& add(const char* key, double value) {
    std::ostringstream text;
    text.precision(4);
    text << value;
    return put(key, text.str());
  }
  Line& add(const char* key, std::size_t value) { return put(key, std::to_string(value)); }
  Line& add(const char* key, int value) { return put(key, std::to_string(value)); }
  void print() const {
    std::printf("{%s}\n", text_.c_str());
    std::fflush(stdout);  // a later case may hang
  }

 private:
  Line& put(const char* key, const std::string& value) {
    text_ += (text_.empty() ? "\"" : ", \"") + std::string(key) + "\": " + value;
    return *this;
  }
  std::string text_;
};

/// Ends the process when a case takes too long, and says which: nothing else can end what waits
/// in a driver.
class Watch {
 public:
  explicit Watch(int limit) : limit_(limit), thread_([this] { look(); }) { thread_.detach(); }
  void begin(std::string name) {
    const std::lock_guard lock(mutex_);
    name_ = std::move(name);
    started_ = Clock::now();
  }

 private:
  void look() {
    for (;;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      const std::lock_guard lock(mutex_);
      if (!name_.empty() && seconds_since(started_) > limit_) {
        Line().add("case", name_).add("ok", false).add("hung_after_s", limit_).print();
        _exit(3);
      }
    }
  }
  const int limit_;
  std::mutex mutex_;
  std::string name_;
  Clock::time_point started_;
  std::thread thread_;
};

/// Bytes of device memory, and what is in them.
class DeviceBytes {
 public:
  DeviceBytes(Device& device, std::size_t bytes)
      : device_(device), bytes_(bytes), data_(static_cast<std::byte*>(device.allocate(bytes))) {}
  ~DeviceBytes() { device_.free(data_); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  std::byte* data() const { return data_; }
  void set(DeviceStream stream, const Bytes& values) {
    device_.copy(stream, data_, values.data(), values.size());
    device_.synchronize(stream);
  }
  Bytes get(DeviceStream stream) const {
    Bytes values(bytes_);
    device_.copy(stream, values.data(), data_, bytes_);
    device_.synchronize(stream);
    return values;
  }

 private:
  Device& device_;
  std::size_t bytes_;
  std::byte* data_;
};

/// What plain copies between pinned and device memory reach here, in GB/s.
struct CopyLimits {
  double in = 0;    ///< Device to host.
  double out = 0;   ///< Host to device.
  double both = 0;  ///< Each way, at the same time.
};

CopyLimits measure_copies(Device& device, std::size_t bytes) {
  constexpr int rounds = 8;
  Memory first(bytes), second(bytes);
  device.pin(first.data(), bytes);
  device.pin(second.data(), bytes);
  const DeviceBytes a(device, bytes), b(device, bytes);
  const DeviceStream one = device.make_stream(), two = device.make_stream();
  const auto rate = [&](bool in, bool out) {
    double best = 0;
    for (int trial = 0; trial < 3; ++trial) {
      const auto start = Clock::now();
      for (int round = 0; round < rounds; ++round) {
        if (in) {
          device.copy(one, first.data(), a.data(), bytes);
        }
        if (out) {
          device.copy(two, b.data(), second.data(), bytes);
        }
      }
      device.synchronize(one);
      device.synchronize(two);
      best = std::max(best, rounds * static_cast<double>(bytes) / seconds_since(start) / 1e9);
    }
    return best;
  };
  const CopyLimits limits{rate(true, false), rate(false, true), rate(true, true)};
  device.destroy_stream(one);
  device.destroy_stream(two);
  device.unpin(first.data());
  device.unpin(second.data());
  return limits;
}

/// One rank of a run.
class Rank {
 public:
  Rank(Communicator& world, const Arguments& arguments, std::string as, Watch& watch)
      : world_(world),
        arguments_(arguments),
        as_(std::move(as)),
        watch_(watch),
        own_(world.duplicate("lane")),
        other_(world.duplicate("other lane")),
        device_(open_device(arguments.device)),
        stream_(device_->make_stream()),
        side_(device_->make_stream()),
        lane_(own_, device_),
        other_lane_(other_, device_) {}
  ~Rank() {
    device_->destroy_stream(stream_);
    device_->destroy_stream(side_);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  /// How many cases were wrong, on any rank.
  int run() {
    for (const CollectiveCase& test : collective_cases) {
      for (const DType dtype : all_dtypes()) {
        check(test, dtype, 4099);
      }
      check(test, DType::f32, 0);
      check(test, DType::f32, 3'000'001);  // some chunks
    }
    calls_return_while_streams_are_held();
    opposite_order();
    copies_pass_held_streams();
    limits_ = measure_copies(*device_, arguments_.bytes);
    for (const CollectiveCase& test : collective_cases) {
      measure(test);
    }
    measure_small();
    return failures_;
  }

 private:
  int root() const { return world_.size() - 1; }

  Line line(const std::string& name) const {
    Line line;
    line.add("case", name).add("ranks", world_.size()).add("as", as_);
    return line;
  }

  void begin(const std::string& name) {
    watch_.begin(name + " of " + std::to_string(world_.size()) + " " + as_);
    world_.barrier();
  }

  /// The ranks' verdict, and rank 0's line with it.
  void end(Line line, bool ok) {
    std::vector<std::int32_t> wrong = {ok ? 0 : 1};
    world_.all_reduce(elements(wrong)).wait();
    failures_ += wrong[0] == 0 ? 0 : 1;
    if (world_.rank() == 0) {
      line.add("ok", wrong[0] == 0).print();
    }
  }

  void check(const CollectiveCase& test, DType dtype, std::size_t count) {
    begin(test.name);
    const Operands operands = test.operands(world_.size(), world_.rank() == root());
    const std::size_t in_count = count * static_cast<std::size_t>(operands.in);
    const std::size_t out_count = count * static_cast<std::size_t>(operands.out);
    Bytes in = values_of(dtype, in_count, world_.rank());
    Bytes wanted(out_count * size_of(dtype));
    Line result = line(test.name);
    result.add("dtype", std::string(name(dtype))).add("count", count);
    bool ok = false;
    try {
      test.on_host(world_, root(), {in.data(), in_count, dtype}, {wanted.data(), out_count, dtype})
          .wait();
      DeviceBytes from(*device_, in.size());
      const DeviceBytes apart(*device_, wanted.size());
      const DeviceBytes& to = operands.in_place ? from : apart;
      from.set(stream_, in);
      test.on_device(lane_, root(), {from.data(), in_count, dtype}, {to.data(), out_count, dtype},
                     stream_)
          .wait(stream_);
      ok = to.get(stream_) == wanted;
    } catch (const Error& error) {
      result.add("error", std::string(error.what()));
    }
    end(std::move(result), ok);
  }

  /// The promise of the lane, on hardware: a stream that is held holds no thread.
  void calls_return_while_streams_are_held() {
    begin("held streams");
    Memory gate(4096);
    device_->pin(gate.data(), gate.bytes());
    auto* const word = static_cast<std::uint32_t*>(gate.data());
    constexpr std::size_t count = 100'000;
    Bytes values = values_of(DType::f32, count, world_.rank()), wanted = values;
    world_.all_reduce(Elements{wanted.data(), count, DType::f32}).wait();
    DeviceBytes memory(*device_, values.size());
    memory.set(stream_, values);
    device_->wait_word(stream_, word, 1);
    const auto start = Clock::now();
    DeviceWork work = lane_.all_reduce({memory.data(), count, DType::f32},
                                       {memory.data(), count, DType::f32}, ReduceOp::sum, stream_);
    work.wait(stream_);
    work.wait(side_);
    const double called = seconds_since(start);
    const bool held = !work.done();
    world_.barrier();
    std::atomic_ref(*word).store(1);
    const bool right = memory.get(side_) == wanted;
    device_->synchronize(stream_);
    device_->unpin(gate.data());
    end(line("held streams").add("call_us", called * 1e6), held && right);
  }

  /// Half of the ranks call the one communicator first, half the other.
  void opposite_order() {
    begin("opposite order");
    constexpr std::size_t count = 50'000;
    const Bytes values = values_of(DType::f32, count, world_.rank());
    Bytes wanted = values;
    world_.all_reduce(Elements{wanted.data(), count, DType::f32}).wait();
    bool right = true;
    for (int round = 0; round < 20; ++round) {
      DeviceBytes a(*device_, values.size()), b(*device_, values.size());
      a.set(stream_, values);
      b.set(side_, values);
      world_.barrier();
      const auto call = [&](DeviceLane& lane, const DeviceBytes& memory, DeviceStream stream) {
        lane.all_reduce({memory.data(), count, DType::f32}, {memory.data(), count, DType::f32},
                        ReduceOp::sum, stream)
            .wait(stream);
      };
      if (world_.rank() % 2 == 0) {
        call(lane_, a, stream_);
        call(other_lane_, b, side_);
      } else {
        call(other_lane_, b, side_);
        call(lane_, a, stream_);
      }
      right = right && a.get(stream_) == wanted && b.get(side_) == wanted;
    }
    end(line("opposite order"), right);
  }

  /// How many streams may stand with a copy behind a word before a copy of another stream stands
  /// behind them: streams share channels, and this says how many there are.
  void copies_pass_held_streams() {
    begin("held copies");
    constexpr int most = 24;
    int passed = 0;
    if (world_.rank() == 0) {
      Memory host(2 * 4096);
      device_->pin(host.data(), host.bytes());
      auto* const word = static_cast<std::uint32_t*>(host.data());
      std::byte* const target = static_cast<std::byte*>(host.data()) + 4096;
      const DeviceBytes memory(*device_, 4096);
      std::vector<DeviceStream> held;
      while (static_cast<int>(held.size()) < most) {
        held.push_back(device_->make_stream());
        device_->wait_word(held.back(), word, 1);
        device_->copy(held.back(), target, memory.data(), 64);
        device_->copy(side_, target + 64, memory.data(), 64);
        const auto start = Clock::now();
        while (!device_->idle(side_) && seconds_since(start) < 0.3) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        if (!device_->idle(side_)) {
          break;
        }
        ++passed;
      }
      std::atomic_ref(*word).store(1);
      for (const DeviceStream stream : held) {
        device_->synchronize(stream);
        device_->destroy_stream(stream);
      }
      device_->synchronize(side_);
      device_->unpin(host.data());
    }
    world_.barrier();
    // Two lanes of a rank hold as many.
    end(line("held copies").add("passed", passed).add("tried", most),
        world_.rank() != 0 || passed >= 2);
  }

  /// Seconds of one call, of `calls` in a row on one stream.
  double time_of(const CollectiveCase& test, const ConstElements& in, const Elements& out,
                 int calls) {
    world_.barrier();
    const auto start = Clock::now();
    for (int call = 0; call < calls; ++call) {
      test.on_device(lane_, root(), in, out, stream_).wait(stream_);
    }
    device_->synchronize(stream_);
    return seconds_since(start) / calls;
  }

  void measure(const CollectiveCase& test) {
    begin(test.name);
    const Operands operands = test.operands(world_.size(), world_.rank() == root());
    const Operands most = test.operands(world_.size(), true);
    const auto blocks = static_cast<std::size_t>(std::max(most.in, most.out));
    const std::size_t count = arguments_.bytes / sizeof(float) / blocks;
    const std::size_t in_count = count * static_cast<std::size_t>(operands.in);
    const std::size_t out_count = count * static_cast<std::size_t>(operands.out);
    DeviceBytes from(*device_, in_count * sizeof(float));
    const DeviceBytes to(*device_, out_count * sizeof(float));
    from.set(stream_, values_of(DType::f32, in_count, world_.rank()));
    const ConstElements in{from.data(), in_count, DType::f32};
    const Elements out{operands.in_place ? from.data() : to.data(), out_count, DType::f32};
    time_of(test, in, out, 2);
    const double seconds = std::min(time_of(test, in, out, 5), time_of(test, in, out, 5));
    const auto bytes = static_cast<double>(blocks * count * sizeof(float));
    end(line(std::string(test.name) + " rate")
            .add("bytes", blocks * count * sizeof(float))
            .add("gb_s", bytes / seconds / 1e9)
            .add("device_to_host_gb_s", limits_.in)
            .add("host_to_device_gb_s", limits_.out)
            .add("both_ways_gb_s", limits_.both),
        true);
  }

  /// Latency, and what a call costs its caller.
  void measure_small() {
    begin("small all_reduce");
    constexpr int calls = 200;
    constexpr std::size_t count = 1024;
    const DeviceBytes memory(*device_, count * sizeof(float));
    const Elements data{memory.data(), count, DType::f32};
    time_of(collective_cases[1], data, data, calls);
    const double seconds = time_of(collective_cases[1], data, data, calls);
    const auto start = Clock::now();
    DeviceWork last;
    for (int call = 0; call < calls; ++call) {
      last = lane_.all_reduce(data, data, ReduceOp::max, stream_);
    }
    const double called = seconds_since(start) / calls;
    last.synchronize();
    end(line("small all_reduce").add("us", seconds * 1e6).add("call_us", called * 1e6), true);
  }

  Communicator& world_;
  const Arguments& arguments_;
  const std::string as_;
  Watch& watch_;
  Communicator own_, other_;
  std::shared_ptr<Device> device_;
  DeviceStream stream_, side_;
  DeviceLane lane_, other_lane_;
  CopyLimits limits_;
  int failures_ = 0;
};

int run_threads(const Arguments& arguments, int ranks) {
  Watch watch(arguments.limit);
  std::atomic<int> failures = 0;
  run_virtual_ranks(ranks, Config::from_environment(), [&](Communicator& world) {
    const int wrong = Rank(world, arguments, "threads", watch).run();
    failures = std::max(failures.load(), wrong);
  });
  return failures == 0 ? 0 : 1;
}

int run_rank_of_processes(const Arguments& arguments) {
  Watch watch(arguments.limit);
  Communicator world = Communicator::join();
  return Rank(world, arguments, "processes", watch).run() == 0 ? 0 : 1;
}

/// Runs this program once for each rank: a device that a process has opened is none in its fork.
int run_processes(int ranks, const std::vector<char*>& line) {
  const auto folder = std::filesystem::temp_directory_path() /
                      ("sprat_gpu_" + std::to_string(getpid()) + "_" + std::to_string(ranks));
  std::filesystem::create_directories(folder);
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      setenv("SPRAT_RANK", std::to_string(rank).c_str(), 1);
      setenv("SPRAT_SIZE", std::to_string(ranks).c_str(), 1);
      setenv("SPRAT_RENDEZVOUS", ("file://" + (folder / "meet").string()).c_str(), 1);
      execv("/proc/self/exe", line.data());
      _exit(127);
    }
    children.push_back(child);
  }
  int worst = 0;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  std::filesystem::remove_all(folder);
  return worst;
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream text(list);
  for (std::string part; std::getline(text, part, ',');) {
    parts.push_back(part);
  }
  return parts;
}

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i], value = argv[i + 1];
    if (option == "--device") {
      arguments.device = value;
    } else if (option == "--ranks") {
      arguments.ranks.clear();
      for (const std::string& count : split(value)) {
        arguments.ranks.push_back(std::stoi(count));
      }
    } else if (option == "--as") {
      arguments.as = split(value);
    } else if (option == "--bytes") {
      arguments.bytes = std::stoull(value) << (value.ends_with("M")   ? 20
                                               : value.ends_with("K") ? 10
                                                                      : 0);
    } else if (option == "--limit") {
      arguments.limit = std::stoi(value);
    } else {
      std::fprintf(stderr, "%s is no option; see the head of tests/gpu/collectives.cpp\n", argv[i]);
      std::exit(2);
    }
  }
  return arguments;
}

int run(int argc, char** argv) {
  // Streams share the driver's channels, and a stream that waits for a word holds its channel: with
  // fewer channels than streams, ranks that share a process would hold each other.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  const Arguments arguments = parse(argc, argv);
  if (std::getenv("SPRAT_RANK") != nullptr) {
    return run_rank_of_processes(arguments);
  }
  std::vector<char*> line(argv, argv + argc);
  line.push_back(nullptr);
  int worst = 0;
  const auto wanted = [&](const char* as) { return std::ranges::count(arguments.as, as) > 0; };
  // Processes first: whoever has opened a device must not fork any more.
  for (const int ranks : arguments.ranks) {
    worst = std::max(worst, wanted("processes") ? run_processes(ranks, line) : 0);
  }
  for (const int ranks : arguments.ranks) {
    worst = std::max(worst, wanted("threads") ? run_threads(arguments, ranks) : 0);
  }
  return worst;
}

}  // namespace
}  // namespace sprat::gpu

int main(int argc, char** argv) {
  try {
    return sprat::gpu::run(argc, argv);
  } catch (const sprat::Error& error) {
    std::fprintf(stderr, "gpu_collectives: %s\n", error.what());
    return error.code() == sprat::ErrorCode::unavailable ? 77 : 1;
  }
}
