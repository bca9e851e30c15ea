// Carries out the plans of one rank: starts messages and collectives, waits for them where the plan
// says, and computes pairs of chunks in between, while a progress thread moves the bytes.
#include <algorithm>
#include <array>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/base/check.hpp"
#include "mp/context/agreement.hpp"
#include "mp/context/chunks.hpp"
#include "mp/context/key_border.hpp"
#include "mp/context/key_spans.hpp"
#include "mp/context/plan.hpp"
#include "mp/failure.hpp"
#include "sprat/buffer.hpp"
#include "sprat/context.hpp"

namespace sprat {
std::array<ContextPiece, 2> context_pieces(int length, int ranks, int rank) {
  const int count = mp::context::chunk_length(length, ranks);
  require(rank >= 0 && rank < ranks, "rank ", rank, " has no piece of a sequence among ", ranks,
          " context parallel ranks; they are 0 to ", ranks - 1);
  const std::array<int, 2> chunks = mp::context::chunks_of(rank, ranks);
  return {ContextPiece{chunks[0] * count, count}, ContextPiece{chunks[1] * count, count}};
}

namespace {

/// Elements of a chunk's K and V, or of their gradients.
std::size_t chunk_elements(const layers::AttentionShape& shape, int chunk) {
  return std::size_t(shape.sequences) * std::size_t(chunk) * 2 * std::size_t(shape.heads) *
         std::size_t(shape.head_width);
}

/// Gradients lie behind the places of keys, in whichever pass has more of them.
int key_places(const mp::context::Plan& forward, const mp::context::Plan& backward) {
  return std::max(forward.key_places, backward.key_places);
}

}  // namespace

ContextCost context_cost(const layers::AttentionShape& shape, int ranks, int rank,
                         const ContextOptions& options) {
  const int chunk = context_pieces(shape.length, ranks, rank)[0].count;
  const mp::context::Way way = mp::context::way_named(options.cp_comm_type);
  const mp::context::Plan forward = mp::context::plan_forward(way, ranks, rank);
  const mp::context::Plan backward = mp::context::plan_backward(way, ranks, rank);
  const std::size_t bytes = chunk_elements(shape, chunk) * sizeof(float);
  const mp::context::Traffic back = received(backward);
  return {.memory_bytes =
              std::size_t(key_places(forward, backward) + backward.gradient_places) * bytes +
              mp::context::KeyBorder::bytes(shape, chunk),
          .forward_bytes = received(forward).keys * bytes,
          .backward_bytes = (back.keys + back.gradients) * bytes};
}

class ContextAttention::Impl {
  using AttentionBackward = layers::AttentionBackward;
  using AttentionForward = layers::AttentionForward;
  using AttentionInput = layers::AttentionInput;
  using AttentionKeys = layers::AttentionKeys;
  using AttentionPiece = layers::AttentionPiece;
  using AttentionQueries = layers::AttentionQueries;
  using AttentionShape = layers::AttentionShape;
  using Action = mp::context::Action;
  using Content = mp::context::Content;
  using Op = mp::context::Op;
  using Plan = mp::context::Plan;

 public:
  Impl(Communicator& ranks, const AttentionShape& shape, const ContextOptions& options)
      : Impl(ranks, shape, mp::context::agree_on_attention(ranks, shape, options.cp_comm_type)) {}

  const AttentionShape& rank_shape() const noexcept { return rank_shape_; }
  std::size_t memory_bytes() const noexcept {
    return memory_.bytes() + mp::context::KeyBorder::bytes(shape_, chunk_);
  }

  void forward(const GemmBackend& gemm, const AttentionForward& pass, int sequences) {
    call(sequences, [&] {
      copy_own_keys(forward_, pass.input);
      border_.restart(sequences);
      int chunk = -1;
      run(forward_, [&](const Action& action) {
        if (action.chunk != chunk) {
          chunk = action.chunk;
          border_.take(spans_of(chunk), span_of(chunk), keys_at(action, pass.input));
        }
        attend(gemm, pass, action);
      });
    });
  }

