// Whole tensors of a small transformer, and what each rank of a tensor parallel group has of them.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "sprat/tensor.hpp"
#include "tests/unit/layers/roundings.hpp"

namespace sprat::tensor_test {

inline constexpr int heads = 4, head_width = 6, width = heads * head_width, hidden = 20,
                     vocabulary = 37, sequences = 3, length = 101, rows = sequences * length;

using Values = std::map<std::string, std::vector<float>>;

/// Some rows and columns of a matrix.
struct Cut {
  int columns = 1;  ///< Of the whole matrix.
  std::vector<tensor::Part> rows = {};
  tensor::Part some = {0, 1};  ///< Columns.

  std::size_t count() const {
    std::size_t sum = 0;
    for (const tensor::Part& part : rows) {
      sum += std::size_t(part.count) * std::size_t(some.count);
    }
    return sum;
  }
  /// Calls visit(place in the whole, place in the part) for every element.
  template <class Visit>
  void for_each(const Visit& visit) const {
    std::size_t at = 0;
    for (const tensor::Part& part : rows) {
      for (int row = part.first; row < part.end(); ++row) {
        for (int column = some.first; column < some.end(); ++column) {
          visit(std::size_t(row) * std::size_t(columns) + std::size_t(column), at++);
        }
      }
    }
  }
};

inline std::vector<float> taken(const std::vector<float>& whole, const Cut& cut) {
  std::vector<float> part(cut.count());
  cut.for_each([&](std::size_t from, std::size_t to) { part[to] = whole[from]; });
  return part;
}

/// What all ranks have computed, put together. What several have must be the same bits.
class Record {
 public:
  void put(const std::string& name, std::size_t count, const Cut& cut,
           std::span<const float> part) {
    const std::lock_guard lock(mutex_);
    std::vector<float>& whole = values_[name];
    whole.resize(count, std::numeric_limits<float>::quiet_NaN());
    ASSERT_EQ(part.size(), cut.count()) << name;
    cut.for_each([&](std::size_t to, std::size_t from) {
      EXPECT_TRUE(std::isnan(whole[to]) || whole[to] == part[from]) << name << ' ' << to;
      whole[to] = part[from];
    });
  }
  const Values& values() const { return values_; }

 private:
  std::mutex mutex_;
  Values values_;
};

/// Parameters as one rank has them.
inline Cut cut_of(const tensor::Group& group, const std::string& name) {
  const tensor::Part own_width = group.own_part(width), own_hidden = group.own_part(hidden),
                     own_tokens = group.own_part(vocabulary);
  const auto all = [](int extent) { return tensor::Part{0, extent}; };
  const auto three = [](tensor::Part part) {
    return std::vector<tensor::Part>{
        part, {part.first + width, part.count}, {part.first + 2 * width, part.count}};
  };
  static const std::map<std::string, int> columns = {{"table", width}, {"positions", width},
                                                     {"qkv", width},   {"projection", width},
                                                     {"up", width},    {"down", hidden}};
  const auto found = columns.find(name);
  Cut cut{.columns = found == columns.end() ? 1 : found->second};
  cut.some = all(cut.columns);
  if (name == "qkv" || name == "qkv_bias") {
    cut.rows = three(own_width);
  } else if (name == "up" || name == "up_bias") {
    cut.rows = {own_hidden};
  } else if (name == "table") {
    cut.rows = {own_tokens};
  } else if (name == "positions") {
    cut.rows = {all(length)};
  } else {
    cut.rows = {all(width)};
  }
  if (name == "projection") {
    cut.some = own_width;
  } else if (name == "down") {
    cut.some = own_hidden;
  }
  return cut;
}

inline Values whole_parameters() {
  // As small as initial values, so that the deepest gradients are of about the size of the first.
  const auto small = [](std::size_t count, unsigned seed) {
    std::vector<float> values = layers_test::random(count, seed);
    for (float& value : values) {
      value *= 0.125f;
    }
    return values;
  };
  constexpr std::size_t w = width, h = hidden;
  return {{"table", small(vocabulary * w, 1)},
          {"positions", small(length * w, 2)},
          {"gain", layers_test::random(w, 3)},
          {"bias", small(w, 4)},
          {"qkv", small(3 * w * w, 5)},
          {"qkv_bias", small(3 * w, 6)},
          {"projection", small(w * w, 7)},
          {"projection_bias", small(w, 8)},
          {"second_gain", layers_test::random(w, 9)},
          {"second_bias", small(w, 10)},
          {"up", small(h * w, 11)},
          {"up_bias", small(h, 12)},
          {"down", small(w * h, 13)},
          {"down_bias", small(w, 14)},
          {"last_gain", layers_test::random(w, 15)},
          {"last_bias", small(w, 16)}};
}

}  // namespace sprat::tensor_test
