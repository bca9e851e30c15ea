// Balanced fusion buffers: puts fill them, whoever completes the next one starts its reduction.
//
// A buffer is reduced by all_reduce, in place in memory that the ranks of a host share: its plans
// give every rank an equal shard to reduce, and gather the shards. One parameter alone is reduced
// where it lies.
#include "sprat/fusion.hpp"

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "collectives/call.hpp"
#include "collectives/fusion/fusion_agreement.hpp"
#include "collectives/fusion/fusion_layout.hpp"
#include "comm/base/check.hpp"
#include "comm/base/rank_list.hpp"

namespace sprat {

using collectives::Absence;
using collectives::FusionBuffer;
using collectives::FusionLayout;

namespace {

void check_terms(std::span<const FusionParameter> parameters, const FusionOptions& options) {
  const ReduceOp op = options.op.op();
  require(op == ReduceOp::sum || op == ReduceOp::avg || op == ReduceOp::premultiplied_sum, "op is ",
          describe(options.op),
          "; a Fusion takes sum, avg or a premultiplied sum, to which what is absent adds nothing");
  require(options.bucket_bytes > 0, "bucket_bytes is 0; 1 gives each parameter its own buffer");
  for (const FusionParameter& parameter : parameters) {
    collectives::check_reduction(parameter.dtype, parameter.dtype, options.op);
  }
}

void copy(void* to, const ConstElements& from) {
  std::copy_n(static_cast<const std::byte*>(from.data), from.bytes(), static_cast<std::byte*>(to));
}

}  // namespace

struct Fusion::Impl {
  enum class Presence : std::uint8_t { absent, arriving, present };
  struct Entry {
    Presence presence = Presence::absent;
    void* data = nullptr;  ///< Where it came from, and its result goes.
  };

  Impl(Communicator& ranks, std::vector<FusionParameter> given, FusionOptions how)
      : parameters(std::move(given)),
        options(std::move(how)),
        layout(collectives::plan_fusion(parameters, options.bucket_bytes)),
        reductions(ranks.duplicate(text(ranks.name(), ".fusion"), Failing::together)),
        agreements(ranks.duplicate(text(ranks.name(), ".fusion"), Failing::together)),
        memory(layout.bytes),
        entries(parameters.size()),
        works(layout.buffers.size()) {
    collectives::agree_on_terms(agreements, collectives::fusion_terms(parameters, options),
                                blocking());
    begin_step();
  }
  ~Impl() { close(); }

  Options blocking() const { return {.timeout = options.timeout, .blocking = true}; }
  std::byte* at(std::size_t offset) const {
    return static_cast<std::byte*>(memory.data()) + offset;
  }
  Elements slot(std::size_t index) const {
    return {at(layout.offset_of[index]), parameters[index].count, parameters[index].dtype};
  }

  void check(std::size_t index) const {
    require(index < parameters.size(), "index is ", index, "; there are ", parameters.size(),
            " parameters");
  }
  void check(std::size_t index, const Elements& data) const;
  const FusionBuffer& buffer_of(std::size_t index) const {
    return layout.buffers[layout.buffer_of[index]];
  }
  /// The copies in and out, where data is not in its buffer already.
  bool copies(std::size_t index, const void* data) const {
    return buffer_of(index).fuses() && data != slot(index).data;
  }

  void begin_step();
  void check_well();
  void claim(std::size_t index, void* data);
  void arrive(std::size_t index);
  void start_next();
  void begin_flush();
  Absence absence() const;
  void start_rest();
  void collect(std::size_t buffer);
  void settle() noexcept;
  void give_up() noexcept;
  void close();

  const std::vector<FusionParameter> parameters;
  const FusionOptions options;
  const FusionLayout layout;
  /// Two communicators of the same ranks. Reductions start whenever a buffer is full, at another
  /// moment on each rank, so the agreement in flush() needs an order of calls of its own.
  Communicator reductions, agreements;
  const Memory memory;  ///< All buffers, which each put() writes a part of.

