// Options are checked before files are opened, and files before threads start.
#include "io/loader/setup.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/config.hpp"
#include "comm/base/memory_room.hpp"
#include "io/loader/data_peers.hpp"
#include "io/readers/probe.hpp"
#include "sprat/buffer.hpp"

namespace sprat::io {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t usual_memory_bytes = std::uint64_t{1} << 30;
/// Less would not hold what a few reads bring.
constexpr std::uint64_t least_memory_bytes = std::uint64_t{1} << 20;
/// As many blocks as a request reads.
constexpr std::uint64_t least_storing_bytes = blocks_kept_together * cache_block_bytes;
/// Threads of readers that have some: they sleep in the kernel.
constexpr int usual_io_threads = 16;

/// Of launchers that say how many ranks they started on this host.
int ranks_on_host(const LoaderOptions& options) {
  for (const char* const variable :
       {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"}) {
    const char* const told = options.ranks_on_host == 0 ? environment(variable) : nullptr;
    int ranks = 0;
    if (told != nullptr &&
        std::from_chars(told, told + std::strlen(told), ranks).ec == std::errc()) {
      return std::max(1, ranks);
    }
  }
  return std::max(1, options.ranks_on_host);
}

CorePlan core_plan(const LoaderOptions& options) {
  return plan_cores(own_core_facts(), {.ranks_on_host = ranks_on_host(options),
                                       .decode_threads = options.decode_threads});
}

std::shared_ptr<BlockCaches> make_caches(const LoaderOptions& options, const FileTable& files,
                                         std::uint64_t storing_bytes) {
  const LoaderCache& cache = options.cache;
  require(cache.folder.empty() ? cache.bytes == 0 && cache.peers == nullptr : cache.bytes > 0,
          "cache.folder is \"", cache.folder, "\" and cache.bytes ", cache.bytes,
          "; a cache needs a folder of a local disk and its size");
  if (cache.folder.empty()) {
    return nullptr;
  }
  require(storing_bytes >= least_storing_bytes, "a loader with a cache needs ",
          8 * least_storing_bytes, " bytes of memory at least, so that some blocks may wait to be ",
          "stored; raise memory_bytes, or use no cache");
  std::vector<CachedFile> cached;
  for (std::uint32_t file = 0; file < files.files(); ++file) {
    const KnownFile known = files.known(file);
    cached.push_back({.key = file_key(known.path, known.stamp), .bytes = known.stamp.bytes});
  }
  return std::make_shared<BlockCaches>(
      BlockCachesOptions{.folder = cache.folder,
                         .capacity_bytes = cache.bytes,
                         .files = std::move(cached),
                         .peers = cache.peers == nullptr ? nullptr : cache.peers->impl()->lend(),
                         .peer_options = {},
                         .storing_bytes = storing_bytes});
}

/// Of the whole machine. What the page cache has counts: after the first epoch it has the data, and
/// they would else seem to fit no longer.
std::uint64_t available_memory_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  for (std::uint64_t kilobytes = 0; file >> key >> kilobytes;) {
    if (key == "MemAvailable:") {
      return kilobytes << 10;
    }
    std::getline(file, unit);
  }
  const auto pages = static_cast<std::uint64_t>(std::max(0L, sysconf(_SC_AVPHYS_PAGES)));
  return pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

std::uint64_t free_memory_bytes() {
  const std::uint64_t bytes = available_memory_bytes();
  const std::optional<comm::MemoryRoom> room = comm::memory_room();
  return room ? std::min<std::uint64_t>(bytes, room->bytes) : bytes;
}

std::shared_ptr<const Dataset> open_source(const DataSource& source, int threads) {
  return Dataset::open({.paths = source.paths,
                        .format = source.format,
                        .format_options = {.token_type = source.token_type},
                        .threads = threads});
}

/// The type of the elements that records are made of; empty if they are made of other things.
std::string source_element_type(const Dataset& source) {
  if (source.records() == 0) {
    return {};
  }
  const std::vector<std::byte> record(source.record_bytes());
  try {
    const std::string& context = source.context(source.record(0).file);
    const std::vector<Field> fields = source.format().fields(context, 0, record);
    return fields.size() == 1 ? fields.front().type : std::string();
  } catch (const Error&) {
    return {};  // a format whose records cannot be empty is none of tokens
  }
}

/// What an element of the type takes; 0 if there is no such type.
std::uint64_t bytes_of_element(std::string_view type) {
  for (const DType dtype : all_dtypes()) {
    if (name(dtype) == type) {
      return size_of(dtype);
    }
  }
  return 0;
}

SamplingOptions sampling_of(const LoaderOptions& options, const Dataset& source,
                            std::optional<std::uint64_t> separator) {
  constexpr std::array names = {"", "records", "windows", "packed_cut", "packed_whole"};
  SampleKind kind = options.samples;
  if (kind == SampleKind::automatic) {
    kind = options.length == 0         ? SampleKind::records
           : source.record_bytes() > 0 ? SampleKind::windows
                                       : SampleKind::packed;
  }
  const bool documents = kind == SampleKind::packed || kind == SampleKind::packed_whole;
  const bool chunks = options.shuffle == Shuffle::chunks;
  // Whole documents have no token that is the next sample's first, and yet a last target.
  const std::uint64_t more = kind == SampleKind::packed_whole ? 1 : 0;
  return {.kind = names[static_cast<std::size_t>(kind)],
          .shuffle = options.shuffle,
          .chunk = chunks ? options.chunk : 0,
          .mixed_chunks = chunks ? options.mixed_chunks : SamplingOptions{}.mixed_chunks,
          .length = kind == SampleKind::records ? 0 : options.length + more,
          .element_bytes = documents ? bytes_of_element(source_element_type(source)) : 0,
          .separator = separator};
}

SampleForm form_of(const LoaderOptions& options,
                   const std::vector<std::shared_ptr<const Dataset>>& sources) {
  SampleForm form;
  for (const std::shared_ptr<const Dataset>& source : sources) {
    const SamplingOptions sampling = sampling_of(options, *source, {});
    if (sampling.kind == "records") {
      continue;
    }
    const std::string type = source_element_type(*source);
    const std::uint64_t bytes = bytes_of_element(type);
    require(bytes > 0, "samples of ", options.length, " tokens are to be cut from files of format ",
            source->format().name,
            ", which has no tokens: leave length out, or name files of "
            "tokens, as `sprat io index` knows them");
    require(form.element_type.empty() || form.element_type == type,
            "the sources' tokens are of types ", form.element_type, " and ", type,
            ": samples of one loader have one type");
    form = {.row_bytes = (options.length + 1) * bytes,
            .element_type = type,
            .row_elements = options.length + 1,
            .fills_rows = sampling.kind != "packed_whole"};
  }
  return form;
}

/// The bytes of a source's separator, as its tokens have them; none where it has none.
std::vector<std::byte> separator_of(const DataSource& options, const Dataset& source) {
  if (!options.separator) {
    return {};
  }
  const std::string type = source_element_type(source);
  const std::uint64_t bytes = bytes_of_element(type);
  // Only whole numbers are named so, and none of them is wider than a separator.
  const bool fits = bytes == 8 || (bytes > 0 && *options.separator >> (8 * bytes) == 0);
  require(fits && (type[0] == 'u' || type[0] == 'i'), "separator ", *options.separator,
          " is no token of type ", type.empty() ? "none" : type);
  std::vector<std::byte> separator(bytes);
  // Tokens lie in files with their lowest byte first, and so does the number here.
  std::memcpy(separator.data(), &*options.separator, bytes);
  return separator;
}

std::uint64_t memory_of(const LoaderOptions& options) {
  const std::uint64_t bytes = options.memory_bytes > 0
                                  ? options.memory_bytes
                                  : std::min(usual_memory_bytes, free_memory_bytes() / 8);
  require(options.memory_bytes == 0 || bytes >= least_memory_bytes, "memory_bytes is ", bytes,
          "; a loader needs ", least_memory_bytes, " at least");
  return std::max(bytes, least_memory_bytes);
}

/// For trials: see docs/configuration.md.
std::string fake_lustre() {
  const char* const folder = environment("SPRAT_FAKE_LUSTRE");
  return folder == nullptr ? "" : folder;
}

/// Of the table's first file.
FileSystem where_of(const FileTable& files, const LustreFiles* lustre) {
  const std::string& path = files.path(0);
  if (lustre == nullptr || !lustre->first_on_lustre) {
    return probe_file_system(path);
  }
  FileSystem where = lustre->first_released ? probe_without_reading(path) : probe_file_system(path);
  where.kind = file_system_kind(lustre_magic);  // also of a folder that stands in for Lustre
  return where;
}

void tell_facts(LoaderSetup& setup, int ranks) {
  StorageFacts& facts = setup.facts;
  facts.about = setup.lustre == nullptr ? std::string(setup.where.kind) : setup.lustre->sentence;
  if (facts.system) {
    if (const auto iops = fsx_metadata_iops(*facts.system)) {
      facts.metadata_iops = static_cast<double>(*iops);
    }
  }
  if (setup.lustre != nullptr) {
    facts.targets = setup.lustre->targets;
    // Each rank reads from it as this one does, on whichever host it is.
    facts.hosts = ranks;
  }
}

/// Of each batch, in the order in which they are given.
std::vector<BatchSlots> slots_of(const LoaderOptions& options) {
  if (options.slots.empty()) {
    // Only the batch's size decides on shares, and the epoch's on nothing of it.
    const GlobalBatches batches({.epoch_samples = options.batch, .batch = options.batch});
    return {batches.share(static_cast<std::uint64_t>(options.rank),
                          static_cast<std::uint64_t>(options.ranks))};
  }
  std::vector<BatchSlots> slots;
  for (const DataSlots& one : options.slots) {
    require(one.begin <= one.end && one.end <= options.batch, "slots [", one.begin, ", ", one.end,
            ") are no samples of a batch of ", options.batch);
    slots.push_back({.begin = one.begin, .end = one.end});
  }
  return slots;
}

std::uint64_t samples_in(const std::vector<BatchSlots>& slots) {
  std::uint64_t samples = 0;
  for (const BatchSlots& one : slots) {
    samples += one.end - one.begin;
  }
  return samples;
}

/// What this rank's part of a batch takes, about; refused where the machine could not hold it.
std::uint64_t batch_bytes_of(const LoaderSetup& setup, std::uint64_t sample_bytes) {
  const std::uint64_t samples = std::max<std::uint64_t>(1, samples_in(setup.slots));
  std::uint64_t bytes = 0, all = 0;
  const bool countable = !__builtin_mul_overflow(sample_bytes, samples, &bytes) &&
                         !__builtin_mul_overflow(sizeof(LoadedSample), samples, &all) &&
                         !__builtin_add_overflow(all, bytes, &all);
  require(countable, "a batch of ", samples, " samples of about ", sample_bytes,
          " bytes has more than 2^64 bytes: take a smaller batch");
  comm::need_memory(all, text("one batch's samples of this rank (", samples, " of about ",
                              sample_bytes, " bytes; a smaller batch takes less)")
                             .c_str());
  return bytes;
}

void check(const LoaderOptions& options) {
  require(!options.sources.empty(), "a loader needs a source: name files, folders or patterns");
  require(options.batch > 0, "batch is 0; it is the samples of one step of all ranks together");
  require(options.ranks > 0 && options.rank >= 0 && options.rank < options.ranks, "rank is ",
          options.rank, " of ", options.ranks, "; it is from 0 to ranks - 1");
  require(options.io_threads >= 0 && options.decode_threads >= 0,
          "io_threads and decode_threads are ", options.io_threads, " and ", options.decode_threads,
          "; they are 0 (a choice by the cores) or more");
  require(options.ranks_on_host >= 0, "ranks_on_host is ", options.ranks_on_host,
          "; it is 0 (as the launcher says) or more");
  require(options.timeout > 0ms, "timeout is ", options.timeout.count(), " ms; it is above 0");
}

}  // namespace

LoaderSetup set_up(const LoaderOptions& options) {
  check(options);
  LoaderSetup setup;
  const int quarter = plan_cores(own_core_facts(), {}).read_threads;
  setup.io_threads = options.io_threads > 0 ? options.io_threads : usual_io_threads;
  setup.cores = core_plan(options);
  std::uint64_t records = 0;
  StreamOptions stream{.sources = {}, .seed = options.seed};
  for (const DataSource& source : options.sources) {
    setup.sources.push_back(open_source(source, quarter));
    stream.sources.push_back(
        {.table = setup.sources.back(),
         .sampling = sampling_of(options, *setup.sources.back(), source.separator),
         .weight = source.weight});
    records += setup.sources.back()->records();
  }
  setup.form = form_of(options, setup.sources);
  for (std::size_t i = 0; i < setup.sources.size(); ++i) {
    setup.separators.push_back(separator_of(options.sources[i], *setup.sources[i]));
  }
  // The probe reads a block of a true file, so it comes after all files are known.
  setup.files = std::make_shared<const FileTable>(setup.sources);
  setup.stream = std::make_shared<const SampleStream>(std::move(stream));
  setup.memory_bytes = memory_of(options);
  setup.caches = make_caches(options, *setup.files, setup.memory_bytes / 8);
  setup.storing_bytes = setup.filling_bytes = setup.caches ? setup.memory_bytes / 8 : 0;
  const std::uint64_t bytes = setup.files->bytes();
  // A mean is enough: it only sizes the first window, which grows as it has to.
  const std::uint64_t record_bytes = bytes / std::max<std::uint64_t>(1, records);
  const std::uint64_t sample_bytes = setup.form.row_bytes > 0 ? setup.form.row_bytes : record_bytes;
  const auto ranks = static_cast<std::uint64_t>(options.ranks);
  const auto ranks_here = std::min(ranks, static_cast<std::uint64_t>(ranks_on_host(options)));
  setup.slots = slots_of(options);
  setup.batch_bytes = batch_bytes_of(setup, sample_bytes);
  if (!options.fsx.empty()) {
    setup.facts.system = parse_fsx(options.fsx);
  }
  setup.lustre = find_lustre(system_probe(fake_lustre()), setup.files, setup.facts.system);
  setup.where = where_of(*setup.files, setup.lustre.get());
  setup.choice = choose_reader(setup.where,
                               {.data_bytes = bytes,
                                .epoch_bytes = bytes / ranks * ranks_here,
                                .free_memory_bytes = free_memory_bytes(),
                                .record_bytes = sample_bytes,
                                .scattered = options.shuffle == Shuffle::full},
                               {.reader = options.reader});
  tell_facts(setup, options.ranks);
  setup.facts.mean_file_bytes = static_cast<double>(bytes) / setup.files->files();
  return setup;
}

}  // namespace sprat::io
