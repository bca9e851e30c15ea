// One rank that forks while its threads are busy: forks COUNT FOLDER.
//
// Each child calls every verb of C++ and C on what its parent made. A verb of the parent's throws
// `unavailable` and names the fork; the rest does no harm; nothing hangs, whatever the parent's
// threads held at the instant of the fork. Prints what went wrong and ends with 1. Jobs that other
// threads work on meanwhile must not notice: their results are checked.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "sprat/communicator.hpp"
#include "sprat/fusion.hpp"
#include "sprat/mesh.hpp"
#include "sprat/sprat.h"

namespace {

using sprat::Communicator;
using sprat::DType;
using sprat::Work;

/// A child's verbs together may take so long, on a busy machine too.
constexpr unsigned deadline_s = 20;
constexpr int late_tag = 7;

/// Where a child is, for the message of one that hangs.
const char* volatile under_way = "";

void on_alarm(int) {
  std::fprintf(stderr, "forks: the child hangs in %s\n", under_way);
  _exit(3);
}

[[noreturn]] void complain(const std::string& what, const std::string& said) {
  std::fprintf(stderr, "forks: %s: %s\n", what.c_str(), said.c_str());
  _exit(4);
}

void expect(bool holds, const char* what) {
  if (!holds) {
    complain(what, "is not so");
  }
}

/// It says that this process was forked.
void refused(const char* name, const std::function<void()>& verb) {
  under_way = name;
  try {
    verb();
  } catch (const sprat::Error& error) {
    if (error.code() == sprat::ErrorCode::unavailable &&
        std::string(error.what()).find("was forked") != std::string::npos) {
      return;
    }
    complain(name, error.what());
  }
  complain(name, "was not refused");
}

void refused_in_c(const char* name, const std::function<sprat_status()>& verb) {
  under_way = name;
  const sprat_status status = verb();
  const std::string said = sprat_last_error();
  if (status != SPRAT_unavailable || said.find("was forked") == std::string::npos) {
    complain(name, "status " + std::to_string(status) + ", " + said);
  }
}

void need_ok(const char* name, sprat_status status) {
  if (status != SPRAT_ok) {
    complain(name, sprat_last_error());
  }
}

/// What the parent has when it forks.
struct Inherited {
  Communicator& world;
  sprat::Fusion& fusion;
  Work& late;   ///< Not done before all children have ended.
  Work& ended;  ///< Done.
  sprat::Memory& memory;
  sprat_comm* comm;
  sprat_work* c_late;
  sprat_fusion* c_fusion;
  sprat_memory* c_memory;
  sprat_op op;
};

void call_collectives(Communicator& world) {
  const auto ranks = static_cast<std::size_t>(world.size());
  std::vector<float> one(4), all(4 * ranks), other(4 * ranks);
  const std::vector<std::size_t> counts(ranks, 4);
  const auto part = sprat::elements(one), whole = sprat::elements(all),
             out = sprat::elements(other);
  const int me = world.rank();
  for (const bool blocking : {false, true}) {
    const sprat::Options how{.blocking = blocking};
    refused("all_reduce", [&] { world.all_reduce(part, sprat::ReduceOp::sum, how); });
    refused("all_gather", [&] { world.all_gather(part, whole, how); });
    refused("reduce_scatter",
            [&] { world.reduce_scatter(whole, part, sprat::ReduceOp::sum, how); });
    refused("broadcast", [&] { world.broadcast(part, 0, how); });
    refused("all_to_all", [&] { world.all_to_all(whole, out, how); });
    refused("reduce", [&] { world.reduce(part, part, 0, sprat::ReduceOp::sum, how); });
    refused("gather", [&] { world.gather(part, whole, me, how); });
    refused("scatter", [&] { world.scatter(whole, part, me, how); });
    refused("all_gatherv", [&] { world.all_gatherv(part, whole, counts, how); });
    refused("reduce_scatterv",
            [&] { world.reduce_scatterv(whole, part, counts, sprat::ReduceOp::sum, how); });
    refused("gatherv", [&] { world.gatherv(part, whole, counts, me, how); });
    refused("scatterv", [&] { world.scatterv(whole, part, counts, me, how); });
    refused("all_to_allv", [&] { world.all_to_allv(whole, out, counts, counts, how); });
    refused("send", [&] { world.send(part, me, 0, how); });
    refused("recv", [&] { world.recv(part, me, 0, how); });
    refused("barrier", [&] { world.barrier(how); });
    refused("start_barrier", [&] { world.start_barrier(how); });
  }
}

void call_verbs(const Inherited& of_parent) {
  Communicator& world = of_parent.world;
  const std::vector<int> everybody = [&] {
    std::vector<int> ranks;
    for (int rank = 0; rank < world.size(); ++rank) {
      ranks.push_back(rank);
    }
    return ranks;
  }();
  call_collectives(world);
  refused("split", [&] { world.split(0); });
  refused("duplicate", [&] { world.duplicate(); });
  refused("create_group", [&] { world.create_group(everybody, "children"); });
  refused("shrink", [&] { world.shrink(); });
  refused("grow", [&] { world.grow(1, "file:///nowhere"); });
  refused("abort", [&] { world.abort("by a child"); });
  refused("flight_record", [&] { world.flight_record(); });
  refused("Fusion", [&] { sprat::Fusion(world, {{.count = 4}}); });
  refused("Fusion::put", [&] { of_parent.fusion.put(0, of_parent.fusion.slot(0)); });
  refused("Fusion::flush", [&] { of_parent.fusion.flush(); });
  refused("Mesh", [&] { sprat::Mesh(world, {{"all", world.size()}}); });
  for (Work* work : {&of_parent.late, &of_parent.ended}) {
    Work both = sprat::all_of({*work, *work});
    refused("Work::wait", [&] { work->wait(); });
    refused("Work::test", [&] { work->test(); });
    refused("Work::on_done", [&] { work->on_done([] {}); });
    refused("wait_any", [&] { sprat::wait_any(std::span(work, 1)); });
    refused("Work::wait of several", [&] { both.wait(); });
    refused("Work::test of several", [&] { both.test(); });
    expect(work->done(), "a Work of the parent's is over for its child");
  }
  under_way = "what only looks";
  expect(of_parent.late.source() == -1, "a child never hears who sent");
  expect(world.size() == static_cast<int>(everybody.size()) && !world.failure(), "the job is well");
  expect(world.seconds_waited() >= 0 && world.name() == "world", "the communicator can be asked");
}

void call_c_collectives(const Inherited& of_parent) {
  sprat_comm* const comm = of_parent.comm;
  int ranks = 0, me = 0;
  need_ok("sprat_comm_size", sprat_comm_size(comm, &ranks));
  need_ok("sprat_comm_rank", sprat_comm_rank(comm, &me));
  std::vector<float> part(4), whole(4 * static_cast<std::size_t>(ranks)), out(whole.size());
  const std::vector<std::size_t> counts(static_cast<std::size_t>(ranks), 4);
  sprat_work* work = nullptr;
  for (sprat_work** const handle : {&work, static_cast<sprat_work**>(nullptr)}) {
    refused_in_c("sprat_all_reduce", [&] {
      return sprat_all_reduce(comm, part.data(), part.data(), 4, SPRAT_f32, of_parent.op, nullptr,
                              handle);
    });
    refused_in_c("sprat_all_gather", [&] {
      return sprat_all_gather(comm, part.data(), whole.data(), 4, SPRAT_f32, nullptr, handle);
    });
    refused_in_c("sprat_broadcast", [&] {
      return sprat_broadcast(comm, part.data(), 4, SPRAT_f32, 0, nullptr, handle);
    });
    refused_in_c("sprat_gather", [&] {
      return sprat_gather(comm, part.data(), whole.data(), 4, SPRAT_f32, me, nullptr, handle);
    });
    refused_in_c("sprat_all_to_allv", [&] {
      return sprat_all_to_allv(comm, whole.data(), counts.data(), out.data(), counts.data(),
                               SPRAT_f32, nullptr, handle);
    });
    refused_in_c("sprat_send", [&] {
      return sprat_send(comm, part.data(), 4, SPRAT_f32, me, 0, nullptr, handle);
    });
    refused_in_c("sprat_recv", [&] {
      return sprat_recv(comm, part.data(), 4, SPRAT_f32, me, 0, nullptr, handle);
    });
  }
  refused_in_c("sprat_barrier", [&] { return sprat_barrier(comm, nullptr); });
}

void call_c_verbs(const Inherited& of_parent) {
  sprat_comm* const comm = of_parent.comm;
  sprat_comm* made = nullptr;
  const int zero = 0;
  call_c_collectives(of_parent);
  refused_in_c("sprat_comm_split", [&] { return sprat_comm_split(comm, 0, 0, &made); });
  refused_in_c("sprat_comm_duplicate", [&] { return sprat_comm_duplicate(comm, &made); });
  refused_in_c("sprat_comm_shrink", [&] { return sprat_comm_shrink(comm, 1, &made); });
  refused_in_c("sprat_comm_grow",
               [&] { return sprat_comm_grow(comm, 1, "file:///nowhere", 0, &made); });
  refused_in_c("sprat_comm_mark_step", [&] { return sprat_comm_mark_step(comm, 1); });
  refused_in_c("sprat_comm_abort", [&] { return sprat_comm_abort(comm, "by a child"); });
  int me = 0;
  need_ok("sprat_comm_rank", sprat_comm_rank(comm, &me));
  refused_in_c("sprat_comm_create_group",
               [&] { return sprat_comm_create_group(comm, &me, 1, "a child", &made); });
  int done = 0;
  std::size_t index = 0;
  sprat_work* const works[] = {of_parent.c_late};
  refused_in_c("sprat_work_wait", [&] { return sprat_work_wait(of_parent.c_late); });
  refused_in_c("sprat_work_test", [&] { return sprat_work_test(of_parent.c_late, &done); });
  refused_in_c("sprat_work_wait_any", [&] { return sprat_work_wait_any(works, 1, &index); });
  std::size_t absent_count = 0;
  refused_in_c("sprat_fusion_flush",
               [&] { return sprat_fusion_flush(of_parent.c_fusion, nullptr, 0, &absent_count); });
  float value = 0;
  refused_in_c("sprat_fusion_put",
               [&] { return sprat_fusion_put(of_parent.c_fusion, 0, &value, 1, SPRAT_f32); });
  under_way = "the C verbs that do no harm";
  sprat_status failure = SPRAT_internal;
  need_ok("sprat_comm_failure", sprat_comm_failure(comm, &failure));
  expect(failure == SPRAT_ok, "the C job is well");
  int source = zero;
  need_ok("sprat_work_source", sprat_work_source(of_parent.c_late, &source));
  need_ok("sprat_group_begin", sprat_group_begin());
  need_ok("sprat_group_end", sprat_group_end(nullptr));
  sprat_op op = SPRAT_sum;
  need_ok("sprat_op_create", sprat_op_create_premultiplied_sum(2, &op));
  need_ok("sprat_op_free", sprat_op_free(op));
  need_ok("sprat_op_free", sprat_op_free(of_parent.op));
  need_ok("sprat_work_free", sprat_work_free(of_parent.c_late));
  need_ok("sprat_fusion_free", sprat_fusion_free(of_parent.c_fusion));
  need_ok("sprat_free_memory", sprat_free_memory(of_parent.c_memory));
  need_ok("sprat_comm_free", sprat_comm_free(comm));
}

/// Memory of its own, and a job of its own.
void live(sprat::Memory& inherited) {
  under_way = "memory";
  expect(static_cast<const int*>(inherited.data())[0] == 4711, "inherited memory can be read");
  inherited = sprat::Memory(100'000);
  static_cast<int*>(inherited.data())[0] = 1;
  under_way = "a job of its own";
  sprat::Config alone;
  alone.size = 1;
  alone.rank = 0;
  auto own = Communicator::join(alone);
  std::vector<float> data(4, 1.0f);
  Work work = own.all_reduce(sprat::elements(data));
  work.wait();
  expect(data[0] == 1 && work.done(), "a child reduces alone");
}

/// Threads that take the library's locks in turn, until they are told to stop.
class Busy {
 public:
  explicit Busy(Communicator& ranks) : ranks_(ranks.duplicate("busy")) {
    threads_.emplace_back([this] { reduce(); });
    threads_.emplace_back([this] { allocate(); });
  }
  /// Collective: all ranks do as many reductions.
  void stop() {
    stopping_ = true;
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }

 private:
  void reduce() {
    // Each rank says in what all reduce whether it is to stop, so that all stop after the same.
    const auto ranks = static_cast<float>(ranks_.size());
    for (std::vector<float> data(20'000); data[0] != ranks;) {
      data.assign(data.size(), 1.0f);
      data[0] = stopping_ ? 1.0f : 0.0f;
      Work work = ranks_.all_reduce(sprat::elements(data));
      while (!work.test()) {
        continue;
      }
      if (data.back() != ranks) {
        complain("busy", "a sum is wrong");
      }
    }
  }
  void allocate() {
    while (!stopping_) {
      const sprat::Memory memory(4096);
      sprat_op op = SPRAT_sum;
      need_ok("sprat_op_create", sprat_op_create_premultiplied_sum(2, &op));
      need_ok("sprat_op_free", sprat_op_free(op));
    }
  }

  Communicator ranks_;
  std::atomic<bool> stopping_ = false;
  std::vector<std::thread> threads_;
};

void await(pid_t child, int number) {
  int status = -1;
  if (waitpid(child, &status, 0) != child || status != 0) {
    std::fprintf(stderr, "forks: child %d ended with %d\n", number, status);
    std::_Exit(1);
  }
}

sprat_comm* join_in_c(const Communicator& world, const std::string& folder) {
  const std::string place = "file://" + folder + "/of_c";
  sprat_config config{};
  config.size = world.size();
  config.rank = world.rank();
  config.rendezvous = place.c_str();
  sprat_comm* comm = nullptr;
  need_ok("sprat_comm_join", sprat_comm_join(&config, &comm));
  return comm;
}

/// True in a child that is to return from main().
bool run(int count, const std::string& folder) {
  auto world = std::make_optional(Communicator::join());
  const int next = (world->rank() + 1) % world->size();
  const int previous = (world->rank() + world->size() - 1) % world->size();
  sprat_comm* const comm = join_in_c(*world, folder);
  auto busy = std::make_unique<Busy>(*world);
  auto fusion = std::make_optional<sprat::Fusion>(*world, std::vector<sprat::FusionParameter>{{4}});
  sprat::Memory memory(100'000);
  static_cast<int*>(memory.data())[0] = 4711;

  std::vector<float> in(4), c_in(4), out(4, 5.0f);
  Work late = world->recv(sprat::elements(in), previous, late_tag);
  Work ended = world->all_reduce(sprat::elements(out), sprat::ReduceOp::max);
  ended.wait();
  sprat_work* c_late = nullptr;
  need_ok("sprat_recv",
          sprat_recv(comm, c_in.data(), 4, SPRAT_f32, previous, late_tag, nullptr, &c_late));
  const std::size_t one = 1;
  const sprat_dtype f32 = SPRAT_f32;
  sprat_fusion* c_fusion = nullptr;
  need_ok("sprat_fusion_create",
          sprat_fusion_create(comm, &one, &f32, 1, 0, SPRAT_sum, nullptr, &c_fusion));
  sprat_memory* c_memory = nullptr;
  void* ignored = nullptr;
  need_ok("sprat_allocate", sprat_allocate(4096, &c_memory, &ignored));
  sprat_op op = SPRAT_sum;
  need_ok("sprat_op_create", sprat_op_create_premultiplied_sum(2, &op));

  for (int number = 0; number < count; ++number) {
    const pid_t child = fork();
    if (child != 0) {
      await(child, number);
      continue;
    }
    signal(SIGALRM, on_alarm);
    alarm(deadline_s);
    call_verbs({*world, *fusion, late, ended, memory, comm, c_late, c_fusion, c_memory, op});
    call_c_verbs({*world, *fusion, late, ended, memory, comm, c_late, c_fusion, c_memory, op});
    live(memory);
    under_way = "leaving";
    if (number % 2 == 0) {
      fusion.reset();
      world.reset();
      _exit(0);
    }
    static_cast<void>(busy.release());  // its threads are not here
    return true;
  }
  busy->stop();
  world->send(sprat::elements(out), next, late_tag).wait();
  late.wait();
  need_ok("sprat_send",
          sprat_send(comm, out.data(), 4, SPRAT_f32, next, late_tag, nullptr, nullptr));
  need_ok("sprat_work_wait", sprat_work_wait(c_late));
  if (in != out || c_in != out) {
    complain("a late message", "is wrong");
  }
  need_ok("sprat_work_free", sprat_work_free(c_late));
  need_ok("sprat_fusion_free", sprat_fusion_free(c_fusion));
  need_ok("sprat_free_memory", sprat_free_memory(c_memory));
  need_ok("sprat_op_free", sprat_op_free(op));
  need_ok("sprat_comm_free", sprat_comm_free(comm));
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    return 2;
  }
  try {
    run(std::atoi(argv[1]), argv[2]);
  } catch (const sprat::Error& error) {
    std::fprintf(stderr, "forks: %s: %s\n", sprat::name(error.code()), error.what());
    return 1;
  }
  return 0;
}
