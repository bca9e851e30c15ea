// The GPT's ends: tokens become the residual stream, and the stream logits and a loss.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "train/model/gpt_block.hpp"

namespace sprat::train {

// tokens and targets are of all rows, the stream's values and gradients of own rows.
void embedding_forward_tokens(const GptRows& run, const UnitValues& table,
                              std::span<const std::int32_t> tokens, float* y);
void embedding_forward_positions(const GptRows& run, const UnitValues& positions, float* y);
void embedding_backward_tokens(const GptRows& run, const UnitGradients& table,
                               std::span<const std::int32_t> tokens, const float* dy);
void embedding_backward_positions(const GptRows& run, const UnitGradients& positions,
                                  const float* dy);

/// What the head keeps. Own rows up to what the norm wrote, all rows from there on.
struct HeadTape {
  const float* x = nullptr;                      ///< The residual stream behind all blocks.
  float *mean = nullptr, *reciprocal = nullptr;  ///< Of the norm.
  float* normed = nullptr;
  float *logits = nullptr, *highest = nullptr, *share = nullptr;  ///< The loss, by row.
};
/// x is where the memory begins.
HeadTape head_tape(const GptExtents& extents, float* memory);
std::size_t head_tape_count(const GptExtents& extents);

void head_forward_norm(const GptRows& run, const UnitValues& norm, const HeadTape& tape);
void head_forward_logits(const GptRows& run, const UnitValues& head, const HeadTape& tape);
/// The same where `normed` has all rows.
void head_forward_logits_of(const GptRows& run, const UnitValues& head, const float* normed,
                            float* logits);
/// The sum over rows of -log p(target), each of which `losses` has a place for.
double head_forward_loss(const GptRows& run, std::span<const std::int32_t> targets,
                         const HeadTape& tape, std::span<double> losses);

/// Logits become their gradient times scale; dnormed (rows of width) is what the norm wrote.
void head_backward_logits(const GptRows& run, const UnitValues& head,
                          std::span<const std::int32_t> targets, float scale, const HeadTape& tape,
                          float* dnormed);
/// The same with the gradient of the head, whose products overlap what ranks exchange.
void head_backward_logits_and_weight(const GptRows& run, const UnitValues& head,
                                     const UnitGradients& gradients,
                                     std::span<const std::int32_t> targets, float scale,
                                     const HeadTape& tape, float* dnormed);
void head_backward_norm(const GptRows& run, const UnitValues& norm, const HeadTape& tape,
                        const float* dnormed, float* dx);
void head_backward_logits_weight(const GptRows& run, const UnitGradients& head,
                                 const HeadTape& tape);
void head_backward_norm_weight(const GptRows& run, const UnitGradients& norm, const HeadTape& tape,
                               const float* dnormed);

}  // namespace sprat::train
