// The C API's loaders of data.
#include <unistd.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plugins/c/handles.hpp"
#include "sprat/data.hpp"

using namespace sprat;
using namespace sprat::c;

namespace sprat::c {

/// C wants names that end with a zero. There are few of them in a batch, and they stay until it is
/// freed. Any thread.
class FieldNames final {
 public:
  const char* keep(std::string_view name) const {
    const std::lock_guard lock(mutex_);
    const auto found = names_.find(name);
    return (found != names_.end() ? found : names_.emplace(name).first)->c_str();
  }

 private:
  mutable std::mutex mutex_;  ///< Guards the names.
  mutable std::set<std::string, std::less<>> names_;
};

}  // namespace sprat::c

namespace {

sprat_field field_from(const DataField& field, const FieldNames& names) {
  return {.name = names.keep(field.name),
          .type = names.keep(field.type),
          .shape = field.shape.data(),
          .dimensions = field.shape.size(),
          .data = field.bytes.data(),
          .bytes = field.bytes.size()};
}

std::string all_names(std::size_t count, const auto& field_at) {
  std::string list;
  for (std::size_t index = 0; index < count; ++index) {
    list += (index > 0 ? ", " : "") + std::string(field_at(index).name);
  }
  return list.empty() ? "none" : list;
}

}  // namespace

struct sprat_loader {
  explicit sprat_loader(LoaderOptions options) : loader(std::move(options)) {}
  Loader loader;
  const pid_t process = ::getpid();
  std::string state, how;  ///< What was handed out last.
  LoaderReport report;
};

struct sprat_batch {
  explicit sprat_batch(DataBatch given) : batch(std::move(given)) {}
  DataBatch batch;
  const pid_t process = ::getpid();
  FieldNames names;
};

struct sprat_record {
  DecodedRecord& record;
  FieldNames names = {};
};

namespace {

/// The loader's threads, and the locks that they may have held, are its process's own.
sprat_loader& loader_of(sprat_loader* handle) {
  sprat_loader& loader = deref(handle, "loader");
  if (loader.process != ::getpid()) {
    throw Error(ErrorCode::unavailable, "the loader was opened before fork() by process " +
                                            std::to_string(loader.process) +
                                            ", whose threads serve it; open one in this process");
  }
  return loader;
}

const DataBatch& batch_of(const sprat_batch* handle) { return deref(handle, "batch").batch; }

const DataBatch& batch_with(const sprat_batch* handle, std::size_t sample) {
  const DataBatch& batch = batch_of(handle);
  if (sample >= batch.size()) {
    refuse("sample " + std::to_string(sample) + " of a batch that has " +
           std::to_string(batch.size()) + " on this rank");
  }
  return batch;
}

/// Frees in the process that made it; a child of fork() has memory whose owner it is not.
template <class Handle>
void free_handle(Handle* handle) {
  if (handle != nullptr && handle->process == ::getpid()) {
    std::unique_ptr<Handle>{handle}.reset();
  }
}

DecodeStage stage_from(const sprat_decode_stage& given) {
  const char* name = &deref(given.name, "stages[i].name");
  deref(given.function, "stages[i].function");
  return {name, [function = given.function, context = given.context,
                 name = std::string(name)](DecodedRecord& record) {
            sprat_record handle{record};
            if (const int status = function(&handle, context); status != 0) {
              throw Error(ErrorCode::unavailable,
                          "decode stage \"" + name + "\" returned " + std::to_string(status));
            }
          }};
}

}  // namespace

sprat_status sprat_loader_open(const char* options, const sprat_decode_stage* stages, size_t count,
                               sprat_loader** out) {
  return guard([&] {
    deref(out, "out") = nullptr;
    LoaderOptions parsed = parse_loader_options(&deref(options, "options"));
    for (size_t index = 0; index < count; ++index) {
      parsed.decode.push_back(stage_from((&deref(stages, "stages"))[index]));
    }
    *out = std::make_unique<sprat_loader>(std::move(parsed)).release();
  });
}

sprat_status sprat_loader_next(sprat_loader* loader, sprat_batch** out) {
  return guard([&] {
    deref(out, "out") = nullptr;
    if (std::optional<DataBatch> batch = loader_of(loader).loader.next()) {
      *out = std::make_unique<sprat_batch>(std::move(*batch)).release();
    }
  });
}

sprat_status sprat_loader_state(sprat_loader* loader, const char** out) {
  return guard([&] {
    deref(out, "out") = nullptr;
    sprat_loader& here = loader_of(loader);
    here.state = here.loader.state();
    *out = here.state.c_str();
  });
}

sprat_status sprat_loader_resume(sprat_loader* loader, const char* state) {
  return guard([&] { loader_of(loader).loader.resume(&deref(state, "state")); });
}

sprat_status sprat_loader_samples_per_epoch(const sprat_loader* loader, uint64_t* out) {
  return guard([&] { deref(out, "out") = deref(loader, "loader").loader.samples_per_epoch(); });
}

sprat_status sprat_loader_fingerprint(const sprat_loader* loader, uint64_t* out) {
  return guard([&] { deref(out, "out") = deref(loader, "loader").loader.fingerprint(); });
}

sprat_status sprat_loader_report(sprat_loader* loader, const char** json, const char** text) {
  return guard([&] {
    sprat_loader& here = loader_of(loader);
    here.report = here.loader.report();
    // Who wants one of them gives no place for the other.
    if (json != nullptr) {
      *json = here.report.json.c_str();
    }
    if (text != nullptr) {
      *text = here.report.text.c_str();
    }
  });
}

