// Datasets on disk: indexed once, again only where files changed, through kills and damage.
#include "io/dataset/dataset.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <string>

#include "io/dataset/index_check.hpp"
#include "io/dataset/index_place.hpp"
#include "io/dataset/indexer.hpp"
#include "tests/unit/io/dataset/written.hpp"

namespace sprat::io {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A folder of tars, one sample in a.tar, two in b.tar and so on.
class Datasets : public testing::Test {
 protected:
  Datasets() { setenv("XDG_CACHE_HOME", cache_.path().c_str(), 1); }

  void make_tars(int count) {
    for (int file = 0; file < count; ++file) {
      write(tar(file), tar_of(file + 1, 10));
    }
  }
  std::string tar(int file) const {
    return data_ / (std::string(1, static_cast<char>('a' + file)) + ".tar");
  }
  DatasetOptions options() const { return {.paths = {data_.path()}, .threads = 2}; }
  /// Files that were read by indexing now.
  std::uint64_t indexed(Trust trust) const { return index_dataset(options(), trust, {}).indexed; }
  std::string index_path() const { return index_places(options()).paths.at(0); }
  std::string complaint() const {
    return complaint_about([&] { Dataset::open(options()); });
  }
  std::vector<std::string> hidden() const {
    std::vector<std::string> names;
    for (const std::string& name : entries(data_.path())) {
      if (name.starts_with(".")) {
        names.push_back(name);
      }
    }
    return names;
  }

