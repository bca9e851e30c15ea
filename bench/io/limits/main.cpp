// What the machine gives without any loader: plain preads of random records or whole files, llm.c's
// way of reading, and memcpy. One line of JSON each:
//   sprat_bench_io_limits gather FILE RECORD_BYTES RECORDS SECONDS
//   sprat_bench_io_limits stream SECONDS BLOCK_BYTES FILE...
//   sprat_bench_io_limits llmc FILE RECORDS RECORD_BYTES SECONDS
//   sprat_bench_io_limits memcpy RECORD_BYTES RECORDS SECONDS
// A batch is RECORDS records; gather and memcpy put them into one of a few buffers that stay in
// the cache, as a loader's would.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Arguments = std::span<char* const>;
constexpr std::uint64_t MiB = 1 << 20;

std::uint64_t number(const char* text) { return std::strtoull(text, nullptr, 10); }

/// Calls `batch`, which gives its bytes, until the time is over.
template <class Batch>
void measure(double seconds, Batch batch) {
  batch();
  std::uint64_t bytes = 0, batches = 0;
  const auto begin = Clock::now();
  std::chrono::duration<double> taken{};
  for (; taken.count() < seconds; taken = Clock::now() - begin) {
    bytes += batch();
    ++batches;
  }
  std::printf("{\"bytes\": %llu, \"batches\": %llu, \"seconds\": %.6f}\n",
              static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(batches),
              taken.count());
}

class File {
 public:
  explicit File(const char* path) : descriptor_(::open(path, O_RDONLY)) {
    if (descriptor_ < 0) {
      throw std::runtime_error(std::string("cannot open ") + path);
    }
  }
  ~File() { ::close(descriptor_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  std::uint64_t bytes() const {
    return static_cast<std::uint64_t>(::lseek(descriptor_, 0, SEEK_END));
  }
  void read(std::uint64_t offset, std::span<char> into) const {
    if (::pread(descriptor_, into.data(), into.size(), static_cast<off_t>(offset)) !=
        static_cast<ssize_t>(into.size())) {
      throw std::runtime_error("a short read");
    }
  }

 private:
  int descriptor_;
};

/// Batches' memory in turns.
class Buffers {
 public:
  explicit Buffers(std::uint64_t bytes) {
    for (std::vector<char>& buffer : buffers_) {
      buffer.resize(bytes);
    }
  }
  std::span<char> next() { return buffers_[turn_++ % buffers_.size()]; }

 private:
  std::array<std::vector<char>, 4> buffers_;
  std::size_t turn_ = 0;
};

void gather(Arguments given) {
  const File file(given[0]);
  const std::uint64_t record = number(given[1]), records = number(given[2]);
  std::mt19937_64 draw(1);
  std::uniform_int_distribution<std::uint64_t> token(0, (file.bytes() - record) / 2);
  Buffers buffers(record * records);
  measure(std::atof(given[3]), [&] {
    const std::span<char> buffer = buffers.next();
    for (std::uint64_t i = 0; i < records; ++i) {
      file.read(2 * token(draw), buffer.subspan(i * record, record));
    }
    return buffer.size();
  });
}

void stream(Arguments given) {
  std::vector<std::unique_ptr<File>> files;
  for (const char* path : given.subspan(2)) {
    files.push_back(std::make_unique<File>(path));
  }
  Buffers buffers(number(given[1]));
  std::size_t file = 0;
  std::uint64_t offset = 0;
  measure(std::atof(given[0]), [&] {
    const std::span<char> buffer = buffers.next();
    while (offset + buffer.size() > files[file]->bytes()) {
      file = (file + 1) % files.size();
      offset = 0;
    }
    files[file]->read(offset, buffer);
    offset += buffer.size();
    return buffer.size();
  });
}

/// One run of tokens a batch, at a random place, by stdio; then inputs and targets of 32 bits.
void llmc(Arguments given) {
  const std::uint64_t tokens = number(given[1]) * number(given[2]) / 2;
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(given[0], "rb"), std::fclose);
  if (file == nullptr) {
    throw std::runtime_error(std::string("cannot open ") + given[0]);
  }
  const std::uint64_t batches = (File(given[0]).bytes() / 2 - 1) / tokens;
  std::vector<std::uint16_t> buffer(tokens + 1);
  std::vector<std::int32_t> inputs(tokens), targets(tokens);
  std::mt19937_64 draw(1);
  measure(std::atof(given[3]), [&] {
    const std::uint64_t first = draw() % batches * tokens;
    std::fseek(file.get(), static_cast<long>(2 * first), SEEK_SET);
    if (std::fread(buffer.data(), 2, tokens + 1, file.get()) != tokens + 1) {
      throw std::runtime_error("a short read");
    }
    for (std::uint64_t i = 0; i < tokens; ++i) {
      inputs[i] = buffer[i];
      targets[i] = buffer[i + 1];
    }
    return 2 * tokens;
  });
}

void copy(Arguments given) {
  const std::uint64_t record = number(given[0]), records = number(given[1]);
  const std::uint64_t all = 1024 * MiB;  // far more than any cache
  const std::vector<char> source(all, 1);
  std::mt19937_64 draw(1);
  Buffers buffers(record * records);
  measure(std::atof(given[2]), [&] {
    const std::span<char> buffer = buffers.next();
    for (std::uint64_t i = 0; i < records; ++i) {
      std::memcpy(&buffer[i * record], &source[draw() % (all - record)], record);
    }
    return buffer.size();
  });
}

}  // namespace

int main(int count, char** words) {
  const Arguments given(words + 1, static_cast<std::size_t>(count - 1));
  const std::string what = count > 1 ? given[0] : "";
  try {
    if (what == "gather" && count == 6) {
      gather(given.subspan(1));
    } else if (what == "stream" && count > 4) {
      stream(given.subspan(1));
    } else if (what == "llmc" && count == 6) {
      llmc(given.subspan(1));
    } else if (what == "memcpy" && count == 5) {
      copy(given.subspan(1));
    } else {
      std::cerr << "sprat_bench_io_limits gather|stream|llmc|memcpy ...: main.cpp's head tells\n";
      return 2;
    }
  } catch (const std::exception& error) {
    std::cerr << "sprat_bench_io_limits: " << error.what() << '\n';
    return 1;
  }
}
