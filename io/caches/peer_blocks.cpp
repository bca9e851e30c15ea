// An answer that is late is worth nothing: who asked reads the file meanwhile. So deadlines are
// short, and a host that failed thrice is left alone for a while.
#include "io/caches/peer_blocks.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/base/log.hpp"
#include "comm/base/thread.hpp"

namespace sprat::io {
namespace {

/// So often in a deadline the thread looks whether one has passed.
constexpr int looks_per_deadline = 4;

}  // namespace

PeerBlocks::PeerBlocks(BlockPeers& peers, HostCache& cache,
                       std::function<std::uint64_t(const BlockKey&)> kept_bytes,
                       PeerBlocksOptions options)
    : peers_(peers),
      cache_(cache),
      kept_bytes_(std::move(kept_bytes)),
      options_(options),
      health_(peers.hosts().size()) {
  thread_ = start_thread("the blocks of peers", [this] { run(); });
}

PeerBlocks::~PeerBlocks() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  peers_.wake();
  thread_.join();
  std::unique_lock lock(mutex_);
  // The cache tells of every fetch, and what it is told here uses this object.
  served_.wait(lock, [this] { return serving_bytes_ == 0; });
  const auto left = std::exchange(questions_, {});
  lock.unlock();
  for (const auto& [number, question] : left) {
    question.told(AskOutcome::failed);
  }
}

bool PeerBlocks::may_ask(std::size_t host) const {
  const std::lock_guard lock(mutex_);
  return health_[host].may_be_asked(std::chrono::steady_clock::now());
}

bool PeerBlocks::ask(std::size_t host, const BlockKey& key, std::size_t offset,
                     std::span<std::byte> into, Told told) {
  const Time now = std::chrono::steady_clock::now();
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    const bool full = asked_bytes_ > 0 && asked_bytes_ + into.size() > options_.asked_bytes;
    if (stopping_ || full || !health_[host].may_be_asked(now)) {
      return false;
    }
    number = next_++;
    // Before it is sent: the answer may come at once.
    questions_.emplace(number, Question{.host = host,
                                        .key = key,
                                        .offset = offset,
                                        .into = into,
                                        .told = std::move(told),
                                        .deadline = now + options_.deadline});
    asked_bytes_ += into.size();
    ++counts_.asked;
  }
  const PeerHeader header{.verb = PeerVerb::ask,
                          .number = number,
                          .key = key,
                          .offset = static_cast<std::uint32_t>(offset),
                          .bytes = static_cast<std::uint32_t>(into.size()),
                          .checksum = 0};
  if (peers_.send(host, header, {}, nullptr)) {
    return true;
  }
  const std::lock_guard lock(mutex_);
  health_[host].failed(now);
  // Should the deadline have passed just now, the caller has been told.
  const bool unanswered = questions_.erase(number) > 0;
  asked_bytes_ -= unanswered ? into.size() : 0;
  return !unanswered;
}

void PeerBlocks::give(std::size_t host, const BlockKey& key, std::span<const std::byte> block,
                      std::shared_ptr<const void> owner) {
  const PeerHeader header{.verb = PeerVerb::give,
                          .number = 0,
                          .key = key,
                          .offset = 0,
                          .bytes = static_cast<std::uint32_t>(block.size()),
                          .checksum = checksum_of_body(block)};
  const bool sent = may_ask(host) && peers_.send(host, header, block, std::move(owner));
  const std::lock_guard lock(mutex_);
  counts_.given_blocks += sent ? 1 : 0;
}

PeerCounts PeerBlocks::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void PeerBlocks::run() {
  while (true) {
    std::vector<ReceivedBlock> messages;
    try {
      messages = peers_.receive(until_next_deadline());
      for (ReceivedBlock& message : messages) {
        take(std::move(message));
      }
    } catch (const std::exception& error) {
      // Questions pass their deadlines, and hosts are left alone: the job reads its files.
      log().warn("blocks of other hosts: {}", error.what());
    }
    for (const Question& question : overdue(std::chrono::steady_clock::now())) {
      question.told(AskOutcome::failed);
    }
    const std::lock_guard lock(mutex_);
    if (stopping_) {
      return;
    }
  }
}

std::chrono::nanoseconds PeerBlocks::until_next_deadline() const {
  const std::lock_guard lock(mutex_);
  if (stopping_) {
    return std::chrono::nanoseconds(0);
  }
  // A question that comes meanwhile wakes nobody: it is late by a part of its deadline at most.
  const std::chrono::nanoseconds look =
      std::chrono::nanoseconds(options_.deadline) / looks_per_deadline;
  if (questions_.empty()) {
    return look;
  }
  // All have one deadline, so the oldest question has the next one.
  const std::chrono::nanoseconds left =
      questions_.begin()->second.deadline - std::chrono::steady_clock::now();
  return std::clamp(left, std::chrono::nanoseconds(0), look);
}

