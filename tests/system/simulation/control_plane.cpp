#include "tests/system/simulation/control_plane.hpp"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/base/check.hpp"
#include "comm/base/rank_ranges.hpp"
#include "comm/context/neighbours.hpp"
#include "comm/context/peer_info.hpp"
#include "comm/coordinator/coordinator.hpp"
#include "tests/system/simulation/held_by_rank.hpp"
#include "tests/system/simulation/rank_words.hpp"

namespace sprat::simulation {
namespace {

using comm::Blob;
using comm::ControlMessage;
using comm::Frame;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// The job's ranks, and the lines between them and the coordinator.
class Star {
 public:
  Star(int hosts, int ranks_per_host)
      : size_(hosts * ranks_per_host),
        ranks_per_host_(ranks_per_host),
        coordinator_(size_, {{"version", "1"}}) {}

  int size() const { return size_; }
  Traffic said() const { return per_rank(said_); }
  Traffic heard() const { return per_rank(heard_); }
  double frames() const { return said_.frames + heard_.frames; }
  double cpu_seconds() const { return cpu_seconds_; }
  void count_anew() { said_ = heard_ = {}; }
  /// The last long frame, as it came.
  const Blob& last_parts() const { return last_parts_; }

  void admit_all() {
    for (int rank = 0; rank < size_; ++rank) {
      const comm::Hello hello{rank, size_, {{"version", "1"}}};
      said_.frames += 1;
      said_.bytes += static_cast<double>(comm::encode(hello).size());
      need(!coordinator_.admit(hello, "the simulation"), "rank ", rank, " is refused");
      heard_.frames += 1;
      heard_.bytes += static_cast<double>(comm::encode(comm::Welcome{}).size());
    }
  }

