// Ranks that a PMIx launcher started (mpirun, prterun, srun --mpi=pmix): it carries rank 0's
// contact.
#include "comm/base/check.hpp"
#include "comm/bootstrap/bootstrap_place.hpp"

#ifdef SPRAT_PMIX

#include <pmix.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>

#include "comm/encryption/token_proof.hpp"

namespace sprat::comm {
namespace {

using Clock = std::chrono::steady_clock;

/// A value being fetched. Shared, because PMIx may call back after the caller's deadline has
/// passed.
struct Fetch {
  std::mutex mutex;  ///< Guards the rest.
  std::condition_variable changed;
  bool done = false;
  pmix_status_t status = PMIX_ERROR;
  std::string value;
};

void fetched(pmix_status_t status, pmix_value_t* value, void* data) {
  const std::unique_ptr<std::shared_ptr<Fetch>> fetch(static_cast<std::shared_ptr<Fetch>*>(data));
  std::lock_guard lock((*fetch)->mutex);
  (*fetch)->status = status;
  if (status == PMIX_SUCCESS && value != nullptr && value->type == PMIX_STRING) {
    (*fetch)->value = value->data.string;
  }
  (*fetch)->done = true;
  (*fetch)->changed.notify_all();
}

/// This process's session with the launcher's server, opened once and closed at exit. PMIx allows
/// one for a process and does not let it be opened again after it was closed; MPI uses the same
/// one; and a launcher takes a process that ends inside one for a failure.
class Session final {
 public:
  static Session& of_process() {
    static Session session;
    return session;
  }
  const pmix_proc_t& self() const { return self_; }
  /// Joins of one process are told apart by their number. Every rank joins in the same order, so
  /// the number of a join is the same on all of them.
  int next_join() { return joins_.fetch_add(1, std::memory_order_relaxed); }

 private:
  Session() : owner_(::getpid()) {
    const pmix_status_t status = PMIx_Init(&self_, nullptr, 0);
    need(status == PMIX_SUCCESS, "PMIx_Init: ", PMIx_Error_string(status),
         "; without the launcher's help set SPRAT_RANK, SPRAT_SIZE and SPRAT_RENDEZVOUS");
  }
  ~Session() {
    if (::getpid() == owner_) {
      PMIx_Finalize(nullptr, 0);  // a child of fork() would end its parent's session
    }
  }

  const pid_t owner_;
  pmix_proc_t self_{};
  std::atomic<int> joins_ = 0;
};

class PmixPlace final : public BootstrapPlace {
 public:
  PmixPlace(const Config& config, const Launch& launch)
      : config_(config),
        self_(Session::of_process().self()),
        size_(launch.size > 0 ? launch.size : job_size()),
        key_(text("sprat.contact.", Session::of_process().next_join())),
        token_(!config.token.empty() ? config.token
               : launch.rank == 0    ? random_token()
                                     : "") {}

  std::string name() const override { return text("PMIx namespace ", self_.nspace); }
  int size() const override { return size_; }
  Server server() const override { return {}; }
  std::vector<int> ports() const override { return free_ports(config_); }
  std::string token() const override { return token_; }
  Trust trust() const override { return Trust::proof; }

  void publish(int port) override {
    std::string content = write_contact(
        {addresses_of_this_host(config_, port), config_.token.empty() ? token_ : std::string()});
    pmix_value_t value{};
    value.type = PMIX_STRING;
    value.data.string = content.data();
    pmix_status_t status = PMIx_Put(PMIX_GLOBAL, key_.c_str(), &value);
    if (status == PMIX_SUCCESS) {
      status = PMIx_Commit();
    }
    need(status == PMIX_SUCCESS,
         "PMIx does not take rank 0's address: ", PMIx_Error_string(status));
  }

  Found look_up(Clock::time_point deadline) override {
    pmix_proc_t rank0 = self_;
    rank0.rank = 0;
    const auto fetch = std::make_shared<Fetch>();
    auto* data = new std::shared_ptr<Fetch>(fetch);  // fetched() owns it
    const pmix_status_t asked = PMIx_Get_nb(&rank0, key_.c_str(), nullptr, 0, fetched, data);
    if (asked != PMIX_SUCCESS) {
      delete data;
      return {std::nullopt, PMIx_Error_string(asked)};
    }
    std::unique_lock lock(fetch->mutex);
    if (!fetch->changed.wait_until(lock, deadline, [&] { return fetch->done; })) {
      return {std::nullopt, "rank 0 has not come"};
    }
    if (fetch->status != PMIX_SUCCESS) {
      return {std::nullopt, PMIx_Error_string(fetch->status)};
    }
    std::optional<Contact> contact = read_contact(fetch->value);
    if (contact && !config_.token.empty()) {
      contact->token = config_.token;
    }
    return {std::move(contact), "what rank 0 published is not an address"};
  }

 private:
  int job_size() const {
    pmix_proc_t job = self_;
    job.rank = PMIX_RANK_WILDCARD;
    pmix_value_t* value = nullptr;
    const pmix_status_t status = PMIx_Get(&job, PMIX_JOB_SIZE, nullptr, 0, &value);
    need(status == PMIX_SUCCESS && value->type == PMIX_UINT32,
         "PMIx does not tell the job's size: ", PMIx_Error_string(status));
    const auto size = static_cast<int>(value->data.uint32);
    PMIX_VALUE_RELEASE(value);
    return size;
  }

  const Config config_;
  const pmix_proc_t self_;
  const int size_;
  const std::string key_;
  const std::string token_;
};

}  // namespace

std::unique_ptr<BootstrapPlace> bootstrap_by_pmix(const Config& config, const Launch& launch) {
  return std::make_unique<PmixPlace>(config, launch);
}

}  // namespace sprat::comm

#else

namespace sprat::comm {

std::unique_ptr<BootstrapPlace> bootstrap_by_pmix(const Config&, const Launch& launch) {
  throw Error(ErrorCode::unavailable,
              text("launched by PMIx (", launch.rendezvous,
                   "), which this build of Sprat lacks; set SPRAT_RENDEZVOUS=tcp://host:port"));
}

}  // namespace sprat::comm

#endif
