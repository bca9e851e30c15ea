// The C API's reductions that are made at run time: numbers from 64 on, the process's own.
#include "plugins/c/op.hpp"

#include <pthread.h>

#include <mutex>
#include <unordered_map>
#include <utility>

#include "plugins/c/guard.hpp"

namespace sprat::c {
namespace {

#define SPRAT_SAME_OP(name) \
  static_assert(static_cast<int>(SPRAT_##name) == static_cast<int>(ReduceOp::name))
SPRAT_SAME_OP(sum);
SPRAT_SAME_OP(prod);
SPRAT_SAME_OP(min);
SPRAT_SAME_OP(max);
SPRAT_SAME_OP(avg);
SPRAT_SAME_OP(band);
SPRAT_SAME_OP(bor);
SPRAT_SAME_OP(bxor);
SPRAT_SAME_OP(land);
SPRAT_SAME_OP(lor);
#undef SPRAT_SAME_OP

constexpr int first_created = 64;

/// Any thread. Numbers are never used twice, so that a call with an op that has been freed is an
/// error and not another op.
class Created {
 public:
  /// fork() holds the lock, so that no other thread has it at that moment and the child can take
  /// it.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }
  sprat_op add(Reduction reduction) {
    const std::lock_guard lock(mutex_);
    if (next_ == SPRAT_last_op) {
      throw Error(ErrorCode::unavailable, "this process has created as many ops as it can");
    }
    reductions_.emplace(next_, std::move(reduction));
    return static_cast<sprat_op>(next_++);
  }
  Reduction at(int number) const {
    const std::lock_guard lock(mutex_);
    const auto found = reductions_.find(number);
    if (found == reductions_.end()) {
      refuse(number);
    }
    return found->second;
  }
  void remove(int number) {
    const std::lock_guard lock(mutex_);
    if (reductions_.erase(number) == 0) {
      refuse(number);
    }
  }

 private:
  [[noreturn]] static void refuse(int number) {
    throw Error(
        ErrorCode::invalid_argument,
        "op " + std::to_string(number) + " is none of sprat_op, nor one created and not yet freed");
  }

  mutable std::mutex mutex_;  ///< Guards both.
  std::unordered_map<int, Reduction> reductions_;
  int next_ = first_created;
};

/// Of the process: a number must mean the same to every communicator and thread.
Created& created() {
  static Created& ops = *[] {
    auto* const made = new Created;  // outlives static destructors of callers
    pthread_atfork([] { created().lock(); }, [] { created().unlock(); },
                   [] { created().unlock(); });
    return made;
  }();
  return ops;
}

}  // namespace

Reduction reduction_of(sprat_op op) {
  const int number = op;
  const auto built_in = all_reduce_ops();
  const bool is_built_in = number >= 0 && static_cast<std::size_t>(number) < built_in.size();
  return is_built_in ? built_in[number] : created().at(number);
}

}  // namespace sprat::c

using namespace sprat;

sprat_status sprat_op_create(const char* name, sprat_op_function function, void* context,
                             sprat_op* out) {
  return c::guard([&] {
    c::deref(out, "out");
    const char& first = c::deref(name, "name");
    c::deref(function, "function");
    const auto call = [function, context](const void* left, void* right, std::size_t count,
                                          DType dtype) {
      function(left, right, count, static_cast<sprat_dtype>(dtype), context);
    };
    *out = c::created().add(Reduction::user({&first, call}));
  });
}

sprat_status sprat_op_create_premultiplied_sum(double factor, sprat_op* out) {
  return c::guard(
      [&] { c::deref(out, "out") = c::created().add(Reduction::premultiplied_sum(factor)); });
}

sprat_status sprat_op_free(sprat_op op) {
  return c::guard([&] { c::created().remove(op); });
}
