#include "plugins/torch/native/observing/flight_trace.hpp"

#include <c10/util/ApproximateClock.h>
#include <c10/util/Logging.h>
#include <torch/csrc/jit/serialization/pickler.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <thread>
#include <torch/csrc/distributed/c10d/Utils.hpp>
#include <utility>

#include "plugins/torch/native/work.hpp"
#include "sprat/sprat.h"

namespace sprat::pytorch {
namespace {

using Dict = c10::impl::GenericDict;
using List = c10::impl::GenericList;

Dict new_dict() { return Dict(c10::AnyType::get(), c10::AnyType::get()); }
List new_list() { return List(c10::AnyType::get()); }

// c10d's variables, each also under the name that it had when the recorder was NCCL's alone.
std::vector<std::string> buffer_size() {
  return {"TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"};
}
std::vector<std::string> dump_file() {
  return {"TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"};
}
constexpr int usual_capacity = 2000;

/// torchfrtrace knows these names, and refuses others.
std::string operation_name(c10d::OpType type, int rank, int peer) {
  using c10d::OpType;
  switch (type) {
    case OpType::BROADCAST:
      return "broadcast";
    case OpType::ALLREDUCE:
    case OpType::_ALLREDUCE_SPARSE:
      return "all_reduce";
    case OpType::ALLREDUCE_COALESCED:
      return "allreduce_coalesced";
    case OpType::REDUCE:
      return "reduce";
    case OpType::ALLGATHER:
      return "all_gather";
    case OpType::_ALLGATHER_BASE:
      return "_all_gather_base";
    case OpType::ALLGATHER_COALESCED:
      return "all_gather_into_tensor_coalesced";
    case OpType::GATHER:
      return "gather";
    case OpType::SCATTER:
      return "scatter";
    case OpType::REDUCE_SCATTER:
      return "reduce_scatter";
    case OpType::_REDUCE_SCATTER_BASE:
      return "_reduce_scatter_base";
    case OpType::ALLTOALL_BASE:
    case OpType::ALLTOALL:
      return "all_to_all";
    case OpType::BARRIER:
      return "all_reduce_barrier";
    case OpType::SEND:
      return "send " + std::to_string(rank) + "->" + std::to_string(peer);
    case OpType::RECV:
    case OpType::RECVANYSOURCE:
      // Who will send to recvAnysource is not known. A rank must stand there, and its own cannot be
      // taken for a sender.
      return "recv " + std::to_string(rank) + "<-" + std::to_string(peer < 0 ? rank : peer);
    default:  // not all are named: PyTorch adds operations with every release
      return "coalesced";
  }
}

std::string pickled(const c10::IValue& value) {
  std::string out;
  torch::jit::Pickler pickler([&](const char* data, std::size_t size) { out.append(data, size); },
                              nullptr, nullptr, nullptr, nullptr, /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(value);
  pickler.stop();
  return out;
}

}  // namespace

/// Shapes and types of a list of tensors.
struct FlightTrace::Shapes {
  c10::SmallVector<std::int64_t, 8> sizes;
  c10::SmallVector<std::int64_t, 4> dimensions;
  c10::SmallVector<at::ScalarType, 4> types;

  static Shapes of(const std::vector<at::Tensor>& tensors, bool one_for_each_rank) {
    Shapes shapes;
    if (one_for_each_rank && !tensors.empty()) {
      shapes.add_joined(tensors);
      return shapes;
    }
    for (const at::Tensor& tensor : tensors) {
      shapes.add(tensor);
    }
    return shapes;
  }

  void add(const at::Tensor& tensor) {
    for (const std::int64_t size : tensor.sizes()) {
      sizes.push_back(size);
    }
    dimensions.push_back(tensor.dim());
    types.push_back(tensor.scalar_type());
  }

