// What layers of a tensor parallel group send, by formula.
#include "mp/tensor/row_plan.hpp"
#include "sprat/tensor.hpp"

namespace sprat::tensor {
namespace {

std::uint64_t bytes_of(int rows, int width) { return sizeof(float) * row_elements(rows, width); }
bool alone(const Parallelism& how) { return how.degree == 1; }

/// Of sums of rows that every rank, or its owner alone, has afterwards.
Traffic sums(const Parallelism& how, int rows, int width) {
  if (alone(how)) {
    return {};
  }
  const std::uint64_t bytes = bytes_of(rows, width);
  return rows_are_dealt(how) ? Traffic{.scattered = bytes} : Traffic{.all_reduced = bytes};
}
Traffic gathers(const Parallelism& how, int rows, int width) {
  return rows_are_dealt(how) ? Traffic{.gathered = bytes_of(rows, width)} : Traffic{};
}

}  // namespace

double Traffic::sent(int degree) const noexcept {
  const double share = (degree - 1.0) / degree;
  return share * (2.0 * static_cast<double>(all_reduced) + static_cast<double>(gathered) +
                  static_cast<double>(scattered));
}

Traffic& Traffic::operator+=(const Traffic& more) noexcept {
  all_reduced += more.all_reduced;
  gathered += more.gathered;
  scattered += more.scattered;
  return *this;
}

Traffic column_forward_traffic(const Parallelism& how, int rows, int width) noexcept {
  return gathers(how, rows, width);
}

// The input is gathered again, which is cheaper than keeping all rows of it until then.
Traffic column_backward_traffic(const Parallelism& how, int rows, int width) noexcept {
  Traffic traffic = gathers(how, rows, width);
  traffic += sums(how, rows, width);
  return traffic;
}

Traffic row_forward_traffic(const Parallelism& how, int rows, int width) noexcept {
  return sums(how, rows, width);
}
Traffic row_backward_traffic(const Parallelism& how, int rows, int width) noexcept {
  return gathers(how, rows, width);
}

// Each row's highest logit, then its sum of exponentials and its target's logit.
Traffic cross_entropy_traffic(const Parallelism& how, int rows) noexcept {
  return alone(how) ? Traffic{} : Traffic{.all_reduced = bytes_of(rows, 3)};
}

}  // namespace sprat::tensor
