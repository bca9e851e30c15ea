// Passes through tensor parallel layers, and the same one after the other: whole products, whole
// exchanges.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "sprat/tensor.hpp"

namespace sprat::bench {

/// A part of a pass that is carried out by itself.
struct Part {
  bool travels = false;
  std::function<void()> run;
};
/// A result of both ways, and how many roundings each element of it may have gone through.
struct Result {
  std::string name;
  std::span<float> layers, parts;
  int roundings = 0;
};
struct Pass {
  std::string name;
  std::function<void()> layer;      ///< As the library does it: pieces travel beside products.
  std::function<void()> one_piece;  ///< The same, where all rows are one piece.
  std::vector<Part> parts;          ///< One after the other.
  std::vector<Result> results;
};

/// The two layers of an MLP, of which this rank has 4 width / T of the inner values. All numbers
/// are in [0, 1), so that a sum's error is at most its relative one.
class Mlp {
 public:
  /// The communicators must outlive this.
  Mlp(Communicator& by_pieces, Communicator& in_one, const tensor::Parallelism& how, int rows,
      int width, const GemmBackend& gemm);
  Mlp(const Mlp&) = delete;

  /// Those in which something travels.
  std::vector<Pass> passes();
  /// The first result that is off, in words; empty if none is.
  std::string difference(std::vector<Pass>& passes);
  /// Bytes that a rank sends in a gather or a reduce-scatter of rows.
  double exchanged_bytes() const;

 private:
  struct Outputs {
    std::vector<float> hidden, own, weight, bias;
  };
  Pass column_forward();
  Pass row_forward();
  Pass column_backward();
  Pass row_backward();
  tensor::LinearBackward backward(const layers::Linear& layer, const float* x, const float* dy,
                                  float* dx, Outputs& to);
  layers::Linear up() const;
  layers::Linear down() const;
  std::function<void()> gather_whole();
  /// To the outputs of the parts: the sum of whole_'s own rows.
  std::function<void()> scatter_whole();

  tensor::Group pieces_, one_;
  int rows_, own_rows_, width_, inner_;
  const GemmBackend& gemm_;
  std::vector<float> x_, hidden_, up_weight_, up_bias_, down_weight_, down_bias_;
  std::vector<float> whole_, workspace_, one_workspace_;
  std::vector<std::size_t> counts_;
  Outputs layers_, parts_;
};

}  // namespace sprat::bench