  /// A list that holds one tensor for each rank, as the one tensor that PyTorch's recorder shows:
  /// its readers compare that one's elements with the other side's.
  void add_joined(const std::vector<at::Tensor>& tensors) {
    const at::Tensor& first = tensors.front();
    const bool equal = std::ranges::all_of(
        tensors, [&](const at::Tensor& one) { return one.sizes() == first.sizes(); });
    std::int64_t total = 0;
    for (const at::Tensor& tensor : tensors) {
      total += tensor.numel();
    }
    sizes.push_back(equal ? static_cast<std::int64_t>(tensors.size()) : total);
    if (equal) {
      for (const std::int64_t size : first.sizes()) {
        sizes.push_back(size);
      }
    }
    dimensions.push_back(equal ? first.dim() + 1 : 1);
    types.push_back(first.scalar_type());
  }

  List size_lists() const {
    List lists = new_list();
    std::size_t at = 0;
    for (const std::int64_t count : dimensions) {
      List list = new_list();
      for (std::int64_t i = 0; i < count; ++i) {
        list.push_back(sizes[at++]);
      }
      lists.push_back(list);
    }
    return lists;
  }

  List type_names() const {
    List names = new_list();
    for (const at::ScalarType type : types) {
      names.push_back(std::string(c10::toString(type)));
    }
    return names;
  }
};

struct FlightTrace::Entry {
  std::uint64_t number = 0, operation = 0, collective = 0, message = 0;
  std::size_t group = 0;
  c10d::OpType type = c10d::OpType::UNKNOWN;
  int rank = 0, peer = -1;
  std::int64_t timeout_ms = 0;
  c10::time_t created = 0, started = 0, completed = 0;  ///< 0: not yet.
  std::optional<float> duration;
  bool retired = false;
  Shapes inputs, outputs;
  std::thread::id thread;
  std::shared_ptr<torch::CapturedTraceback> frames;
  std::optional<sprat::Work> work;  ///< Until the entry is retired.
};

struct FlightTrace::Group {
  std::string name, description, ranks;
  std::uint64_t operations = 0, collectives = 0, messages = 0, completed = 0;
};

// Frames cost some microseconds a call and Python's lock: who names a size for the record wants it
// enough for that.
FlightTrace::FlightTrace(bool records)
    : capacity_(records ? static_cast<std::size_t>(
                              std::max(c10d::getCvarInt(buffer_size(), usual_capacity), 0))
                        : 0),
      with_frames_(!c10d::getCvarString(buffer_size(), "").empty()) {}

FlightTrace::~FlightTrace() = default;

std::size_t FlightTrace::add_group(const std::string& name, const std::string& description,
                                   const std::vector<std::uint64_t>& ranks) {
  std::ostringstream list;
  for (const std::uint64_t rank : ranks) {
    list << (list.tellp() > 0 ? ", " : "[") << rank;
  }
  list << ']';
  const std::lock_guard lock(mutex_);
  auto found = std::ranges::find(groups_, name, &Group::name);
  if (found == groups_.end()) {
    found = groups_.emplace(groups_.end());
    found->name = name;
  }
  found->description = description;
  found->ranks = list.str();
  return static_cast<std::size_t>(found - groups_.begin());
}

std::optional<std::uint64_t> FlightTrace::begin(const Operation& operation, const Begun& begun) {
  using c10d::OpType;
  if (!records()) {
    return std::nullopt;
  }
  Entry entry;
  entry.group = begun.group;
  entry.type = operation.type;
  entry.rank = begun.rank;
  entry.peer = operation.peer;
  entry.timeout_ms = begun.timeout.count();
  entry.created = c10::getTime();
  entry.inputs = Shapes::of(operation.inputs, operation.type == OpType::REDUCE_SCATTER ||
                                                  operation.type == OpType::ALLTOALL);
  entry.outputs = Shapes::of(
      operation.results, operation.type == OpType::ALLGATHER || operation.type == OpType::ALLTOALL);
  entry.thread = std::this_thread::get_id();
  if (with_frames_) {
    entry.frames = torch::CapturedTraceback::gather(true, false, false);
  }
  std::shared_ptr<torch::CapturedTraceback> gone;  // of the entry below, freed without the lock
  const std::lock_guard lock(mutex_);
  Group& group = groups_[begun.group];
  entry.operation = ++group.operations;
  ++(c10d::isP2POp(operation.type) ? group.messages : group.collectives);
  entry.collective = group.collectives;
  entry.message = group.messages;
  entry.number = next_++;
  if (entries_.size() < capacity_) {
    entries_.push_back(std::move(entry));
    return entries_.back().number;
  }
  Entry& oldest = entries_[entry.number % capacity_];
  gone = std::move(oldest.frames);
  oldest = std::move(entry);
  return oldest.number;
}

FlightTrace::Entry* FlightTrace::find(std::optional<std::uint64_t> number) {
  if (!number) {
    return nullptr;
  }
  Entry& entry = entries_[*number % capacity_];
  return entry.number == *number ? &entry : nullptr;  // or it has been written over
}

void FlightTrace::started(std::optional<std::uint64_t> number, const sprat::Work& work) {
  if (!number) {
    return;
  }
  const std::lock_guard lock(mutex_);
  if (Entry* entry = find(number)) {
    entry->started = c10::getTime();
    entry->work = work;
  }
}

void FlightTrace::end(std::optional<std::uint64_t> number, bool well,
                      std::optional<float> duration) {
  if (!number) {
    return;
  }
  std::optional<sprat::Work> gone;  // freed without the lock
  const std::lock_guard lock(mutex_);
  Entry* entry = find(number);
  if (entry == nullptr) {
    return;
  }
  gone.swap(entry->work);
  entry->retired = true;
  entry->duration = duration;
  if (entry->started == 0) {
    entry->started = entry->created;  // of a call that waits by itself
  }
  if (well) {
    entry->completed = c10::getTime();
    Group& group = groups_[entry->group];
    group.completed = std::max(group.completed, entry->collective);
  }
}

std::vector<FlightTrace::Entry> FlightTrace::wanted_entries(const Wanted& wanted) {
  std::vector<Entry> entries;
  const std::lock_guard lock(mutex_);
  for (std::uint64_t number = next_ - entries_.size(); number < next_; ++number) {
    Entry& entry = entries_[number % capacity_];
    if (entry.completed == 0 && entry.work && entry.work->done()) {
      entry.completed = c10::getTime();  // nobody has looked at it yet
    }
    if (wanted.operations && !(wanted.only_active && entry.completed != 0)) {
      entries.push_back(entry);
    }
  }
  return entries;
}

namespace {

c10::IValue time_or_none(c10::time_t time) {
  return time == 0 ? c10::IValue() : c10::IValue(static_cast<std::int64_t>(time));
}

/// Frame by frame, for each traceback; an empty list for one that is null.
std::vector<List> frames_of(const std::vector<torch::CapturedTraceback*>& tracebacks) {
  std::vector<torch::CapturedTraceback*> there;
  std::ranges::copy_if(tracebacks, std::back_inserter(there),
                       [](const auto* one) { return one != nullptr; });
  std::vector<List> lists;
  const torch::SymbolizedTracebacks symbols =
      there.empty() ? torch::SymbolizedTracebacks{} : torch::symbolize(there);
  std::size_t next = 0;
  for (const auto* one : tracebacks) {
    List list = new_list();
    if (one != nullptr) {
      for (const std::uint64_t index : symbols.tracebacks[next++]) {
        const auto& frame = symbols.all_frames[index];
        Dict entry = new_dict();
        entry.insert("name", frame.funcname);
        entry.insert("filename", frame.filename);
        entry.insert("line", static_cast<std::int64_t>(frame.lineno));
        list.push_back(entry);
      }
    }
    lists.push_back(std::move(list));
  }
  return lists;
}

}  // namespace

std::string FlightTrace::dump(const Wanted& wanted) {
  const std::vector<Entry> entries = wanted_entries(wanted);
  std::vector<Group> groups;
  Dict dump = new_dict();
  {
    const std::lock_guard lock(mutex_);
    groups = groups_;
    dump.insert("version", version_);
  }
  dump.insert("comm_lib_version", std::string("sprat ") + sprat_version());
  Dict configuration = new_dict(), status = new_dict();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    Dict group = new_dict();
    group.insert("name", groups[i].name);
    group.insert("desc", groups[i].description);
    group.insert("ranks", groups[i].ranks);
    configuration.insert(groups[i].name, group);
    Dict numbers = new_dict();
    numbers.insert("last_enqueued_collective", static_cast<std::int64_t>(groups[i].collectives));
    numbers.insert("last_started_collective", static_cast<std::int64_t>(groups[i].collectives));
    numbers.insert("last_completed_collective", static_cast<std::int64_t>(groups[i].completed));
    status.insert(std::to_string(i), numbers);
  }
  dump.insert("pg_config", configuration);
  dump.insert("pg_status", status);
  if (!wanted.operations) {
    return pickled(dump);
  }
  std::vector<torch::CapturedTraceback*> tracebacks;
  for (const Entry& entry : entries) {
    tracebacks.push_back(wanted.frames ? entry.frames.get() : nullptr);
  }
  const std::vector<List> frames = frames_of(tracebacks);
  List list = new_list();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    list.push_back(entry_value(entries[i], groups[entries[i].group]));
    if (wanted.frames) {
      list.get(i).toGenericDict().insert("frames", frames[i]);
    }
  }
  dump.insert("entries", list);
  return pickled(dump);
}

