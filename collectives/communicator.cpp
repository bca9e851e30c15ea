// The public collectives: check the contract, state the problem, post it.
#include <algorithm>
#include <numeric>

#include "collectives/call.hpp"
#include "collectives/communicator_impl.hpp"
#include "collectives/record/flight_file.hpp"
#include "comm/base/check.hpp"

namespace sprat {

using collectives::block;
using collectives::check_blocks;
using collectives::check_memory;
using collectives::check_overlap;
using collectives::check_process;
using collectives::check_rank;
using collectives::check_reduction;
using collectives::check_types;
using collectives::Collective;
using collectives::post;

namespace {

std::vector<int> host_list(const comm::Context& context, const std::vector<int>& world_ranks) {
  std::vector<int> hosts;
  for (const int rank : world_ranks) {
    hosts.push_back(context.peer(rank).host_index);
  }
  return hosts;
}

Work post_message(Communicator::Impl& impl, bool sends, ConstElements data, int peer, int tag,
                  const Options& options) {
  check_process(impl);
  // Only a receive may name any source.
  if (sends || peer != any_source) {
    check_rank(sends ? "to" : "from", peer, impl.grouping->ranks());
  }
  check_memory("data", data);
  require(tag >= 0, "tag is ", tag, "; it must not be negative");
  auto message = std::make_shared<collectives::Message>(impl.context);
  message->sends = sends;
  message->peer = peer;
  message->tag = tag;
  // One field serves both ways; a send only reads it.
  message->data = static_cast<std::byte*>(const_cast<void*>(data.data));
  message->bytes = data.bytes();
  message->timeout =
      std::min(options.timeout.value_or(impl.context->config().timeout), longest_timeout);
  message->digested = options.digested;
  impl.messages.post(message);
  if (options.blocking) {
    message->wait();
    return Work();
  }
  message->leave_unattended();
  return Work(std::move(message));
}

}  // namespace

Communicator::Impl::Impl(std::shared_ptr<comm::Context> context_,
                         collectives::Membership membership,
                         std::shared_ptr<const collectives::Rules> rules_)
    : context(std::move(context_)),
      rules(std::move(rules_)),
      grouping(
          std::make_shared<collectives::Grouping>(host_list(*context, membership.world_ranks))),
      executor(context, std::move(membership), grouping, rules),
      messages(context, executor) {
  for (int rank = 0; rank < grouping->ranks(); ++rank) {
    hosts.push_back(grouping->host_of(rank));
  }
}

Communicator::Communicator(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&& other) noexcept {
  Communicator taken(std::move(other));
  impl_.swap(taken.impl_);
  return *this;
}

// A child of fork() leaves its parent's communicator as it is: a thread that the child does not
// have may have been changing it at that moment.
Communicator::~Communicator() {
  if (impl_ && !impl_->context->here()) {
    static_cast<void>(impl_.release());
  }
}

[[gnu::hot]] int Communicator::rank() const noexcept { return impl_->executor.membership().rank; }
[[gnu::hot]] int Communicator::size() const noexcept { return impl_->grouping->ranks(); }
const std::string& Communicator::name() const noexcept { return impl_->executor.membership().name; }
const std::vector<int>& Communicator::hosts() const noexcept { return impl_->hosts; }

std::optional<Error> Communicator::failure() const {
  const Error* failure = impl_->executor.scope()->first();
  return failure == nullptr ? std::nullopt : std::optional(*failure);
}

std::string Communicator::flight_record() const {
  check_process(*impl_);  // in a child of fork() the status page's descriptor is closed
  return collectives::flight_record_of(*impl_->context);
}

double Communicator::seconds_waited() const noexcept { return impl_->context->seconds_waited(); }

// The world stands for the job, and so do those that fail with it.
void Communicator::abort(std::string_view reason) {
  check_process(*impl_);
  comm::Context& context = *impl_->context;
  const comm::FailureScope& scope = *impl_->executor.scope();
  const bool of_job = scope.domain() == 0;
  const Error error(ErrorCode::aborted,
                    text(context.describe_peer(context.rank()), " aborted ",
                         of_job ? std::string("the job") : name(), ": ", reason),
                    context.rank());
  if (of_job) {
    context.fail(error);
  } else {
    context.fail(scope, error);
  }
  context.await_record();
}

void Communicator::revoke(std::string_view reason) {
  check_process(*impl_);
  comm::Context& context = *impl_->context;
  context.fail(*impl_->executor.scope(),
               Error(ErrorCode::aborted,
                     text(context.describe_peer(context.rank()), " revoked ", name(),
                          reason.empty() ? "" : ": ", reason),
                     context.rank()),
               comm::Context::Record::none);
}

[[gnu::hot]] Work Communicator::all_reduce(Elements data, const Reduction& op, Options options) {
  return all_reduce(data, data, op, options);
}

[[gnu::hot]] Work Communicator::all_reduce(ConstElements in, Elements out, const Reduction& op,
                                           Options options) {
  check_memory("in", in);
  check_memory("out", out);
  require(in.count == out.count, "in has ", in.count, " elements and out ", out.count,
          "; they must be equal");
  check_reduction(in.dtype, out.dtype, op);
  check_overlap(in, out, in.data, out.data);
  return post(*impl_, {Collective::all_reduce, in.count, in, out, op}, options);
}

[[gnu::hot]] Work Communicator::all_gather(ConstElements part, Elements whole, Options options) {
  check_memory("part", part);
  check_memory("whole", whole);
  check_blocks("part", part, size());
  require(whole.count == part.count * static_cast<std::size_t>(size()), "whole has ", whole.count,
          " elements; ", size(), " ranks with a part of ", part.count, " each need ",
          part.count * static_cast<std::size_t>(size()));
  check_types(part.dtype, whole.dtype);
  check_overlap(part, whole, part.data, block(whole.data, rank(), part.bytes()));
  return post(*impl_, {Collective::all_gather, part.count, part, whole}, options);
}

[[gnu::hot]] Work Communicator::reduce_scatter(ConstElements whole, Elements part,
                                               const Reduction& op, Options options) {
  check_memory("whole", whole);
  check_memory("part", part);
  check_blocks("part", part, size());
  require(whole.count == part.count * static_cast<std::size_t>(size()), "whole has ", whole.count,
          " elements; ", size(), " ranks with a part of ", part.count, " each need ",
          part.count * static_cast<std::size_t>(size()));
  check_reduction(whole.dtype, part.dtype, op);
  check_overlap(whole, part, block(whole.data, rank(), part.count * size_of(whole.dtype)),
                part.data);
  return post(*impl_, {Collective::reduce_scatter, part.count, whole, part, op}, options);
}

[[gnu::hot]] Work Communicator::broadcast(Elements data, int root, Options options) {
  check_memory("data", data);
  check_rank("root", root, size());
  return post(*impl_, {Collective::broadcast, data.count, data, data, ReduceOp::sum, root},
              options);
}

[[gnu::hot]] Work Communicator::all_to_all(ConstElements in, Elements out, Options options) {
  check_memory("in", in);
  check_memory("out", out);
  require(in.count == out.count && in.count % static_cast<std::size_t>(size()) == 0, "in has ",
          in.count, " elements and out ", out.count, "; both must be ", size(), " equal blocks");
  check_types(in.dtype, out.dtype);
  check_overlap(in, out, in.data, out.data);
  // In place, blocks swap places: one would be overwritten before its receiver has read it, so the
  // input is copied first.
  const bool in_place = in.data == out.data && size() > 1;
  return post(*impl_,
              {.collective = Collective::all_to_all,
               .count = in.count / static_cast<std::size_t>(size()),
               .in = in,
               .out = out,
               .stage_input = in_place},
              options);
}

void Communicator::barrier(Options options) {
  // It returns no Work, so it waits itself.
  options.blocking = true;
  start_barrier(options);
}

[[gnu::hot]] Work Communicator::start_barrier(Options options) {
  const Elements none{nullptr, 0, DType::u8};
  return post(*impl_, {Collective::barrier, 0, none, none}, options);
}

Work Communicator::send(ConstElements data, int to, int tag, Options options) {
  return post_message(*impl_, true, data, to, tag, options);
}

Work Communicator::recv(Elements data, int from, int tag, Options options) {
  return post_message(*impl_, false, data, from, tag, options);
}

}  // namespace sprat
