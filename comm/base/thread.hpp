// Starting threads, with a reason where the system has no more.
#pragma once

#include <new>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

namespace sprat {

/// Throws Error{unavailable}: `purpose` got no thread, and which limits may be the reason.
[[noreturn]] void lacks_thread(std::string_view purpose, const std::error_code& reason);

/// A thread that runs `work`; `purpose` is for people, as in "the control thread".
template <class Work>
std::thread start_thread(std::string_view purpose, Work work) {
  try {
    return std::thread(std::move(work));
  } catch (const std::system_error& error) {
    lacks_thread(purpose, error.code());
  } catch (const std::bad_alloc&) {
    lacks_thread(purpose, std::make_error_code(std::errc::not_enough_memory));
  }
}

}  // namespace sprat
