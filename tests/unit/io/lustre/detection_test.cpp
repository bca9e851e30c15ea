// What a file system is taken for, by what the kernel says; a probe that says anything stands in.
#include "io/lustre/detection.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "io/lustre/hsm_calls.hpp"
#include "io/lustre/layout.hpp"
#include "io/lustre/tunables.hpp"
#include "sprat/error.hpp"
#include "tests/unit/io/lustre/lov_bytes.hpp"
#include "tests/unit/io/lustre/target_at.hpp"
#include "tests/unit/io/temporary_folder.hpp"

namespace sprat::io {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* sample_mountinfo =
    "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n"
    "30 22 0:25 / /proc rw - proc proc rw\n"
    "41 22 0:50 / /fsx rw,noatime shared:9 master:2 - lustre "
    "fs-0123456789abcdef0.fsx.eu-central-1.amazonaws.com@tcp:/fsx rw,lazystatfs\n"
    "42 22 0:51 / /data\\040and\\134more rw - lustre 10.0.0.7@tcp:/scratch rw\n"
    "garbage\n"
    "43 41 0:52 / /fsx/inner rw - tmpfs tmpfs rw\n";

class AnsweringProbe final : public FsProbe {
 public:
  ProbeAnswer lov{.error = EOPNOTSUPP, .bytes = {}};
  ProbeAnswer hsm{.error = ENOTTY, .bytes = {}};
  std::string sys = "/nowhere";

  FileSystemStatus status(int) const override { return {.magic = lustre_magic}; }
  ProbeAnswer attribute(int, const std::string& name) const override {
    EXPECT_EQ(name, "lustre.lov");
    return lov;
  }
  ProbeAnswer control(int, unsigned long request, std::span<const std::byte> room) const override {
    EXPECT_EQ(request, hsm_state_ioctl);
    EXPECT_EQ(room.size(), hsm_state_bytes);
    return hsm;
  }
  ProbeOpened open(const std::string&) const override {
    return {.descriptor = -1, .error = ENOENT};
  }
  std::string mountinfo() const override { return sample_mountinfo; }
  std::string sysfs_root() const override { return sys; }
};

StorageFound detected(std::uint32_t magic, const char* path,
                      const std::optional<FsxSystem>& declared = {}) {
  return detect_storage({.magic = magic}, sample_mountinfo, path, declared);
}

TEST(LustreDetection, mounts_are_read_with_their_escapes) {
  const auto mounts = parse_mountinfo(sample_mountinfo);
  ASSERT_EQ(mounts.size(), 5u);
  EXPECT_EQ(mounts[3].point, "/data and\\more");
  EXPECT_EQ(mount_of(mounts, "/fsx/a/b")->type, "lustre");
  EXPECT_EQ(mount_of(mounts, "/fsx/inner/b")->type, "tmpfs");
  EXPECT_EQ(mount_of(mounts, "/fsxy")->type, "ext4");
  EXPECT_EQ(mount_of({}, "/"), nullptr);
}

TEST(LustreDetection, fsx_is_known_by_its_name_alone) {
  EXPECT_EQ(fsx_id_of("fs-0123456789abcdef0.fsx.eu-central-1.amazonaws.com@tcp:/fsx"),
            "fs-0123456789abcdef0");
  EXPECT_EQ(fsx_id_of("fs-01234567.fsx.cn-north-1.amazonaws.com.cn@efa:/fsx"), "fs-01234567");
  EXPECT_THAT(fsx_id_of("10.0.0.7@tcp:/fsx"), IsEmpty());
  EXPECT_THAT(fsx_id_of("notfs-01234567.fsx.eu-west-1.amazonaws.com@tcp:/fsx"), IsEmpty());
  EXPECT_THAT(fsx_id_of("fs-0123456.fsx.eu-west-1.amazonaws.com@tcp:/fsx"), IsEmpty());
}

TEST(LustreDetection, what_is_assumed_is_said) {
  EXPECT_THAT(detected(lustre_magic, "/fsx/a").sentence,
              HasSubstr("Lustre (FSx assumed: yes, by its name fs-0123456789abcdef0)"));
  EXPECT_THAT(detected(lustre_magic, "/data and\\more/a").sentence,
              HasSubstr("Lustre (FSx assumed: no;"));
  const StorageFound told =
      detected(lustre_magic, "/data and\\more/a", parse_fsx("PERSISTENT_2:250:12000"));
  EXPECT_THAT(told.sentence,
              HasSubstr("Lustre (FSx assumed: by option: PERSISTENT_2-250 of 12.0 TiB)"));
  EXPECT_EQ(told.fsx, StorageFound::Fsx::by_option);
  const StorageFound other = detected(0xEF53, "/home", parse_fsx("PERSISTENT_2:250:12000"));
  EXPECT_FALSE(other.lustre);
  EXPECT_EQ(other.sentence, "ext4, not Lustre; --fsx is not used");
}

TEST(LustreDetection, layouts_come_from_the_attribute) {
  AnsweringProbe probe;
  probe.lov = {.error = 0, .bytes = lov_blob({.osts = {3, 5}})};
  const LustreFile file = examine_lustre_file(probe, 0, {.bytes = 8 << 20, .blocks = 1}, -7);
  EXPECT_EQ(target_at(file.layout, 1 << 20), 5);
  EXPECT_FALSE(file.released);
  EXPECT_THAT(file.unknown_because, IsEmpty());
}

TEST(LustreDetection, nothing_that_a_file_system_answers_is_fatal) {
  for (const ProbeAnswer& answer :
       {ProbeAnswer{.error = EOPNOTSUPP}, ProbeAnswer{.error = ENODATA},
        ProbeAnswer{.error = ERANGE}, ProbeAnswer{.error = EIO},
        ProbeAnswer{.error = 0, .bytes = {}},
        ProbeAnswer{.error = 0, .bytes = bytes_of_hex("01020304 05060708")}}) {
    AnsweringProbe probe;
    probe.lov = answer;
    const LustreFile file = examine_lustre_file(probe, 0, {.bytes = 100, .blocks = 1}, -7);
    EXPECT_EQ(target_at(file.layout, 50), -7) << "a target of its own";
    EXPECT_THAT(file.unknown_because, Not(IsEmpty()));
  }
}

TEST(LustreDetection, released_files_are_seen_by_layout_or_by_hsm) {
  AnsweringProbe probe;
  probe.lov = {.error = 0,
               .bytes = lov_blob(
                   {.pattern = 0x80000001, .stripe_count = 1, .osts = {}, .magic = 0x0BD10BD0})};
  EXPECT_TRUE(examine_lustre_file(probe, 0, {.bytes = 100}, -7).released);
  // Without blocks, HSM is asked; a sparse file has none either.
  probe.lov = {.error = 0, .bytes = lov_blob({.osts = {3}})};
  EXPECT_FALSE(examine_lustre_file(probe, 0, {.bytes = 100}, -7).released);
  probe.hsm = {.error = 0,
               .bytes = bytes_of_hex("0d000000 01000000 00000000 00000000"
                                     "0000000000000000 0000000000000000")};
  EXPECT_TRUE(examine_lustre_file(probe, 0, {.bytes = 100}, -7).released);
  EXPECT_FALSE(examine_lustre_file(probe, 0, {.bytes = 100, .blocks = 8}, -7).released);
}

/// Answers FIDs, and keeps what it was asked for.
class RestoringProbe final : public FsProbe {
 public:
  mutable std::vector<std::byte> request;

