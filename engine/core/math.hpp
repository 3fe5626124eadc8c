// SPDX-License-Identifier: MIT

// Elementary functions with the same bits on every processor and C library.
//
// The C library's are not: glibc, for one, picks at run time a variant that fuses multiplications
// with additions where the processor can, and rounds otherwise then. One last bit is enough for
// another access stream, or another decision of a policy. The engine and the kernels call these.
//
// Errors are below 0.51 units in the last place (log_gamma: see there), so that nearly all results
// are the correctly rounded ones. Infinities, zeros and NaNs give what C's Annex F asks for,
// without errno; rounding must be to nearest, as it is unless a program changes it.
#pragma once

namespace tt::math {

[[nodiscard]] double exp(double x);
[[nodiscard]] double expm1(double x);
[[nodiscard]] double log(double x);
[[nodiscard]] double log1p(double x);

/// For x >= 0 only: a negative x gives NaN, even with a whole y. -0 counts as 0.
[[nodiscard]] double pow(double x, double y);

/// log gamma(x) for x >= 0; a negative x gives NaN. The error is below 2^-52 of the result plus
/// 2^-59: very near to the zeros, 1 and 2, digits are lost.
[[nodiscard]] double log_gamma(double x);

}  // namespace tt::math