  template <class BlobOf>
  void exchange(std::uint64_t ordinal, const char* purpose, const BlobOf& blob_of) {
    for (int rank = 0; rank < size_; ++rank) {
      const auto host = static_cast<std::uint64_t>(rank / ranks_per_host_) + 1;
      say(rank, comm::Part{ordinal, 120'000, purpose, blob_of(rank), host});
    }
  }

  void say(int rank, const Frame& frame) {
    hear(rank, frame);
    deliver();
  }
  void loses(int rank) {
    coordinator_.ended(rank, "its connection ended");
    deliver();
  }
  void passes(std::chrono::microseconds time) {
    now_ += time;
    if (const auto deadline = coordinator_.deadline(); deadline && *deadline <= now_) {
      coordinator_.tick(now_);
      deliver();
    }
  }
  /// Whom the coordinator has asked since this was called last.
  std::vector<int> take_queried() { return std::exchange(queried_, {}); }

 private:
  void hear(int rank, const Frame& frame) {
    said_.frames += 1;
    said_.bytes += static_cast<double>(comm::encode(frame).size());
    const auto begin = Clock::now();
    coordinator_.received(rank, frame, now_);
    cpu_seconds_ += seconds_since(begin);
  }
  /// As comm::Member does.
  void note_answers(const comm::Coordinator::Output& output) {
    const auto* place = std::get_if<comm::PartsPlace>(&output.frame);
    if (place == nullptr) {
      return;
    }
    for (const int rank : output.to) {
      answers_.emplace_back(rank,
                            place->descriptor < 0
                                ? Frame(comm::PartsPlace{place->ordinal, 4711, 9, 1, 1 << 20, 1})
                                : Frame(comm::PartsTaken{place->ordinal, 1}));
    }
  }
  /// What ranks answer by themselves goes out behind it.
  void deliver() {
    for (;;) {
      send_all();
      const auto answers = std::exchange(answers_, {});
      if (answers.empty()) {
        return;
      }
      for (const auto& [rank, frame] : answers) {
        hear(rank, frame);
      }
    }
  }
  void send_all() {
    const auto begin = Clock::now();
    for (const comm::Coordinator::Output& output : coordinator_.take()) {
      Blob bytes = comm::encode(output.frame);
      heard_.frames += static_cast<double>(output.to.size());
      heard_.bytes += static_cast<double>(output.to.size() * bytes.size());
      const auto* message = std::get_if<ControlMessage>(&output.frame);
      if (message != nullptr && message->kind == ControlMessage::Kind::query) {
        queried_.insert(queried_.end(), output.to.begin(), output.to.end());
      }
      if (std::holds_alternative<comm::Parts>(output.frame)) {
        last_parts_ = std::move(bytes);
      }
      note_answers(output);
    }
    cpu_seconds_ += seconds_since(begin);
  }
  Traffic per_rank(const Traffic& all) const { return {all.frames / size_, all.bytes / size_}; }

  const int size_, ranks_per_host_;
  comm::Coordinator coordinator_;
  comm::Coordinator::Time now_{};
  Traffic said_, heard_;
  double cpu_seconds_ = 0;
  std::vector<int> queried_;
  std::vector<std::pair<int, Frame>> answers_;
  Blob last_parts_;
};

/// A rank of [first, first + ranks) waits, the others but the last have called: every frame of it.
double frames_of_stall(Star& star, int first, int ranks) {
  star.count_anew();
  ControlMessage message;
  message.kind = ControlMessage::Kind::stalled;
  message.comm = static_cast<std::uint64_t>(ranks);
  message.payload = Blob(96);
  if (ranks < star.size()) {
    std::vector<int> members;
    for (int rank = first; rank < first + ranks; ++rank) {
      members.push_back(rank);
    }
    const Blob ranges = comm::encode_ranks(members);
    message.text.assign(reinterpret_cast<const char*>(ranges.data()), ranges.size());
  }
  star.take_queried();
  star.say(first, message);
  message.kind = ControlMessage::Kind::answer;
  message.text.clear();
  for (const int rank : star.take_queried()) {
    message.code = rank == first + ranks - 1 ? 1 : 0;
    star.say(rank, message);
  }
  return star.frames();
}

}  // namespace

ControlPlaneCost measure_control_plane(int hosts, int ranks_per_host) {
  ControlPlaneCost cost{.ranks = hosts * ranks_per_host, .hosts = hosts, .rounds = 5};
  Star star(hosts, ranks_per_host);
  RankWords words(ranks_per_host);
  star.admit_all();
  star.exchange(1, "joining", [](int) { return Blob(); });
  star.exchange(2, "meeting", [&](int rank) { return encode(words.greeting(rank)); });
  const auto begin = Clock::now();
  const auto parts = comm::decode(std::span(star.last_parts()).subspan(comm::frame_header_bytes));
  std::vector<comm::PeerInfo> infos;
  for (const Blob& blob : std::get<comm::Parts>(parts.value()).blobs) {
    infos.push_back(comm::decode_peer_info(blob, 0));
  }
  const auto found = comm::find_neighbours(infos, cost.ranks - 1);
  need(static_cast<int>(found.same_host.size()) == ranks_per_host, "neighbours are not found");
  cost.rank_seconds = seconds_since(begin);
  star.exchange(3, "mapping memory", [&](int rank) { return encode(words.reach(rank)); });
  star.exchange(4, "opening transports", [&](int rank) { return encode(words.address(rank)); });
  cost.said = star.said();
  cost.heard = star.heard();
  cost.sent_bytes = cost.heard.bytes * cost.ranks;
  cost.cpu_seconds = star.cpu_seconds();
  cost.group_stall = frames_of_stall(star, 0, ranks_per_host);
  cost.job_stall = frames_of_stall(star, 0, cost.ranks);
  star.count_anew();
  const std::chrono::microseconds between(1'000'000 / cost.ranks);
  for (int rank = 0; rank < cost.ranks; ++rank) {
    ControlMessage farewell;
    farewell.kind = ControlMessage::Kind::farewell;
    farewell.rank = rank;
    star.say(rank, farewell);
    star.passes(between);
  }
  star.passes(1s);
  cost.leaving = star.heard();

  Star unlucky(hosts, ranks_per_host);
  unlucky.admit_all();
  unlucky.count_anew();
  unlucky.loses(cost.ranks / 2);
  cost.loss = unlucky.frames();
  return cost;
}

void print_control_plane(int most) {
  std::printf(
      "# ranks  hosts rounds |  said by a rank |   heard by a rank |  heard leaving  |   stalls of:"
      "        |   loss | coordinator        a rank | KB kept by a rank\n"
      "#                     | frames    bytes | frames      bytes | frames    bytes | a host    "
      "the job | frames | sends MB seconds seconds | of job  of world\n");
  for (int ranks = 64; ranks <= most; ranks *= 4) {
    const ControlPlaneCost cost = measure_control_plane(ranks / 8, 8);
    const HeldByRank held = measure_held_by_rank(ranks / 8, 8);
    std::printf(
        "%7d %6d %6d | %6.1f %8.0f | %6.1f %10.0f | %6.1f %8.0f | %6.0f %10.0f | %6.0f | %8.1f "
        "%7.3f "
        "%7.3f | %6.0f %9.0f\n",
        cost.ranks, cost.hosts, cost.rounds, cost.said.frames, cost.said.bytes, cost.heard.frames,
        cost.heard.bytes, cost.leaving.frames, cost.leaving.bytes, cost.group_stall, cost.job_stall,
        cost.loss, cost.sent_bytes / 1e6, cost.cpu_seconds, cost.rank_seconds, held.context / 1e3,
        held.communicator / 1e3);
    std::fflush(stdout);
  }
}

}  // namespace sprat::simulation
