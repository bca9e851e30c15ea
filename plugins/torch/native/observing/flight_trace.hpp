// c10d's flight record of our operations, as _dump_fr_trace gives it and torchfrtrace reads it.
#pragma once

#include <ATen/ATen.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "sprat/communicator.hpp"

namespace sprat::pytorch {

struct Operation;

/// The last operations of this process, of all groups: a ring of TORCH_FR_BUFFER_SIZE entries (2000
/// if it is not set, 0 records nothing). PyTorch's own recorder is closed to backends that are not
/// built with it, so this keeps its own entries and hands them out in the same form. Any thread.
class FlightTrace final {
 public:
  /// Without `records` it keeps nothing, whatever TORCH_FR_BUFFER_SIZE says.
  explicit FlightTrace(bool records);
  ~FlightTrace();

  /// A group as entries name it; the same again where a name comes back. `ranks` are the job's.
  std::size_t add_group(const std::string& name, const std::string& description,
                        const std::vector<std::uint64_t>& ranks);
  bool records() const { return capacity_ > 0; }

  /// What begins. `rank` is the caller's in the group.
  struct Begun {
    std::size_t group = 0;
    int rank = 0;
    std::chrono::milliseconds timeout{};
  };
  /// The entry's number, which says it to the functions below; none if nothing is recorded.
  std::optional<std::uint64_t> begin(const Operation& operation, const Begun& begun);
  /// The operation's Work, so that a dump can say whether it is done though nobody has looked.
  void started(std::optional<std::uint64_t> entry, const sprat::Work& work);
  /// The operation has ended, well or not. `duration` in ms, if it was timed.
  void end(std::optional<std::uint64_t> entry, bool well, std::optional<float> duration);

  /// What a dump has in it.
  struct Wanted {
    bool operations = true, frames = true, only_active = false;
  };
  /// A dictionary as PyTorch's own recorder makes it, as a pickle.
  std::string dump(const Wanted& wanted);
  /// Of that form, which PyTorch's readers compare: what this PyTorch's own dumps say.
  void set_version(const std::string& version);
  /// Writes a dump to the file of TORCH_FR_DUMP_TEMP_FILE, whose name gets `rank` behind it. Does
  /// nothing where that is not set, nor the second time.
  void dump_after_failure(int rank);

 private:
  struct Shapes;
  struct Entry;
  struct Group;
  static c10::IValue entry_value(const Entry& entry, const Group& group);
  std::vector<Entry> wanted_entries(const Wanted& wanted);
  Entry* find(std::optional<std::uint64_t> entry);

  const std::size_t capacity_;
  const bool with_frames_;
  std::mutex mutex_;  ///< Guards the rest.
  std::vector<Entry> entries_;
  std::vector<Group> groups_;
  std::uint64_t next_ = 0;  ///< Number of the next entry; it lies at number % capacity_.
  std::string version_ = "2.10";
  bool dumped_ = false;
};

}  // namespace sprat::pytorch