  void backward_input(const GemmBackend& gemm, const AttentionBackward& pass, int sequences) {
    call(sequences, [&] {
      copy_own_keys(backward_, pass.input);
      for_each_own_row([&](int, std::ptrdiff_t row, std::ptrdiff_t) {
        std::fill_n(pass.dquery + row * pass.input.stride, width_, 0.0f);
      });
      run(backward_, [&](const Action& action) { attend(gemm, pass, action); });
      for_each_own_row([&](int half, std::ptrdiff_t row, std::ptrdiff_t in_chunk) {
        const float* from = gradients(backward_.own_gradients[half]) + in_chunk * 2 * width_;
        std::copy_n(from, width_, pass.dkey + row * pass.input.stride);
        std::copy_n(from + width_, width_, pass.dvalue + row * pass.input.stride);
      });
    });
  }

 private:
  /// Of what the ranks have agreed on.
  Impl(Communicator& ranks, const AttentionShape& shape, mp::context::Way way);

  /// Calls compute() if there are sequences. Whatever throws, the others are told.
  template <class Compute>
  void call(int sequences, const Compute& compute);
  void begin_call(int sequences);
  /// Calls visit(half, row of the rank's input, row of the half's chunk).
  template <class Visit>
  void for_each_own_row(const Visit& visit) const;
  void copy_own_keys(const Plan& plan, const AttentionInput& input);

  mp::context::Span span_of(int chunk) const { return {chunk * chunk_, (chunk + 1) * chunk_}; }
  mp::context::KeySpans spans_of(int chunk) const {
    return mp::context::key_spans(span_of(chunk), layers::attention_keys);
  }
  /// Of the rank's rows of a sequence, the first of this chunk of its own.
  int own_row(int chunk) const { return chunk < ranks_->size() ? 0 : chunk_; }
  float* keys(int place) const { return memory_.as<float>().data() + place_offset(place); }
  float* gradients(int place) const { return keys(key_places_ + place); }
  std::size_t place_offset(int place) const { return std::size_t(place) * chunk_elements_; }
  AttentionKeys keys_at(const Action& action, const AttentionInput& input) const;
  AttentionQueries queries_of(const Action& action, const AttentionInput& input) const;
  AttentionPiece piece_of(const Action& action, const mp::context::Span& keys) const;

  void attend(const GemmBackend& gemm, const AttentionForward& pass, const Action& action) const;
  void attend(const GemmBackend& gemm, const AttentionBackward& pass, const Action& action) const;

  template <class Attend>
  void run(const Plan& plan, const Attend& attend);
  Work start(const Plan& plan, const Action& action);
  void change_gradients(const Action& action);
  [[noreturn]] void fail(std::exception_ptr cause);