c10::IValue FlightTrace::entry_value(const Entry& entry, const Group& group) {
  Dict value = new_dict();
  const auto insert_number = [&](const char* key, std::uint64_t number) {
    value.insert(key, static_cast<std::int64_t>(number));
  };
  insert_number("record_id", entry.number);
  insert_number("pg_id", entry.group);
  value.insert("process_group", std::make_tuple(group.name, group.description));
  value.insert("thread_name", "");
  value.insert("thread_id", c10::str(entry.thread));
  insert_number("collective_seq_id", entry.collective);
  insert_number("p2p_seq_id", entry.message);
  insert_number("op_id", entry.operation);
  // torchfrtrace refuses the entries of every library but NCCL and XCCL.
  value.insert("profiling_name", "nccl:" + operation_name(entry.type, entry.rank, entry.peer));
  insert_number("time_created_ns", static_cast<std::uint64_t>(entry.created));
  if (entry.duration) {
    value.insert("duration_ms", static_cast<double>(*entry.duration));
  }
  value.insert("input_sizes", entry.inputs.size_lists());
  value.insert("input_dtypes", entry.inputs.type_names());
  value.insert("output_sizes", entry.outputs.size_lists());
  value.insert("output_dtypes", entry.outputs.type_names());
  value.insert("state", entry.completed != 0 ? "completed"
                        : entry.started != 0 ? "started"
                                             : "scheduled");
  value.insert("time_discovered_started_ns", time_or_none(entry.started));
  value.insert("time_discovered_completed_ns", time_or_none(entry.completed));
  value.insert("retired", entry.retired);
  value.insert("timeout_ms", entry.timeout_ms);
  value.insert("is_p2p", c10d::isP2POp(entry.type));
  return value;
}

void FlightTrace::set_version(const std::string& version) {
  const std::lock_guard lock(mutex_);
  version_ = version;
}

void FlightTrace::dump_after_failure(int rank) {
  const std::string prefix = c10d::getCvarString(dump_file(), "");
  if (prefix.empty() || !records()) {
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(dumped_, true)) {
      return;
    }
  }
  const std::string name = prefix + std::to_string(rank);
  std::ofstream file(name, std::ios::binary);
  file << dump({});
  file.flush();
  if (file.good()) {
    LOG(INFO) << "sprat: the flight record lies in " << name << "; read it with torchfrtrace";
  } else {
    LOG(ERROR) << "sprat: cannot write the flight record to " << name
               << "; see TORCH_FR_DUMP_TEMP_FILE";
  }
}

}  // namespace sprat::pytorch
