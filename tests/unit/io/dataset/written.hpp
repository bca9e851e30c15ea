// Files on disk for tests of datasets.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "sprat/error.hpp"
#include "tests/unit/io/formats/specimens.hpp"
#include "tests/unit/io/temporary_folder.hpp"

namespace sprat::io {

inline void write(const std::string& path, const std::string& bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

/// A tar with `samples` samples of one member of `bytes` each.
inline std::string tar_of(int samples, std::size_t bytes) {
  std::string tar;
  for (int sample = 0; sample < samples; ++sample) {
    tar += tar_member(std::to_string(sample) + ".x", std::string(bytes, 'x'));
  }
  return tar + tar_end();
}

/// What `call` complains of; empty if it does not.
template <class Call>
std::string complaint_about(const Call& call) {
  try {
    call();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace sprat::io