  AttentionShape shape_, rank_shape_;
  std::optional<Communicator> ranks_;  ///< Of its own: tags of its users' messages are theirs.
  int chunk_ = 0, width_ = 0;
  // Of the call under way:
  int sequences_ = 0;
  std::size_t chunk_elements_ = 0;  ///< Of K and V, or of their gradients.
  Plan forward_, backward_;
  int key_places_ = 0;
  Memory memory_;
  mp::context::KeyBorder border_;
  std::vector<Work> works_;  ///< By action of the call under way.
};

// A length that cannot be cut is refused on every rank alike, once all are known to have the same.
ContextAttention::Impl::Impl(Communicator& ranks, const AttentionShape& shape, mp::context::Way way)
    : shape_(shape),
      ranks_(ranks.duplicate(text(ranks.name(), ".attention"), Failing::together)),
      chunk_(mp::context::chunk_length(shape.length, ranks.size())),
      width_(shape.heads * shape.head_width),
      sequences_(shape.sequences),
      chunk_elements_(chunk_elements(shape, chunk_)),
      forward_(mp::context::plan_forward(way, ranks.size(), ranks.rank())),
      backward_(mp::context::plan_backward(way, ranks.size(), ranks.rank())),
      key_places_(key_places(forward_, backward_)),
      memory_(place_offset(key_places_ + backward_.gradient_places) * sizeof(float)),
      border_(shape, chunk_) {
  rank_shape_ = shape;
  rank_shape_.length = 2 * chunk_;
}

template <class Compute>
void ContextAttention::Impl::call(int sequences, const Compute& compute) {
  works_.clear();
  try {
    begin_call(sequences);
    if (sequences > 0) {
      compute();
    }
  } catch (...) {
    fail(std::current_exception());
  }
}

/// Places of fewer sequences are shorter, so that they are messages without a gap.
void ContextAttention::Impl::begin_call(int sequences) {
  require(sequences >= 0 && sequences <= shape_.sequences, "a call of ", sequences,
          " sequences; this attention has memory for ", shape_.sequences);
  AttentionShape shape = shape_;
  shape.sequences = sequences_ = sequences;
  chunk_elements_ = chunk_elements(shape, chunk_);
}

template <class Visit>
void ContextAttention::Impl::for_each_own_row(const Visit& visit) const {
  for (int sequence = 0; sequence < sequences_; ++sequence) {
    for (int row = 0; row < 2 * chunk_; ++row) {
      visit(row / chunk_, std::ptrdiff_t{sequence} * 2 * chunk_ + row,
            std::ptrdiff_t{sequence} * chunk_ + row % chunk_);
    }
  }
}

/// A message is contiguous: of each row K, then V.
void ContextAttention::Impl::copy_own_keys(const Plan& plan, const AttentionInput& input) {
  for_each_own_row([&](int half, std::ptrdiff_t row, std::ptrdiff_t in_chunk) {
    float* to = keys(plan.own_keys[half]) + in_chunk * 2 * width_;
    std::copy_n(input.key + row * input.stride, width_, to);
    std::copy_n(input.value + row * input.stride, width_, to + width_);
  });
}

layers::AttentionKeys ContextAttention::Impl::keys_at(const Action& action,
                                                      const AttentionInput& input) const {
  if (action.place == mp::context::callers_place) {
    const std::ptrdiff_t first = std::ptrdiff_t{own_row(action.chunk)} * input.stride;
    return {.key = input.key + first,
            .value = input.value + first,
            .stride = input.stride,
            .sequence_rows = 2 * chunk_};
  }
  const float* place = keys(action.place);
  return {.key = place, .value = place + width_, .stride = 2 * width_, .sequence_rows = chunk_};
}

layers::AttentionQueries ContextAttention::Impl::queries_of(const Action& action,
                                                            const AttentionInput& input) const {
  return {.query = input.query + std::ptrdiff_t{own_row(action.query_chunk)} * input.stride,
          .stride = input.stride,
          .sequence_rows = 2 * chunk_};
}

layers::AttentionPiece ContextAttention::Impl::piece_of(const Action& action,
                                                        const mp::context::Span& keys) const {
  return {.sequences = sequences_,
          .heads = shape_.heads,
          .head_width = shape_.head_width,
          .first_query = action.query_chunk * chunk_,
          .queries = chunk_,
          .first_key = keys.first,
          .keys = keys.count()};
}

void ContextAttention::Impl::attend(const GemmBackend& gemm, const AttentionForward& pass,
                                    const Action& action) const {
  const mp::context::KeySpans spans = spans_of(action.chunk);
  // On the diagonal the queries end with the chunk, and so may the last block of keys.
  const bool diagonal = action.query_chunk == action.chunk;
  const mp::context::Span border = diagonal ? spans.border : spans.whole_border();
  const mp::context::Span direct = diagonal ? spans.direct : spans.whole_direct();
  const int row = own_row(action.query_chunk);
  layers::AttentionPieceForward piece{.queries = queries_of(action, pass.input),
                                      .keys = border_.keys(),
                                      .out = pass.out + std::ptrdiff_t{row} * pass.out_stride,
                                      .out_stride = pass.out_stride,
                                      .rows = {pass.rows.highest + row, pass.rows.share + row},
                                      .workspace = pass.workspace};
  if (border.count() > 0) {
    layers::attention_forward_piece(gemm, piece_of(action, border), piece);
  }
  if (direct.count() > 0) {
    piece.keys = keys_at(action, pass.input);
    const std::ptrdiff_t behind =
        std::ptrdiff_t{direct.first - span_of(action.chunk).first} * piece.keys.stride;
    piece.keys.key += behind;
    piece.keys.value += behind;
    layers::attention_forward_piece(gemm, piece_of(action, direct), piece);
  }
}

void ContextAttention::Impl::attend(const GemmBackend& gemm, const AttentionBackward& pass,
                                    const Action& action) const {
  const int row = own_row(action.query_chunk);
  const std::ptrdiff_t out = std::ptrdiff_t{row} * pass.out_stride;
  float* sums = gradients(action.gradients);
  layers::attention_backward_piece(gemm, piece_of(action, span_of(action.chunk)),
                                   {.queries = queries_of(action, pass.input),
                                    .keys = keys_at(action, pass.input),
                                    .out = pass.out + out,
                                    .dout = pass.dout + out,
                                    .out_stride = pass.out_stride,
                                    .rows = {pass.rows.highest + row, pass.rows.share + row},
                                    .dquery = pass.dquery + std::ptrdiff_t{row} * pass.input.stride,
                                    .dkeys = {.key = sums,
                                              .value = sums + width_,
                                              .stride = 2 * width_,
                                              .sequence_rows = chunk_},
                                    .workspace = pass.workspace});
}

template <class Attend>
void ContextAttention::Impl::run(const Plan& plan, const Attend& attend) {
  works_.assign(plan.actions.size(), Work());
  for (std::size_t at = 0; at < plan.actions.size(); ++at) {
    const Action& action = plan.actions[at];
    switch (action.op) {
      case Op::send:
      case Op::receive:
      case Op::gather:
      case Op::reduce_scatter:
        works_[at] = start(plan, action);
        break;
      case Op::finish:
        works_[action.started].wait();
        break;
      case Op::clear:
      case Op::add:
        change_gradients(action);
        break;
      case Op::attend:
        attend(action);
        break;
    }
  }
}

Work ContextAttention::Impl::start(const Plan& plan, const Action& action) {
  const bool has_keys = action.content == Content::keys;
  const auto at = [&](int place, int chunks) {
    return Elements{has_keys ? keys(place) : gradients(place),
                    std::size_t(chunks) * chunk_elements_, DType::f32};
  };
  const int half = action.chunk < plan.ranks ? 0 : 1;
  const Elements own = at((has_keys ? plan.own_keys : plan.own_gradients)[half], 1);
  // Ranks have keys and gradients of one chunk under way between them at once.
  const int tag = action.chunk + (has_keys ? 0 : mp::context::chunk_count(plan.ranks));
  switch (action.op) {
    case Op::send:
      return ranks_->send(at(action.place, 1), action.peer, tag);
    case Op::receive:
      return ranks_->recv(at(action.place, 1), action.peer, tag);
    case Op::gather:
      return ranks_->all_gather(own, at(half * plan.ranks, plan.ranks));
    case Op::reduce_scatter:
      return ranks_->reduce_scatter(at(half * plan.ranks, plan.ranks), own);
    case Op::finish:
    case Op::clear:
    case Op::attend:
    case Op::add:
      break;
  }
  return {};
}

void ContextAttention::Impl::change_gradients(const Action& action) {
  float* to = gradients(action.place);
  if (action.op == Op::clear) {
    std::fill_n(to, chunk_elements_, 0.0f);
    return;
  }
  const float* from = gradients(action.from);
  for (std::size_t i = 0; i < chunk_elements_; ++i) {
    to[i] += from[i];
  }
}

void ContextAttention::Impl::fail(std::exception_ptr cause) {
  const Error error =
      failure_at(text("attention of rank ", ranks_->rank(), " of ", ranks_->name()), cause);
  // The others wait for what this rank will never send; what is under way ends by it, too.
  ranks_->abort(error.what());
  for (Work& work : works_) {
    try {
      work.wait();
    } catch (const Error&) {
      // Of the same failure; its memory is this rank's again.
    }
  }
  throw Error(error);
}

ContextAttention::ContextAttention(Communicator& ranks, const layers::AttentionShape& shape,
                                   const ContextOptions& options)
    : impl_(std::make_unique<Impl>(ranks, shape, options)) {}
ContextAttention::ContextAttention(ContextAttention&&) noexcept = default;
ContextAttention& ContextAttention::operator=(ContextAttention&&) noexcept = default;
ContextAttention::~ContextAttention() = default;

const layers::AttentionShape& ContextAttention::rank_shape() const noexcept {
  return impl_->rank_shape();
}
void ContextAttention::forward(const GemmBackend& gemm, const layers::AttentionForward& pass,
                               std::optional<int> sequences) {
  impl_->forward(gemm, pass, sequences.value_or(rank_shape().sequences));
}
void ContextAttention::backward_input(const GemmBackend& gemm,
                                      const layers::AttentionBackward& pass,
                                      std::optional<int> sequences) {
  impl_->backward_input(gemm, pass, sequences.value_or(rank_shape().sequences));
}
std::size_t ContextAttention::memory_bytes() const noexcept { return impl_->memory_bytes(); }

}  // namespace sprat