std::vector<PeerBlocks::Question> PeerBlocks::overdue(Time now) {
  const std::lock_guard lock(mutex_);
  std::vector<Question> late;
  while (!questions_.empty() && questions_.begin()->second.deadline <= now) {
    Question& question = questions_.begin()->second;
    health_[question.host].failed(now);
    asked_bytes_ -= question.into.size();
    ++counts_.late;
    late.push_back(std::move(question));
    questions_.erase(questions_.begin());
  }
  return late;
}

void PeerBlocks::take(ReceivedBlock message) {
  if (message.from >= health_.size()) {
    const std::lock_guard lock(mutex_);
    ++counts_.garbage;
    return;
  }
  switch (message.header.verb) {
    case PeerVerb::ask:
      serve(message);
      return;
    case PeerVerb::give:
      keep(std::move(message));
      return;
    case PeerVerb::have:
    case PeerVerb::absent:
    case PeerVerb::busy:
      answer(std::move(message));
      return;
  }
}

void PeerBlocks::reply(std::size_t to, PeerHeader header, PeerVerb verb) {
  header.verb = verb;
  header.checksum = 0;
  // If it cannot be sent the asker's deadline passes.
  static_cast<void>(peers_.send(to, header, {}, nullptr));
}

void PeerBlocks::serve(const ReceivedBlock& message) {
  const PeerHeader asked = message.header;
  const std::size_t to = message.from;
  if (!cache_.holds(asked.key)) {
    reply(to, asked, PeerVerb::absent);
    return;
  }
  if (!begin_serving(asked.bytes)) {
    reply(to, asked, PeerVerb::busy);
    return;
  }
  // Shared with the transport, which reads from it until it is sent.
  auto body = std::make_shared<std::vector<std::byte>>(asked.bytes);
  const bool begun =
      cache_.fetch(asked.key, asked.offset, *body, [this, body, asked, to](bool there) {
        bool sent = false;
        if (there) {
          PeerHeader header = asked;
          header.verb = PeerVerb::have;
          header.checksum = checksum_of_body(*body);
          sent = peers_.send(to, header, *body, body);
        } else {
          reply(to, asked, PeerVerb::absent);
        }
        end_serving(asked.bytes, sent);
      });
  if (!begun) {
    reply(to, asked, PeerVerb::busy);
    end_serving(asked.bytes, false);
  }
}

bool PeerBlocks::begin_serving(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (serving_bytes_ > 0 && serving_bytes_ + bytes > options_.served_bytes) {
    ++counts_.turned_away;
    return false;
  }
  serving_bytes_ += bytes;
  return true;
}

void PeerBlocks::end_serving(std::size_t bytes, bool sent) {
  const std::lock_guard lock(mutex_);
  serving_bytes_ -= bytes;
  counts_.served_bytes += sent ? bytes : 0;
  // While it is locked: whoever waits for this destroys the object next.
  served_.notify_all();
}

void PeerBlocks::keep(ReceivedBlock message) {
  const PeerHeader header = message.header;
  const bool right = header.offset == 0 && kept_bytes_(header.key) == message.body.size() &&
                     checksum_of_body(message.body) == header.checksum;
  if (right && !cache_.holds(header.key)) {
    auto body = std::make_shared<const std::vector<std::byte>>(std::move(message.body));
    cache_.offer(header.key, *body, body);
  }
  const std::lock_guard lock(mutex_);
  counts_.taken_blocks += right ? 1 : 0;
  counts_.garbage += right ? 0 : 1;
}

void PeerBlocks::answer(ReceivedBlock message) {
  const PeerHeader& header = message.header;
  std::unique_lock lock(mutex_);
  const auto found = questions_.find(header.number);
  if (found == questions_.end() || found->second.host != message.from) {
    return;  // late, and already counted; or another host's guess at a number
  }
  const Question question = std::move(found->second);
  questions_.erase(found);
  asked_bytes_ -= question.into.size();
  lock.unlock();
  const AskOutcome outcome = outcome_of(header, question, message.body);
  lock.lock();
  PeerHealth& health = health_[question.host];
  if (outcome == AskOutcome::failed && header.verb != PeerVerb::busy) {
    ++counts_.garbage;
    health.failed(std::chrono::steady_clock::now());
  } else {
    health.answered();
    counts_.busy += header.verb == PeerVerb::busy ? 1 : 0;
    counts_.absent += outcome == AskOutcome::absent ? 1 : 0;
    counts_.fetched_bytes += outcome == AskOutcome::fetched ? question.into.size() : 0;
  }
  lock.unlock();
  question.told(outcome);
}

/// Copies the bytes if they are those that were asked for.
AskOutcome PeerBlocks::outcome_of(const PeerHeader& header, const Question& question,
                                  std::span<const std::byte> body) {
  const bool is_about_it = header.key == question.key && header.offset == question.offset &&
                           header.bytes == question.into.size();
  if (is_about_it && header.verb == PeerVerb::absent) {
    return AskOutcome::absent;
  }
  if (!is_about_it || header.verb != PeerVerb::have || body.size() != question.into.size() ||
      checksum_of_body(body) != header.checksum) {
    return AskOutcome::failed;
  }
  std::memcpy(question.into.data(), body.data(), body.size());
  return AskOutcome::fetched;
}

}  // namespace sprat::io
