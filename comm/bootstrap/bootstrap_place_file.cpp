// Ranks that share a file: rank 0 writes there how to reach it.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "comm/base/check.hpp"
#include "comm/base/owned_descriptor.hpp"
#include "comm/bootstrap/bootstrap_place.hpp"
#include "comm/encryption/token_proof.hpp"

namespace sprat::comm {
namespace {

constexpr std::size_t max_file_bytes = std::size_t{64} << 10;

std::string read_all(int descriptor) {
  std::string content;
  std::array<char, 4096> buffer;
  // The file may be anybody's, and of any length.
  while (content.size() <= max_file_bytes) {
    const ssize_t got = ::read(descriptor, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      break;
    }
    content.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return content;
}

bool write_all(int descriptor, std::string_view content) {
  while (!content.empty()) {
    const ssize_t put = ::write(descriptor, content.data(), content.size());
    // File systems over a network return to a program's signal handler without having written.
    if (put < 0 && errno == EINTR) {
      continue;
    }
    if (put <= 0) {
      return false;
    }
    content.remove_prefix(static_cast<std::size_t>(put));
  }
  return ::fsync(descriptor) == 0;
}

/// What an earlier job left in the file does no harm. Its coordinator does not answer or does not
/// know our token, and a rank that finds so reads the file again.
class FilePlace final : public BootstrapPlace {
 public:
  FilePlace(const Config& config, const Launch& launch)
      : config_(config),
        size_(launch.size),
        path_(std::string_view(launch.rendezvous).substr(7)),
        token_(!config.token.empty() ? config.token
               : launch.rank == 0    ? random_token()
                                     : "") {
    require(path_.starts_with('/'), "SPRAT_RENDEZVOUS is \"", launch.rendezvous,
            "\"; it must be file:// and an absolute path, as in file:///shared/job7");
  }
  ~FilePlace() override {
    if (published_.empty()) {
      return;
    }
    const OwnedDescriptor file = open_to_read(path_.c_str(), O_NOFOLLOW);
    // Another job may have put its own address there meanwhile, which stays.
    if (file.number() >= 0 && read_all(file.number()) == published_) {
      ::unlink(path_.c_str());
    }
  }

  std::string name() const override { return text("the file ", path_); }
  int size() const override { return size_; }
  Server server() const override { return {}; }
  std::vector<int> ports() const override { return free_ports(config_); }
  std::string token() const override { return token_; }
  Trust trust() const override { return Trust::proof; }

  void publish(int port) override {
    // A token that every rank has already is not written down.
    const std::string content = write_contact(
        {addresses_of_this_host(config_, port), config_.token.empty() ? token_ : std::string()});
    // Written under another name and renamed, so that nobody reads half of it. The name cannot be
    // guessed, and O_EXCL and O_NOFOLLOW refuse what another user may have put there. Only this
    // user may read the token in it.
    const std::string draft = text(path_, ".", random_token().substr(0, 16));
    const OwnedDescriptor file(
        ::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    need(file.number() >= 0, "cannot write ", draft, ": ", std::strerror(errno));
    if (!write_all(file.number(), content) || ::rename(draft.c_str(), path_.c_str()) != 0) {
      const int error = errno;
      ::unlink(draft.c_str());
      need(false, "cannot write ", path_, ": ", std::strerror(error));
    }
    published_ = content;
  }

  Found look_up(std::chrono::steady_clock::time_point) override {
    // Whoever may write to the folder may have put a FIFO at the path.
    const OwnedDescriptor file = open_to_read(path_.c_str());
    if (file.number() < 0) {
      return {std::nullopt, std::strerror(errno)};
    }
    struct stat status {};
    need(::fstat(file.number(), &status) == 0 && S_ISREG(status.st_mode), path_, " is not a file");
    // Whoever wrote the file decides whom this rank talks to. With SPRAT_TOKEN the coordinator must
    // prove a secret that the file does not hold, so its owner does not matter.
    need(!config_.token.empty() || status.st_uid == ::geteuid(), path_, " belongs to user ",
         status.st_uid, ", this process to user ", ::geteuid(),
         "; remove the file, or set SPRAT_TOKEN on every rank");
    std::optional<Contact> contact = read_contact(read_all(file.number()));
    if (!contact) {
      return {std::nullopt, "it is not (yet) a rendezvous"};
    }
    if (!config_.token.empty()) {
      contact->token = config_.token;
    }
    return {std::move(contact), ""};
  }

 private:
  const Config config_;
  const int size_;
  const std::string path_;
  const std::string token_;
  std::string published_;
};

}  // namespace

std::unique_ptr<BootstrapPlace> bootstrap_at_file(const Config& config, const Launch& launch) {
  return std::make_unique<FilePlace>(config, launch);
}

}  // namespace sprat::comm