  FileSystemStatus status(int) const override { return {}; }
  ProbeAnswer attribute(int, const std::string&) const override { return {.error = ENODATA}; }
  ProbeAnswer control(int, unsigned long number, std::span<const std::byte> bytes) const override {
    if (number == path_to_fid_ioctl) {
      return {.error = 0, .bytes = bytes_of_hex("0104000002000000 1a000000 00000000")};
    }
    EXPECT_EQ(number, hsm_request_ioctl);
    request.assign(bytes.begin(), bytes.end());
    return {.error = request.size() > 100 ? EPERM : 0, .bytes = request};
  }
  ProbeOpened open(const std::string&) const override { return {}; }
  std::string mountinfo() const override { return ""; }
  std::string sysfs_root() const override { return ""; }
};

TEST(LustreDetection, restores_are_asked_for_by_fid) {
  const RestoringProbe probe;
  const auto fid = fid_of(probe, 3);
  ASSERT_TRUE(fid.has_value());
  EXPECT_EQ(request_restore(probe, 4, std::vector{*fid}), 0);
  EXPECT_EQ(probe.request, encode_restore(std::vector{*fid}));
  EXPECT_EQ(request_restore(probe, 4, std::vector<LustreFid>(10, *fid)), EPERM);
}

TEST(LustreDetection, the_kernel_says_that_this_is_no_lustre) {
  const auto probe = system_probe("");
  const ProbeOpened opened = probe->open("/");
  ASSERT_GE(opened.descriptor, 0);
  const FileSystemStatus status = probe->status(opened.descriptor);
  EXPECT_NE(status.magic, 0u);
  EXPECT_GT(status.bytes, 0u);
  EXPECT_NE(probe->attribute(opened.descriptor, "lustre.lov").error, 0);
  EXPECT_FALSE(hsm_state_of(*probe, opened.descriptor).has_value());
  close(opened.descriptor);
  EXPECT_THAT(probe->mountinfo(), HasSubstr(" / "));
  EXPECT_EQ(probe->open("/nowhere/at/all").error, ENOENT);
}

void write_line(const std::filesystem::path& path, const std::string& line) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << line << '\n';
}