  const TemporaryFolder data_, cache_;
};

void set_time_apart(const std::string& path) {
  fs::last_write_time(path, fs::last_write_time(path) + std::chrono::seconds(1));
}

TEST_F(Datasets, of_every_format_give_the_records_that_files_have) {
  for (const Specimen& specimen : specimens()) {
    SCOPED_TRACE(specimen.name);
    const TemporaryFolder folder;
    for (const char* where : {"1", "2"}) {
      for (const auto& [name, bytes] : specimen.files) {
        write(folder / (where + ("/" + name)), bytes);
      }
    }
    const std::string ending = fs::path(specimen.file).extension();
    const DatasetOptions options{.paths = {folder / "*" + ("/*" + ending)},
                                 .format_options = specimen.options};
    for (const char* time : {"first", "again"}) {
      SCOPED_TRACE(time);
      const auto dataset = Dataset::open(options);
      EXPECT_EQ(dataset->format().name, specimen.format);
      const std::uint64_t each = specimen.spans.size();
      ASSERT_EQ(dataset->records(), 2 * each);
      for (std::uint64_t record = 0; record < 2 * each; ++record) {
        const RecordSpan span = specimen.spans[record % each];
        const auto file = static_cast<std::uint32_t>(record / each);
        EXPECT_EQ(dataset->record(record), (Extent{file, span.offset, span.bytes}));
        EXPECT_EQ(dataset->first_record(file), file * each);
      }
      EXPECT_EQ(dataset->files()[1], folder / ("2/" + specimen.file));
      EXPECT_EQ(dataset->stamp(1).bytes, specimen.files.at(specimen.file).size());
      EXPECT_EQ(dataset->record_bytes(),
                specimen.format == "tokens" ? specimen.spans[0].bytes : 0u);
    }
    const IndexedDataset known = index_dataset(options, Trust::stamps, {});
    EXPECT_EQ(known.indexed, 0u);
    EXPECT_THAT(check_index(known, options, {}).complaints, IsEmpty());
  }
}

TEST_F(Datasets, are_indexed_once) {
  make_tars(3);
  EXPECT_EQ(indexed(Trust::names), 3u);
  EXPECT_EQ(indexed(Trust::names), 0u);
  EXPECT_EQ(indexed(Trust::stamps), 0u);
  EXPECT_THAT(hidden(), ElementsAre(name_in(index_path())));
}

TEST_F(Datasets, index_again_only_files_that_came_or_changed) {
  make_tars(3);
  EXPECT_EQ(indexed(Trust::names), 3u);
  write(tar(3), tar_of(4, 10));
  EXPECT_EQ(indexed(Trust::names), 1u);
  EXPECT_EQ(Dataset::open(options())->records(), 10u);
  fs::remove(tar(0));
  EXPECT_EQ(indexed(Trust::names), 0u);
  EXPECT_EQ(Dataset::open(options())->records(), 9u);
  write(tar(1), tar_of(7, 10));
  EXPECT_EQ(indexed(Trust::names), 0u);  // found when it is opened
  EXPECT_EQ(indexed(Trust::stamps), 1u);
  EXPECT_EQ(Dataset::open(options())->records(), 14u);
  set_time_apart(tar(2));
  EXPECT_EQ(indexed(Trust::stamps), 1u);
}

TEST_F(Datasets, see_that_a_file_beside_a_file_changed) {
  const TemporaryFolder folder;
  for (const Specimen& specimen : specimens()) {
    if (specimen.format == "megatron") {
      for (const auto& [name, bytes] : specimen.files) {
        write(folder / name, bytes);
      }
    }
  }
  const DatasetOptions pairs{.paths = {folder.path()}};
  EXPECT_EQ(index_dataset(pairs, Trust::stamps, {}).indexed, 1u);
  EXPECT_EQ(index_dataset(pairs, Trust::stamps, {}).indexed, 0u);
  set_time_apart(folder / "a.idx");
  EXPECT_EQ(index_dataset(pairs, Trust::stamps, {}).indexed, 1u);
}

TEST_F(Datasets, refuse_a_file_that_changed_when_it_is_opened) {
  make_tars(2);
  const auto dataset = Dataset::open(options());
  const auto complaint_of_b = [&] {
    const int descriptor = open(tar(1).c_str(), O_RDONLY | O_CLOEXEC);
    const std::string complaint =
        complaint_about([&] { dataset->require_unchanged(1, descriptor); });
    close(descriptor);
    return complaint;
  };
  EXPECT_EQ(complaint_of_b(), "");
  set_time_apart(tar(1));
  EXPECT_THAT(complaint_of_b(), HasSubstr("another time"));
  fs::resize_file(tar(1), 512);
  EXPECT_THAT(complaint_of_b(), HasSubstr("b.tar is not the file that was indexed"));
}

TEST_F(Datasets, have_one_fingerprint_wherever_they_lie) {
  make_tars(3);
  const TemporaryFolder elsewhere;
  fs::copy(data_.path(), elsewhere.path(), fs::copy_options::recursive);
  const auto here = Dataset::open(options());
  EXPECT_EQ(here->fingerprint(), Dataset::open({.paths = {elsewhere.path()}})->fingerprint());
  write(tar(0), tar_of(2, 10));
  EXPECT_EQ(indexed(Trust::stamps), 1u);
  EXPECT_NE(here->fingerprint(), Dataset::open(options())->fingerprint());
}

TEST_F(Datasets, that_moved_have_their_index_with_them) {
  make_tars(3);
  EXPECT_EQ(indexed(Trust::names), 3u);
  const TemporaryFolder elsewhere;
  fs::rename(data_.path(), elsewhere / "moved");
  EXPECT_EQ(index_dataset({.paths = {elsewhere / "moved"}}, Trust::stamps, {}).indexed, 0u);
  fs::rename(elsewhere / "moved", data_.path());
}

TEST_F(Datasets, make_a_damaged_or_swapped_index_anew) {
  make_tars(3);
  EXPECT_EQ(indexed(Trust::names), 3u);
  const std::string path = index_path();
  fs::resize_file(path, fs::file_size(path) - 3);
  EXPECT_EQ(indexed(Trust::names), 3u);
  EXPECT_EQ(indexed(Trust::names), 0u);
  const TemporaryFolder other;
  write(other / "a.tar", tar_of(9, 10));
  Dataset::open({.paths = {other / "a.tar"}});
  fs::copy_file(index_places({.paths = {other / "a.tar"}}).paths[0], path,
                fs::copy_options::overwrite_existing);
  EXPECT_EQ(indexed(Trust::names), 3u);
  EXPECT_EQ(Dataset::open(options())->records(), 6u);
}

TEST_F(Datasets, keep_the_index_in_the_cache_folder_where_they_cannot_be_written_to) {
  make_tars(2);
  // A folder where the index would be: no user can write that, root neither.
  fs::create_directory(index_path());
  const IndexedDataset made = index_dataset(options(), Trust::names, {});
  EXPECT_THAT(made.kept_at, HasSubstr(cache_ / "sprat/index-"));
  EXPECT_EQ(indexed(Trust::names), 0u);
  EXPECT_THAT(hidden(), ElementsAre(name_in(index_path())));
}

TEST_F(Datasets, keep_the_index_where_it_is_said) {
  make_tars(2);
  DatasetOptions there = options();
  there.index_path = cache_ / "my.index";
  EXPECT_EQ(index_dataset(there, Trust::names, {}).kept_at, cache_ / "my.index");
  EXPECT_EQ(index_dataset(there, Trust::names, {}).indexed, 0u);
  EXPECT_THAT(hidden(), IsEmpty());
}

TEST_F(Datasets, name_the_files_that_cannot_be_indexed_and_keep_what_could_be) {
  make_tars(4);
  write(tar(1), "no tar at all");
  write(tar(2), std::string(600, 'x'));
  EXPECT_THAT(complaint(),
              testing::AllOf(HasSubstr("2 of 4 files"), HasSubstr("b.tar"), HasSubstr("c.tar")));
  EXPECT_THAT(hidden(), ElementsAre(name_in(index_path())));
  write(tar(1), tar_of(2, 10));
  EXPECT_THAT(complaint(), HasSubstr("c.tar"));
  write(tar(2), tar_of(3, 10));
  EXPECT_EQ(indexed(Trust::names), 1u);  // the last one that was mended
  EXPECT_EQ(Dataset::open(options())->records(), 10u);
}

TEST_F(Datasets, stop_where_most_files_cannot_be_indexed) {
  for (int file = 0; file < 26; ++file) {
    write(tar(file), "no tar at all");
  }
  // How many more have failed meanwhile depends on the threads.
  EXPECT_THAT(complaint(), testing::ContainsRegex("at least 1[0-9] of 26 files"));
  EXPECT_THAT(hidden(), IsEmpty());
}

TEST_F(Datasets, are_of_another_format_once_all_files_are) {
  make_tars(2);
  EXPECT_EQ(indexed(Trust::names), 2u);
  fs::remove(tar(0));
  fs::remove(tar(1));
  write(data_ / "a.jsonl", "{}\n{}\n{}\n");
  const auto dataset = Dataset::open(options());
  EXPECT_EQ(dataset->format().name, "jsonl");
  EXPECT_EQ(dataset->records(), 3u);
}

TEST_F(Datasets, refuse_pipes_sockets_folders_and_links_that_lead_nowhere) {
  make_tars(1);
  mkfifo((data_ / "pipe.tar").c_str(), 0600);
  EXPECT_THAT(complaint(), HasSubstr("pipe.tar: it is a pipe"));
  fs::remove(data_ / "pipe.tar");

  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  const std::string path = data_ / "socket.tar";
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_THAT(complaint(), HasSubstr("socket.tar"));
  close(socket);
  fs::remove(path);

  fs::create_symlink(data_ / "nowhere", data_ / "link.tar");
  EXPECT_THAT(complaint(), HasSubstr("link.tar: No such file"));
  fs::remove(data_ / "link.tar");

  EXPECT_EQ(complaint(), "");
}

TEST_F(Datasets, serve_links_empty_files_and_names_in_no_encoding) {
  write(data_ / "\xff\xfe.tar", tar_of(2, 10));
  write(data_ / "empty.tar", "");
  const TemporaryFolder elsewhere;
  write(elsewhere / "real", tar_of(3, 10));
  fs::create_symlink(elsewhere / "real", data_ / "link.tar");
  const auto dataset = Dataset::open(options());
  EXPECT_THAT(dataset->files(),
              ElementsAre(data_ / "empty.tar", data_ / "link.tar", data_ / "\xff\xfe.tar"));
  EXPECT_EQ(dataset->records(), 5u);
  EXPECT_EQ(dataset->record(0).file, 1u);  // the empty one has none
  EXPECT_EQ(dataset->record(3).file, 2u);
  EXPECT_THROW(dataset->record(5), Error);
}

TEST_F(Datasets, of_empty_files_have_no_records) {
  write(tar(0), "");
  const auto dataset = Dataset::open({.paths = {data_.path()}, .format = "webdataset"});
  EXPECT_EQ(dataset->records(), 0u);
  EXPECT_THROW(dataset->record(0), Error);
}

TEST_F(Datasets, of_a_file_that_went_say_so) {
  make_tars(2);
  const DatasetOptions named{.paths = {tar(0), tar(1)}};
  Dataset::open(named);
  fs::remove(tar(1));
  EXPECT_THAT(complaint_about([&] { Dataset::open(named); }), HasSubstr("b.tar: No such file"));
}

TEST_F(Datasets, hold_a_folder_against_its_own_list_of_files) {
  Specimen shard;
  for (const Specimen& specimen : specimens()) {
    shard = specimen.format == "mds" ? specimen : shard;
  }
  const std::string& bytes = shard.files.at(shard.file);
  const auto listed = [&](const std::string& name, std::size_t records) {
    return R"({"format": "mds", "version": 2, "zip_data": null, "samples": )" +
           std::to_string(records) + R"(, "raw_data": {"basename": ")" + name + R"(", "bytes": )" +
           std::to_string(bytes.size()) + "}}";
  };
  write(data_ / shard.file, bytes);
  write(data_ / "index.json", R"({"shards": [)" + listed(shard.file, 2) + "]}");
  EXPECT_EQ(complaint(), "");
  fs::remove(index_path());
  write(data_ / "index.json", R"({"shards": [)" + listed(shard.file, 3) + "]}");
  EXPECT_THAT(complaint(), HasSubstr("3 records"));
  write(data_ / "index.json",
        R"({"shards": [)" + listed(shard.file, 2) + "," + listed("shard.00001.mds", 2) + "]}");
  EXPECT_THAT(complaint(), HasSubstr("shard.00001.mds, which is not in the folder"));
  EXPECT_THAT(hidden(), IsEmpty());
}

/// A child that indexes; it is killed when `kill_at` files are done, if that is not 0.
int index_in_child(const DatasetOptions& options, std::uint64_t kill_at) {
  const pid_t child = fork();
  if (child == 0) {
    const ProgressHook hook = [&](const IndexProgress& progress) {
      if (progress.files == kill_at) {
        raise(SIGKILL);
      }
    };
    try {
      index_dataset(options, Trust::names, hook);
    } catch (...) {
      _exit(1);
    }
    _exit(0);
  }
  return child;
}

int status_of(int child) {
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

TEST_F(Datasets, go_on_where_a_killed_process_stopped) {
  make_tars(10);
  DatasetOptions alone = options();
  alone.threads = 1;
  ASSERT_TRUE(WIFSIGNALED(status_of(index_in_child(alone, 4))));
  EXPECT_EQ(hidden().size(), 2u);  // a journal, and the file of its turn
  ASSERT_TRUE(WIFSIGNALED(status_of(index_in_child(alone, 7))));
  EXPECT_EQ(hidden().size(), 3u);
  const IndexedDataset made = index_dataset(alone, Trust::names, {});
  EXPECT_EQ(made.indexed, 3u);
  EXPECT_THAT(hidden(), ElementsAre(name_in(index_path())));
  fs::remove(index_path());
  EXPECT_EQ(made.index, index_dataset(alone, Trust::names, {}).index);
}

TEST_F(Datasets, take_of_a_torn_journal_what_is_whole_and_still_true) {
  make_tars(6);
  DatasetOptions alone = options();
  alone.threads = 1;
  ASSERT_TRUE(WIFSIGNALED(status_of(index_in_child(alone, 4))));
  const auto names = hidden();
  const auto is_journal = [](const std::string& name) { return name.find(".part-") != name.npos; };
  const std::string journal = data_ / *std::ranges::find_if(names, is_journal);
  fs::resize_file(journal, fs::file_size(journal) - 1);
  set_time_apart(tar(0));
  EXPECT_EQ(index_dataset(alone, Trust::names, {}).indexed, 4u);  // 6 but b and c
  EXPECT_THAT(hidden(), ElementsAre(name_in(index_path())));
}

TEST_F(Datasets, that_several_processes_index_at_once_are_whole_for_each) {
  make_tars(20);
  for (int round = 0; round < 20; ++round) {
    std::vector<int> children;
    for (int process = 0; process < 3; ++process) {
      children.push_back(index_in_child(options(), 0));
    }
    for (const int child : children) {
      EXPECT_EQ(status_of(child), 0);
    }
    EXPECT_EQ(indexed(Trust::names), 0u);
    EXPECT_THAT(hidden(), ElementsAre(name_in(index_path())));
    fs::remove(index_path());
  }
}

TEST_F(Datasets, that_are_checked_name_each_record_that_differs) {
  make_tars(3);
  IndexedDataset dataset = index_dataset(options(), Trust::names, {});
  IndexFindings findings = check_index(dataset, options(), {});
  EXPECT_THAT(findings.complaints, IsEmpty());
  EXPECT_EQ(findings.records, 6u);
  set_time_apart(tar(0));
  FileIndex lying;
  lying.stamp = dataset.index.files[1].records.stamp;
  lying.spans = {{0, 522}, {1024, 500}};
  dataset.index.files[1].records = file_records("b", lying, {});
  findings = check_index(dataset, options(), {});
  EXPECT_THAT(findings.complaints,
              ElementsAre(HasSubstr("a.tar changed since"), HasSubstr("b.tar: record 1 has 522")));
}

TEST_F(Datasets, that_are_checked_find_damage_within_records) {
  for (const Specimen& specimen : specimens()) {
    if (specimen.format == "tfrecord") {
      write(data_ / specimen.file, specimen.files.at(specimen.file));
    }
  }
  const IndexedDataset dataset = index_dataset(options(), Trust::names, {});
  const std::string path = data_ / "a.tfrecord";
  const auto time = fs::last_write_time(path);
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).seekp(14) << "X";
  fs::last_write_time(path, time);  // as a disk does that loses a bit
  EXPECT_THAT(check_index(dataset, options(), {}).complaints,
              ElementsAre(HasSubstr("record 0 at byte 0: a record of 9 bytes is damaged")));
}

}  // namespace
}  // namespace sprat::io