sprat_status sprat_loader_note_step(sprat_loader* loader, double seconds) {
  return guard([&] {
    // Also refuses what is no number.
    if (!(seconds >= 0)) {
      refuse("a step took " + std::to_string(seconds) + " seconds; give 0 or more");
    }
    loader_of(loader).loader.note_step(std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double>(seconds)));
  });
}

sprat_status sprat_loader_describe(sprat_loader* loader, const char** out) {
  return guard([&] {
    deref(out, "out") = nullptr;
    sprat_loader& here = loader_of(loader);
    here.how = here.loader.describe();
    *out = here.how.c_str();
  });
}

sprat_status sprat_loader_free(sprat_loader* loader) {
  return guard([&] { free_handle(loader); });
}

sprat_status sprat_batch_describe(const sprat_batch* handle, sprat_batch_info* out) {
  return guard([&] {
    const DataBatch& batch = batch_of(handle);
    const std::span<const std::byte> elements = batch.elements();
    deref(out, "out") = {.index = batch.index(),
                         .first = batch.first(),
                         .samples = batch.size(),
                         .elements = elements.data(),
                         .bytes = elements.size(),
                         .element_type = handle->names.keep(batch.element_type())};
  });
}

sprat_status sprat_batch_sample(const sprat_batch* handle, size_t sample, sprat_sample_info* out) {
  return guard([&] {
    const DataBatch& batch = batch_with(handle, sample);
    const std::span<const std::uint32_t> lengths = batch.lengths(sample);
    deref(out, "out") = {.epoch = batch.epoch(sample),
                         .source = batch.source(sample),
                         .record = batch.record(sample),
                         .fields = batch.fields(sample),
                         .lengths = lengths.data(),
                         .documents = lengths.size()};
  });
}

sprat_status sprat_batch_field(const sprat_batch* handle, size_t sample, size_t index,
                               sprat_field* out) {
  return guard([&] {
    const DataBatch& batch = batch_with(handle, sample);
    if (index >= batch.fields(sample)) {
      refuse("field " + std::to_string(index) + " of a sample that has " +
             std::to_string(batch.fields(sample)));
    }
    deref(out, "out") = field_from(batch.field(sample, index), handle->names);
  });
}

sprat_status sprat_batch_find(const sprat_batch* handle, size_t sample, const char* name,
                              sprat_field* out) {
  return guard([&] {
    const DataBatch& batch = batch_with(handle, sample);
    const std::string_view wanted = &deref(name, "name");
    deref(out, "out");
    const auto field_at = [&](std::size_t index) { return batch.field(sample, index); };
    for (std::size_t index = 0; index < batch.fields(sample); ++index) {
      if (const DataField field = field_at(index); field.name == wanted) {
        *out = field_from(field, handle->names);
        return;
      }
    }
    refuse("no field \"" + std::string(wanted) + "\" in sample " + std::to_string(sample) +
           "; there are: " + all_names(batch.fields(sample), field_at));
  });
}

sprat_status sprat_batch_free(sprat_batch* batch) {
  return guard([&] { free_handle(batch); });
}

sprat_status sprat_record_fields(const sprat_record* handle, size_t* out) {
  return guard([&] { deref(out, "out") = deref(handle, "record").record.fields(); });
}

sprat_status sprat_record_field(const sprat_record* handle, size_t index, sprat_field* out) {
  return guard([&] {
    const DecodedRecord& record = deref(handle, "record").record;
    if (index >= record.fields()) {
      refuse("field " + std::to_string(index) + " of a record that has " +
             std::to_string(record.fields()));
    }
    deref(out, "out") = field_from(record.field(index), handle->names);
  });
}

sprat_status sprat_record_find(const sprat_record* handle, const char* name, sprat_field* out) {
  return guard([&] {
    const DecodedRecord& record = deref(handle, "record").record;
    const std::string_view wanted = &deref(name, "name");
    deref(out, "out");
    const std::optional<DataField> field = record.find(wanted);
    if (!field) {
      refuse("no field \"" + std::string(wanted) + "\" in the record; there are: " +
             all_names(record.fields(), [&](std::size_t index) { return record.field(index); }));
    }
    *out = field_from(*field, handle->names);
  });
}

sprat_status sprat_record_set(sprat_record* handle, const sprat_field* field) {
  return guard([&] {
    DecodedRecord& record = deref(handle, "record").record;
    const sprat_field& given = deref(field, "field");
    // Null is allowed for what there is nothing of.
    const auto* shape = given.dimensions > 0 ? &deref(given.shape, "field->shape") : nullptr;
    const auto* data = static_cast<const std::byte*>(given.data);
    if (given.bytes > 0) {
      deref(data, "field->data");
    }
    record.set(&deref(given.name, "field->name"), &deref(given.type, "field->type"),
               {shape, shape + given.dimensions}, {data, data + given.bytes});
  });
}

sprat_status sprat_record_remove(sprat_record* handle, const char* name) {
  return guard([&] { deref(handle, "record").record.remove(&deref(name, "name")); });
}

sprat_status sprat_record_sample(const sprat_record* handle, uint64_t* out) {
  return guard([&] { deref(out, "out") = deref(handle, "record").record.sample(); });
}
