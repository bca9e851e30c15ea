// NCCL's profiler interface as NCCL plays it, of every version that is exported, and the file that
// comes of it, read as a viewer reads it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>

#include "plugins/nccl_net/abi/profiler_v1.hpp"
#include "plugins/nccl_net/abi/profiler_v2.hpp"
#include "plugins/nccl_net/abi/profiler_v3.hpp"
#include "plugins/nccl_net/abi/profiler_v4.hpp"
#include "plugins/nccl_net/abi/profiler_v5.hpp"
#include "plugins/nccl_net/abi/profiler_v6.hpp"
#include "plugins/nccl_net/trace.hpp"
#include "tests/unit/plugins/nccl_net/played_net.hpp"

namespace sprat::nccl_net {
namespace {

using Json = nlohmann::json;

/// Of a trace: whether it is one, and how often each name begins.
std::map<std::string, int> read_trace(const Json& trace) {
  std::map<std::string, int> begun;
  std::map<int, double> open;
  std::set<int> over;
  for (const Json& event : trace.at("traceEvents")) {
    const int id = event.at("id");
    const double time = event.at("ts");
    const std::string phase = event.at("ph");
    EXPECT_TRUE(event.at("pid").is_number_integer() && event.at("tid").is_number_integer());
    EXPECT_FALSE(event.at("cat").get<std::string>().empty());
    if (phase == "b") {
      EXPECT_FALSE(open.contains(id) || over.contains(id)) << "id " << id << " begins twice";
      open[id] = time;
      ++begun[event.at("name")];
    } else {
      EXPECT_EQ(phase, "e");
      EXPECT_TRUE(open.contains(id)) << "id " << id << " ends and has not begun";
      EXPECT_GE(time, open[id]) << "id " << id;
      open.erase(id);
      over.insert(id);
    }
  }
  EXPECT_TRUE(open.empty()) << open.size() << " events never end";
  return begun;
}

class Folder {
 public:
  Folder()
      : path_(std::filesystem::temp_directory_path() /
              ("nccl_trace_" + std::to_string(::getpid()))) {
    std::filesystem::create_directory(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }
  /// The only file, which it takes away.
  Json take() const {
    const std::filesystem::directory_iterator first(path_);
    if (first == std::filesystem::directory_iterator{}) {
      throw std::runtime_error("no trace was written");
    }
    const std::filesystem::path file = first->path();
    Json trace = Json::parse(std::ifstream(file));
    std::filesystem::remove(file);
    EXPECT_TRUE(std::filesystem::is_empty(path_)) << "one file a process";
    return trace;
  }

 private:
  std::filesystem::path path_;
};

template <class Profiler>
Profiler& profiler(int version) {
  auto* table = static_cast<Profiler*>(plugin_symbol("ncclProfiler_v" + std::to_string(version)));
  if (table == nullptr) {
    throw std::runtime_error("no profiler of version " + std::to_string(version));
  }
  return *table;
}

template <class Profiler>
void* open_profiler(Profiler& table, int* events) {
  void* context = nullptr;
  if constexpr (std::is_same_v<decltype(table.init), Result (*)(void**, int*)>) {
    check("init", table.init(&context, events));
  } else if constexpr (std::is_same_v<Profiler, ProfilerV4>) {
    check("init", table.init(&context, events, "world", 1, 1, 2, 0, &keep_line));
  } else {
    check("init", table.init(&context, 1, events, "world", 1, 2, 0, &keep_line));
  }
  return context;
}

/// An all-reduce with a send and a receive of the network's, and a message.
template <class Profiler, class Described>
void play_profiler(int version) {
  SCOPED_TRACE("version " + std::to_string(version));
  Profiler& table = profiler<Profiler>(version);
  const Folder folder;
  setenv("SPRAT_NCCL_TRACE", folder.path().c_str(), 1);
  int events = 0;
  void* context = open_profiler(table, &events);
  void* second = open_profiler(table, &events);
  ASSERT_EQ(events, static_cast<int>(traced_kinds));
  const auto start = [&](Described described) {
    void* event = nullptr;
    check("startEvent", table.start_event(context, &event, &described));
    return event;
  };
  Described described{};
  described.type = 1u << 1;
  described.rank = 1;
  described.coll.count = 1000;
  if constexpr (std::is_same_v<Described, ProfilerEventV1>) {
    described.coll.function = 4;
  } else {
    described.coll.function = "AllReduce";
    described.coll.data_type = "ncclFloat32";
    described.coll.algorithm = "RING";
    described.coll.protocol = "SIMPLE";
  }
  void* call = start(described);
  Described of_network{};
  of_network.type = 1u << 3;
  of_network.parent = call;
  of_network.proxy_op = {};
  of_network.proxy_op.process = ::getpid();
  of_network.proxy_op.channel = 3;
  of_network.proxy_op.peer = 1;
  of_network.proxy_op.steps = 8;
  of_network.proxy_op.sends = 1;
  void* send = start(of_network);
  of_network.proxy_op.sends = 0;
  void* receive = start(of_network);
  of_network.proxy_op.process = ::getpid() + 1;
  of_network.parent = &table;  // an address of another process
  void* of_others = start(of_network);
  described.type = 1u << 2;
  described.p2p = {};
  described.p2p.peer = 1;
  if constexpr (std::is_same_v<Described, ProfilerEventV1>) {
    described.p2p.function = 6;
  } else {
    described.p2p.function = "Send";
  }
  void* message = start(described);
  described.type = 1;
  EXPECT_EQ(start(described), nullptr) << "groups are not asked for";
  for (void* event : {call, send, receive, of_others}) {
    ASSERT_NE(event, nullptr);
    check("recordEventState", table.record_event_state(event, 9, nullptr));
    check("stopEvent", table.stop_event(event));
  }
  check("finalize", table.finalize(second));
  check("finalize", table.finalize(context));  // and the message has not ended
  const Json trace = folder.take();
  const std::map<std::string, int> wanted = {{"AllReduce", 1},
                                             {"AllReduce send", 1},
                                             {"AllReduce receive", 1},
                                             {"? receive", 1},
                                             {"Send", 1}};
  EXPECT_EQ(read_trace(trace), wanted);
  int unfinished = 0;
  for (const Json& event : trace.at("traceEvents")) {
    unfinished += event.value("args", Json::object()).value("unfinished", false) ? 1 : 0;
  }
  EXPECT_EQ(unfinished, 1) << "of the message alone";
  EXPECT_EQ(trace.at("otherData").at("dropped"), 0);
  static_cast<void>(message);
}

TEST(NcclProfiler, every_version_writes_a_trace_that_a_viewer_reads) {
  play_profiler<ProfilerV6, ProfilerEventV6>(6);
  play_profiler<ProfilerV5, ProfilerEventV5>(5);
  play_profiler<ProfilerV4, ProfilerEventV4>(4);
  play_profiler<ProfilerV3, ProfilerEventV3>(3);
  play_profiler<ProfilerV2, ProfilerEventV2>(2);
  play_profiler<ProfilerV1, ProfilerEventV1>(1);
  EXPECT_EQ(plugin_symbol("ncclProfiler_v7"), nullptr) << "no public source confirms it";
}

TEST(NcclProfiler, asks_for_no_events_unless_a_folder_is_named) {
  unsetenv("SPRAT_NCCL_TRACE");
  auto& table = profiler<ProfilerV5>(5);
  int events = -1;
  void* context = open_profiler(table, &events);
  EXPECT_EQ(events, 0);
  check("finalize", table.finalize(context));
}

TEST(NcclProfiler, a_folder_that_is_not_there_is_said) {
  setenv("SPRAT_NCCL_TRACE", "/no/such/folder", 1);
  auto& table = profiler<ProfilerV5>(5);
  int events = 0;
  void* context = open_profiler(table, &events);
  last_line().clear();
  EXPECT_EQ(table.finalize(context), Result::system_error);
  EXPECT_NE(last_line().find("cannot write the trace /no/such/folder"), std::string::npos)
      << last_line();
}

// Most programs end so.
TEST(NcclProfiler, a_process_may_end_while_its_network_goes_on) {
  const Folder folder;
  EXPECT_EXIT(
      {
        setenv("SPRAT_NCCL_TRACE", folder.path().c_str(), 1);
        auto& table = profiler<ProfilerV5>(5);
        int events = 0;
        void* const context = open_profiler(table, &events);
        std::atomic<bool> goes_on = false;
        std::thread([&table, &goes_on, context] {
          for (;;) {
            ProfilerEventV5 described{};
            described.type = 1u << 3;
            described.proxy_op.process = ::getpid();
            void* event = nullptr;
            check("startEvent", table.start_event(context, &event, &described));
            check("stopEvent", table.stop_event(event));
            goes_on = true;
          }
        }).detach();
        poll_until([&goes_on] { return goes_on.load(); });
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

TEST(NcclProfiler, events_of_many_threads_fit_into_bounded_memory) {
  constexpr std::size_t room = 1000, threads = 4, each = 400;
  Trace trace(room);
  std::vector<std::thread> running;
  for (std::size_t thread = 0; thread < threads; ++thread) {
    running.emplace_back([&trace] {
      for (std::size_t at = 0; at < each; ++at) {
        if (auto* event = trace.begin({.function = "Reduce\xff"}, nullptr)) {
          Trace::end(*event);
        }
      }
    });
  }
  for (std::thread& one : running) {
    one.join();
  }
  EXPECT_EQ(trace.dropped(), threads * each - room);
  const auto begun = read_trace(Json::parse(trace.as_json(1)));
  ASSERT_EQ(begun.size(), 1u);
  EXPECT_EQ(begun.begin()->second, static_cast<int>(room));
}

}  // namespace
}  // namespace sprat::nccl_net