TEST(LustreDetection, a_folder_may_stand_in_for_a_mount) {
  const TemporaryFolder folder;
  const std::string path = folder / "shard";
  write_line(path, "bytes");
  const auto lov = lov_blob({.osts = {3, 5}});
  if (setxattr(path.c_str(), "user.lustre.lov", lov.data(), lov.size(), 0) != 0) {
    GTEST_SKIP() << "the folder's file system keeps no user attributes";
  }
  const auto probe = system_probe(folder.path());
  const ProbeOpened opened = probe->open(path);
  ASSERT_GE(opened.descriptor, 0);
  const StorageFound found =
      detect_storage(probe->status(opened.descriptor), probe->mountinfo(),
                     std::filesystem::canonical(path).string(), std::nullopt);
  EXPECT_TRUE(found.lustre);
  EXPECT_EQ(found.source, "10.0.0.1@tcp:/fake");
  const LustreFile file =
      examine_lustre_file(*probe, opened.descriptor, {.bytes = 6, .blocks = 8}, -7);
  EXPECT_THAT(file.layout.at(0).targets, ElementsAre(3, 5));
  close(opened.descriptor);
  EXPECT_THROW(system_probe(path), Error);
}

TEST(LustreClient, settings_are_read_where_they_are) {
  const TemporaryFolder folder;
  const std::filesystem::path lustre = folder / "fs/lustre";
  write_line(lustre / "version", "lustre: 2.15.6");
  write_line(lustre / "osc/fsx-OST0000-osc-1/max_rpcs_in_flight", "8");
  write_line(lustre / "osc/fsx-OST0001-osc-1/max_rpcs_in_flight", "16");
  write_line(lustre / "osc/fsx-OST0000-osc-1/max_pages_per_rpc", "1024");
  write_line(lustre / "lov/fsx-clilov-1/numobd", "2");
  write_line(lustre / "lov/fsx-clilov-1/activeobd", "1");
  write_line(lustre / "ldlm/namespaces/fsx-OST0000/lru_max_age", "3900000");
  AnsweringProbe probe;
  probe.sys = folder.path();
  const ClientSettings settings = read_client_settings(probe);
  EXPECT_EQ(settings.version, "2.15.6");
  const Tunable* rpcs = settings.find("osc.*.max_rpcs_in_flight");
  ASSERT_NE(rpcs, nullptr);
  EXPECT_EQ(rpcs->devices, 2u);
  EXPECT_EQ(rpcs->least, 8u);
  EXPECT_EQ(rpcs->most, 16u);
  EXPECT_THAT(settings.unread, ::testing::Contains("llite.*.max_read_ahead_mb"));
  EXPECT_EQ(target_cap_bytes(settings), 8u * 1024 * 4096);
  EXPECT_EQ(target_cap_bytes({}), 8u << 20) << "8 requests of 1 MiB where nothing can be read";

  EXPECT_EQ(client_advice(settings, {.cores = 8, .memory_bytes = 1 << 30}).size(), 1u)
      << "only the OST that is not active";
  const auto advice =
      client_advice(settings, {.cores = 96, .memory_bytes = std::uint64_t{768} << 30});
  std::string commands;
  for (const ClientAdvice& one : advice) {
    commands += one.command + "\n";
  }
  EXPECT_THAT(commands, HasSubstr("lctl set_param osc.*.max_rpcs_in_flight=32\n"));
  EXPECT_THAT(commands, HasSubstr("lctl set_param ldlm.namespaces.*.lru_max_age=600000\n"));
  EXPECT_THAT(commands, HasSubstr("lfs check osts"));
  EXPECT_THAT(commands, Not(HasSubstr("mdc."))) << "what cannot be read is not advised on";
}

TEST(LustreClient, hybrid_reads_of_a_new_client_are_warned_of) {
  const TemporaryFolder folder;
  write_line(folder / "fs/lustre/version", "2.17.0");
  write_line(folder / "fs/lustre/llite/fsx-1/hybrid_io", "1");
  AnsweringProbe probe;
  probe.sys = folder.path();
  const auto advice = client_advice(read_client_settings(probe), {.cores = 4});
  ASSERT_EQ(advice.size(), 1u);
  EXPECT_THAT(advice[0].found, HasSubstr("LU-18033"));
}

}  // namespace
}  // namespace sprat::io