  std::mutex mutex;  ///< Guards all below; while `flushing`, flush() alone uses them without it.
  std::vector<Entry> entries;        ///< By parameter.
  std::vector<std::size_t> missing;  ///< By buffer: how many of its parameters are not present.
  std::vector<Work> works;           ///< By buffer; of those that have started.
  std::size_t next = 0;              ///< The first buffer that has not started.
  bool flushing = false;
};

void Fusion::Impl::check(std::size_t index, const Elements& data) const {
  check(index);
  const auto& [count, dtype] = parameters[index];
  require(data.count == count && data.dtype == dtype, "parameter ", index, " is put as ",
          data.count, " ", name(data.dtype), "; the Fusion was made with ", count, " ",
          name(dtype));
  collectives::check_memory("data", data);
  const auto* first = static_cast<const std::byte*>(data.data);
  // Data inside the buffers is allowed only in its own slot: elsewhere it would be overwritten by
  // the parameter that the place belongs to.
  const bool out_of_place = first + data.bytes() <= at(0) || at(layout.bytes) <= first;
  require(out_of_place || data.data == slot(index).data, "data of parameter ", index,
          " lies in the Fusion's buffers, but not in slot(", index, ")");
}

void Fusion::Impl::begin_step() {
  const std::lock_guard lock(mutex);
  entries.assign(entries.size(), {});
  works.assign(works.size(), {});
  missing.clear();
  for (const FusionBuffer& buffer : layout.buffers) {
    missing.push_back(buffer.parameters.size());
  }
  next = 0;
  flushing = false;
}

/// Throws what failed the job. It first waits for everything that was started, so that the caller's
/// data are its own again when it sees the error.
void Fusion::Impl::check_well() {
  if (const auto failure = reductions.failure()) {
    settle();
    throw *failure;
  }
}

void Fusion::Impl::claim(std::size_t index, void* data) {
  const std::lock_guard lock(mutex);
  require(!flushing, "parameter ", index,
          " is put while flush() is under way; put the next step's once it has returned");
  check_well();
  require(entries[index].presence == Presence::absent, "parameter ", index,
          " is put twice in a step; call flush() between");
  entries[index] = {Presence::arriving, data};
}

void Fusion::Impl::arrive(std::size_t index) {
  const std::lock_guard lock(mutex);
  entries[index].presence = Presence::present;
  --missing[layout.buffer_of[index]];
  // Ranks put in different orders. Buffers start in the order of their indices everywhere, because
  // calls on a communicator must come in the same order on every rank.
  while (next < missing.size() && missing[next] == 0) {
    start_next();
  }
}

void Fusion::Impl::start_next() {
  const FusionBuffer& buffer = layout.buffers[next];
  void* const data = buffer.fuses() ? at(buffer.offset) : entries[buffer.parameters[0]].data;
  works[next] = reductions.all_reduce({data, buffer.count, buffer.dtype}, options.op,
                                      {.timeout = options.timeout});
  ++next;
}

void Fusion::Impl::begin_flush() {
  const std::lock_guard lock(mutex);
  require(!flushing, "flush() is under way in another thread");
  check_well();
  const auto arriving = std::ranges::find(entries, Presence::arriving, &Entry::presence);
  require(arriving == entries.end(), "flush() while parameter ", arriving - entries.begin(),
          " is being put in another thread; call it once every put() has returned");
  flushing = true;
}

Absence Fusion::Impl::absence() const {
  Absence absence;
  for (const Entry& entry : entries) {
    absence.push_back(entry.presence == Presence::absent);
  }
  return absence;
}

/// Starts what has not started, with zeros for what is absent: all ranks have agreed that they lack
/// the same. A buffer of which nothing is present needs no reduction, for its sum is zero.
void Fusion::Impl::start_rest() {
  for (std::size_t index = 0; index < entries.size(); ++index) {
    if (entries[index].presence == Presence::absent) {
      std::fill_n(static_cast<std::byte*>(slot(index).data), slot(index).bytes(), std::byte{0});
    }
  }
  while (next < works.size()) {
    if (missing[next] == layout.buffers[next].parameters.size()) {
      ++next;
    } else {
      start_next();
    }
  }
}

void Fusion::Impl::collect(std::size_t buffer) {
  works[buffer].wait();
  for (const std::size_t index : layout.buffers[buffer].parameters) {
    void* const data = entries[index].data;
    if (data != nullptr && copies(index, data)) {
      copy(data, slot(index));
    }
  }
}

/// Waits after a failure until nobody uses the buffers or the caller's data any more.
void Fusion::Impl::settle() noexcept {
  for (Work& work : works) {
    try {
      work.wait();
    } catch (const Error&) {
      // its caller throws the failure
    }
  }
}

void Fusion::Impl::give_up() noexcept {
  settle();
  const std::lock_guard lock(mutex);
  flushing = false;
}

void Fusion::Impl::close() {
  std::vector<int> put;
  for (std::size_t index = 0; index < entries.size(); ++index) {
    if (entries[index].presence != Presence::absent) {
      put.push_back(static_cast<int>(index));
    }
  }
  // The other ranks would wait in flush() for a rank that has left the step by an exception.
  if (!put.empty() && !reductions.failure()) {
    reductions.abort(text("its Fusion (", reductions.name(),
                          ") is destroyed in the midst of a step, before flush(): ",
                          comm::list_text("parameter", put), " put"));
  }
  settle();
}

Fusion::Fusion(Communicator& ranks, std::vector<FusionParameter> parameters,
               FusionOptions options) {
  collectives::check_process(ranks.impl());
  check_terms(parameters, options);
  impl_ = std::make_unique<Impl>(ranks, std::move(parameters), std::move(options));
}

Fusion::Fusion(Fusion&&) noexcept = default;
Fusion& Fusion::operator=(Fusion&& other) noexcept {
  Fusion taken(std::move(other));
  impl_.swap(taken.impl_);
  return *this;
}

// A child of fork() leaves its parent's Fusion as it is, as it does with communicators: threads
// that it does not have may have been changing it.
Fusion::~Fusion() {
  if (impl_ && !impl_->reductions.impl().context->here()) {
    static_cast<void>(impl_.release());
  }
}

Elements Fusion::slot(std::size_t index) const {
  impl_->check(index);
  return impl_->slot(index);
}

void Fusion::put(std::size_t index, Elements data) {
  collectives::check_process(impl_->reductions.impl());
  impl_->check(index, data);
  // The copy runs without the lock, so that several threads put at the same time: claim() keeps
  // others from this parameter, and only arrive() lets its buffer start.
  impl_->claim(index, data.data);
  if (impl_->copies(index, data.data)) {
    copy(impl_->slot(index).data, data);
  }
  impl_->arrive(index);
}

std::vector<std::size_t> Fusion::flush() {
  collectives::check_process(impl_->reductions.impl());
  impl_->begin_flush();
  std::vector<std::size_t> absent;
  try {
    const Absence absence = impl_->absence();
    collectives::agree_on_absence(impl_->agreements, absence, impl_->blocking());
    for (std::size_t index = 0; index < absence.size(); ++index) {
      if (absence[index] != 0) {
        absent.push_back(index);
      }
    }
    impl_->start_rest();
    for (std::size_t buffer = 0; buffer < impl_->works.size(); ++buffer) {
      impl_->collect(buffer);
    }
  } catch (...) {
    impl_->give_up();
    throw;
  }
  impl_->begin_step();
  return absent;
}

}  // namespace sprat
