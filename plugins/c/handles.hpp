// What the C API's handles hold, and how its arguments become those of C++.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plugins/c/guard.hpp"
#include "sprat/communicator.hpp"

struct sprat_comm {
  sprat::Communicator communicator;
};
struct sprat_work {
  sprat::Work work;
};
struct sprat_memory {
  sprat::Memory memory;
};

namespace sprat::c {

[[noreturn]] void refuse(const std::string& message);
DType dtype_from(sprat_dtype dtype);
Communicator& communicator_of(sprat_comm* comm);
/// size() blocks of `count` elements.
std::size_t whole_count(Communicator& communicator, std::size_t count);
/// An array of one count for each rank; null is empty.
std::span<const std::size_t> counts_from(Communicator& communicator, const std::size_t* counts);
/// The sum of counts.
std::size_t total(std::span<const std::size_t> counts);
Options options_from(const sprat_options* options, bool blocking);
/// Of a reduction's result.
DType output_dtype(const sprat_options* options, DType input);

/// What a thread calls between sprat_group_begin() and sprat_group_end().
class Group {
 public:
  void begin() { ++depth_; }
  bool open() const { return depth_ > 0; }
  void add(Work work) { works_.push_back(std::move(work)); }
  /// All of its works as one, once the outermost group ends. Throws if there is none.
  Work end();

 private:
  int depth_ = 0;
  std::vector<Work> works_;
};
Group& group_of_this_thread() noexcept;

/// Starts an operation; hands its Work to *out; if that is null, to this thread's group, or waits
/// for it if there is none.
template <class Start>
sprat_status start(const sprat_options* options, sprat_work** out, Start&& operation) noexcept {
  return guard([&] {
    // The handle is made first: once the operation runs, nothing may fail before it is handed over.
    auto handle = out == nullptr ? nullptr : std::make_unique<sprat_work>();
    Group& group = group_of_this_thread();
    Work work = operation(options_from(options, out == nullptr && !group.open()));
    if (out == nullptr && group.open()) {
      group.add(std::move(work));
    } else if (out == nullptr) {
      work.wait();
    } else {
      handle->work = std::move(work);
      *out = handle.release();
    }
  });
}

}  // namespace sprat::c
