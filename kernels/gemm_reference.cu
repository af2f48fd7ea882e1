// kernelgate: target sm_75, isa 8.0
//
// The harness's own work on a device, for cases too large for the host: make and
// quantise the operands, and check C at sampled strength. Host twins with the same
// names of things: src/gemm/inputs.rs, src/lowp/recipe.rs, src/gemm/sampled.rs.
// Nothing here is shared with the kernels under test.
//
// Values are made from (seed, index) wherever they are needed: no kernel stores an
// unquantised matrix.

using Byte = unsigned char;
using Word = unsigned int;
using Long = unsigned long long;

// How to make a matrix and how it is grouped.
struct Recipe {
  Long mixedSeed;     // finalise(seed ^ stream)
  Long rows, cols;
  Long scaleCols;
  Word rowShift, colShift;  // log2 of a group's rows and columns; 31: all of them
  Word halfZero;      // every other run of 16 along k is zero
  Word outlier;       // one element a row is large
  Word fp4;           // E2M1, two a byte; else E4M3
  Word powerScale;    // UE8M0: scales rounded up to a power of two
  float largest;      // largest code
  float scaleFactor;  // stored scale = scale used for encoding * this
};

__device__ __forceinline__ Long finalise(Long x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

__device__ __forceinline__ Long mixed(Long mixedSeed, Long index) {
  return finalise(mixedSeed + index * 0x9e3779b97f4a7c15ull);
}

__device__ __forceinline__ float valueAt(const Recipe& r, const float* quantiles,
                                         Long row, Long col) {
  if (r.halfZero && ((row + col / 16) & 1)) return 0.0f;
  const float x = quantiles[(mixed(r.mixedSeed, row * r.cols + col) >> 32) & 4095];
  if (r.outlier && mixed(r.mixedSeed, ~row) % r.cols == col) {
    return 1000.0f * fmaxf(fabsf(x), 0.5f);
  }
  return x;
}

// Largest magnitude of each group, as the bits of a non-negative float.
// Launch: grid (ceil(rows/rowsPerBlock), ceil(cols/128)), 128 threads; the rows of
// a block must share their groups. Rows lie along x: there may be 2^31 of them.
extern "C" __global__ void groupMaxima(Recipe r, const float* quantiles,
                                       Word* maxima, Word rowsPerBlock) {
  const Long col = blockIdx.y * 128ull + threadIdx.x;
  const Long row0 = static_cast<Long>(blockIdx.x) * rowsPerBlock;
  float largest = 0.0f;
  if (col < r.cols) {
    for (Long row = row0; row < row0 + rowsPerBlock && row < r.rows; ++row) {
      largest = fmaxf(largest, fabsf(valueAt(r, quantiles, row, col)));
    }
  }
  // No group is narrower than 16 columns.
  for (int step = 8; step > 0; step /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
  }
  if (threadIdx.x % 16 == 0 && col < r.cols) {
    atomicMax(&maxima[(row0 >> r.rowShift) * r.scaleCols + (col >> r.colShift)],
              __float_as_uint(largest));
  }
}

__device__ __forceinline__ float scaleOf(const Recipe& r, Word maximum) {
  const float scale = __fdiv_rn(fmaxf(__uint_as_float(maximum), 1e-4f), r.largest);
  if (!r.powerScale) return scale;
  return __uint_as_float((__float_as_uint(scale) + 0x007fffffu) & 0x7f800000u);
}

// Nearest E4M3 code, ties to even, saturating.
__device__ __forceinline__ Word encodeE4m3(float x) {
  const Word sign = (__float_as_uint(x) >> 24) & 0x80u;
  const float magnitude = fabsf(x);
  if (magnitude >= 448.0f) return sign | 0x7eu;
  if (magnitude < 0x1p-6f) {
    return sign | static_cast<Word>(__float2int_rn(magnitude * 512.0f));
  }
  const Word bits = __float_as_uint(magnitude);
  const Word rounded = bits + 0x7ffffu + ((bits >> 20) & 1u);
  return sign | min((rounded >> 20) - (120u << 3), 0x7eu);
}

// Nearest E2M1 code, ties to the smaller magnitude, no minus zero.
__device__ __forceinline__ Word encodeE2m1(float x) {
  const float m = fabsf(x);
  const Word code = (m > 0.25f) + (m > 0.75f) + (m > 1.25f) + (m > 1.75f) +
                    (m > 2.5f) + (m > 3.5f) + (m > 5.0f);
  return code != 0 && x < 0.0f ? code | 8u : code;
}

// Codes and scales from the maxima. One thread a byte of codes.
// Launch: grid (rows, ceil(bytes of a row/128)), 128 threads.
extern "C" __global__ void encode(Recipe r, const float* quantiles,
                                  const Word* maxima, Byte* codes,
                                  float* scales) {
  const Long bytesPerRow = r.fp4 ? (r.cols + 1) / 2 : r.cols;
  const Long row = blockIdx.x;
  const Long at = blockIdx.y * 128ull + threadIdx.x;
  if (at >= bytesPerRow) return;
  const Long from = at << r.fp4;
  Word byte = 0;
  for (Long col = from; col < from + (r.fp4 ? 2 : 1) && col < r.cols; ++col) {
    const Long group = (row >> r.rowShift) * r.scaleCols + (col >> r.colShift);
    const float scale = scaleOf(r, maxima[group]);
    const float x = __fdiv_rn(valueAt(r, quantiles, row, col), scale);
    byte |= r.fp4 ? encodeE2m1(x) << (4 * (col - from)) : encodeE4m3(x);
    const Long within = (row & ((1ull << r.rowShift) - 1)) |
                        (col & ((1ull << r.colShift) - 1));
    if (within == 0) scales[group] = scale * r.scaleFactor;
  }
  codes[row * bytesPerRow + at] = static_cast<Byte>(byte);
}

// Codes of -2, -1, 1, 2: `four` holds them a byte each. Launch as encode.
extern "C" __global__ void encodeIntegers(Recipe r, Word four, Byte* codes) {
  const Long bytesPerRow = r.fp4 ? (r.cols + 1) / 2 : r.cols;
  const Long row = blockIdx.x;
  const Long at = blockIdx.y * 128ull + threadIdx.x;
  if (at >= bytesPerRow) return;
  const Long from = at << r.fp4;
  Word byte = 0;
  for (Long col = from; col < from + (r.fp4 ? 2 : 1) && col < r.cols; ++col) {
    const Word pick = (mixed(r.mixedSeed, row * r.cols + col) >> 40) & 3u;
    byte |= ((four >> (8 * pick)) & 0xffu) << (4 * (col - from));
  }
  codes[row * bytesPerRow + at] = static_cast<Byte>(byte);
}

// Element (row, col) of a quantised matrix, exactly.
__device__ __forceinline__ double dequantised(const Recipe& r, const Byte* codes,
                                              const float* scales, Long row,
                                              Long col) {
  double value;
  if (r.fp4) {
    const Byte byte = codes[row * ((r.cols + 1) / 2) + col / 2];
    const Word code = col & 1 ? byte >> 4 : byte & 15u;
    const Word m = code & 7u;
    // 0 .5 1 1.5 2 3 4 6, doubled, a nibble each.
    value = 0.5 * ((0xc8643210u >> (4 * m)) & 15u);
    if (code & 8u) value = -value;
  } else {
    const Word code = codes[row * r.cols + col];
    const Word exponent = (code >> 3) & 15u;
    const Word mantissa = code & 7u;
    // Multiples of 2^-9, as integers.
    const Word steps = exponent == 0 ? mantissa : (8u + mantissa) << (exponent - 1);
    value = steps * 0x1p-9;
    if (code & 0x80u) value = -value;
  }
  return value *
         scales[(row >> r.rowShift) * r.scaleCols + (col >> r.colShift)];
}

// Euclidean norm of each row. Launch: one block of 128 threads a row.
extern "C" __global__ void rowNorms(Recipe r, const Byte* codes,
                                    const float* scales, double* norms) {
  __shared__ double partial[128];
  const Long row = blockIdx.x;
  double sum = 0.0;
  for (Long col = threadIdx.x; col < r.cols; col += 128) {
    const double x = dequantised(r, codes, scales, row, col);
    sum += x * x;
  }
  partial[threadIdx.x] = sum;
  __syncthreads();
  for (int half = 64; half > 0; half /= 2) {
    if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    __syncthreads();
  }
  // Never below the true norm: the sum's own rounding is far below 1e-9.
  if (threadIdx.x == 0) norms[row] = sqrt(partial[0]) * (1.0 + 1e-9);
}

// signedB[window][k] = sum over the window's 128 rows of B of sign * B[row][k].
// Launch: grid (ceil(cols/128), windows), 128 threads.
extern "C" __global__ void signedColumns(Recipe b, const Byte* codes,
                                         const float* scales, Long checkSeed,
                                         double* signedB) {
  const Long k = blockIdx.x * 128ull + threadIdx.x;
  if (k >= b.cols) return;
  double sum = 0.0;
  for (Long row = blockIdx.y * 128ull; row < blockIdx.y * 128ull + 128 && row < b.rows; ++row) {
    const double x = dequantised(b, codes, scales, row, k);
    sum += mixed(checkSeed, row) >> 63 ? -x : x;
  }
  signedB[blockIdx.y * b.cols + k] = sum;
}

// wanted[row][window] = sum over k of A[row][k] * signedB[window][k].
// Launch: grid (ceil(windows/64), ceil(rows/64)), 256 threads.
extern "C" __global__ void windowProduct(Recipe a, const Byte* codes,
                                         const float* scales,
                                         const double* signedB, Word windows,
                                         double* wanted) {
  __shared__ double tileA[16][65];
  __shared__ double tileB[16][65];
  const Long row0 = blockIdx.y * 64ull;
  const Long window0 = blockIdx.x * 64ull;
  const int tx = threadIdx.x % 16;
  const int ty = threadIdx.x / 16;
  double sum[4][4] = {};
  for (Long k0 = 0; k0 < a.cols; k0 += 16) {
    for (int i = threadIdx.x; i < 64 * 16; i += 256) {
      const Long k = k0 + i % 16;
      const Long row = row0 + i / 16;
      const Long window = window0 + i / 16;
      const bool inside = k < a.cols;
      tileA[i % 16][i / 16] = inside && row < a.rows
                                  ? dequantised(a, codes, scales, row, k)
                                  : 0.0;
      tileB[i % 16][i / 16] =
          inside && window < windows ? signedB[window * a.cols + k] : 0.0;
    }
    __syncthreads();
    for (int k = 0; k < 16; ++k) {
      for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) {
          sum[i][j] += tileA[k][ty + 16 * i] * tileB[k][tx + 16 * j];
        }
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      const Long row = row0 + ty + 16 * i;
      const Long window = window0 + tx + 16 * j;
      if (row < a.rows && window < windows) {
        wanted[row * windows + window] = sum[i][j];
      }
    }
  }
}

__device__ __forceinline__ double widen(const void* c, Long at, Word type) {
  if (type == 0) return static_cast<const float*>(c)[at];
  const unsigned short bits = static_cast<const unsigned short*>(c)[at];
  if (type == 2) return __uint_as_float(static_cast<Word>(bits) << 16);
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

// Half the spacing of the output type around x; NaN for NaN and infinity.
__device__ __forceinline__ double halfUlp(double x, Word type) {
  const Word field = (__double2hiint(x) >> 20) & 0x7ffu;
  if (field == 0x7ffu) return x - x;
  if (type == 0) return 0.0;
  const int lowest = type == 1 ? -14 : -126;
  const int exponent = max(static_cast<int>(field) - 1023, lowest);
  const int precision = type == 1 ? 11 : 8;
  return __hiloint2double((exponent - precision + 1023) << 20, 0);
}

// What C held before an accumulating kernel; 0 otherwise.
__device__ __forceinline__ double heldBefore(Long cSeed, Long i, double unit) {
  if (unit == 0.0) return 0.0;
  const Word pick = (mixed(cSeed, i) >> 40) & 3u;
  return (pick < 2 ? static_cast<double>(pick) - 2.0
                   : static_cast<double>(pick) - 1.0) * unit;
}

// Signed sums of each row's windows against `wanted`. first gets the smallest
// row * windows + window outside its gate; gates, one a window, all gates.
// Launch: grid (rows, windows), 32 threads.
extern "C" __global__ void judgeWindows(const void* c, Word type, Long n,
                                        Long ldc, Long windows, Long checkSeed,
                                        const double* wanted,
                                        const double* normsA,
                                        const double* normsB, Long cSeed,
                                        double cUnit, double factor,
                                        double constant, double lambda,
                                        Word roundsProduct, Long* first,
                                        double* differences, double* gates) {
  const Long row = blockIdx.x;
  const Long window = blockIdx.y;
  double difference = 0.0;
  double squares = 0.0;
  for (Long col = window * 128 + threadIdx.x; col < window * 128 + 128 && col < n;
       col += 32) {
    const double got = widen(c, row * ldc + col, type);
    const double held = heldBefore(cSeed, row * n + col, cUnit);
    difference += mixed(checkSeed, col) >> 63 ? held - got : got - held;
    const double error =
        factor * (normsA[row] * normsB[col] + fabs(held)) + constant;
    double reach = error + halfUlp(fabs(got) + error, type);
    if (roundsProduct) {
      // The product was rounded before C's old value came to it.
      reach += halfUlp(fabs(got - held) + halfUlp(got, type), type);
    }
    squares += reach * reach;
  }
  for (int step = 16; step > 0; step /= 2) {
    difference += __shfl_xor_sync(0xffffffffu, difference, step);
    squares += __shfl_xor_sync(0xffffffffu, squares, step);
  }
  if (threadIdx.x != 0) return;
  const Long at = row * windows + window;
  difference -= wanted[at];
  const double gate = lambda * sqrt(squares);
  differences[at] = difference;
  gates[at] = gate;
  // Written so that NaN is outside.
  if (!(fabs(difference) <= gate)) atomicMin(first, at);
}

// The dot product and the sum of magnitudes at chosen places.
// Launch: one block of 128 threads a place.
extern "C" __global__ void exactDots(Recipe a, const Byte* aCodes,
                                     const float* aScales, Recipe b,
                                     const Byte* bCodes, const float* bScales,
                                     const Long* places, const void* c, Word type,
                                     Long ldc, double* dots, double* magnitudes,
                                     double* got) {
  __shared__ double sums[128];
  __shared__ double sizes[128];
  const Long row = places[2 * blockIdx.x];
  const Long col = places[2 * blockIdx.x + 1];
  double sum = 0.0;
  double size = 0.0;
  for (Long k = threadIdx.x; k < a.cols; k += 128) {
    const double x = dequantised(a, aCodes, aScales, row, k) *
                     dequantised(b, bCodes, bScales, col, k);
    sum += x;
    size += fabs(x);
  }
  sums[threadIdx.x] = sum;
  sizes[threadIdx.x] = size;
  __syncthreads();
  for (int half = 64; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      sums[threadIdx.x] += sums[threadIdx.x + half];
      sizes[threadIdx.x] += sizes[threadIdx.x + half];
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    dots[blockIdx.x] = sums[0];
    magnitudes[blockIdx.x] = sizes[0];
    got[blockIdx.x] = widen(c, row * ldc + col, type);
  }
}

// Fills with a repeated 32-bit pattern. One thread a word.
extern "C" __global__ void fillWords(Word* to, Word pattern, Long words) {
  const Long i = blockIdx.x * static_cast<Long>(blockDim.x) + threadIdx.x;
  if (i < words) to[i] = pattern;
}

// Copies 32-bit words. One thread a word.
extern "C" __global__ void copyWords(const Word* from, Word* to, Long words) {
  const Long i = blockIdx.x * static_cast<Long>(blockDim.x) + threadIdx.x;
  if (i < words) to[i] = from[i];
}

// C's start values for an accumulating kernel. One thread an element.
extern "C" __global__ void fillC(void* c, Word type, Long n, Long ldc, Long rows,
                                 Long cSeed, double unit) {
  const Long i = blockIdx.x * static_cast<Long>(blockDim.x) + threadIdx.x;
  if (i >= rows * n) return;
  const float x = static_cast<float>(heldBefore(cSeed, i, unit));
  const Long at = i / n * ldc + i % n;
  if (type == 0) {
    static_cast<float*>(c)[at] = x;
  } else if (type == 2) {
    static_cast<unsigned short*>(c)[at] = __float_as_uint(x) >> 16;
  } else {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    static_cast<unsigned short*>(c)[at] = bits;
  }
}

// Adds a position-dependent digest of `words` 32-bit words to sum.
extern "C" __global__ void digest(const Word* from, Long words, Long* sum) {
  Long mine = 0;
  for (Long i = blockIdx.x * static_cast<Long>(blockDim.x) + threadIdx.x; i < words;
       i += static_cast<Long>(blockDim.x) * gridDim.x) {
    mine += finalise(from[i] + i * 0x9e3779b97f4a7c15ull);
  }
  for (int step = 16; step > 0; step /= 2) {
    mine += __shfl_xor_sync(0xffffffffu, mine, step);
  }
  if (threadIdx.x % 32 == 0) atomicAdd(sum, mine);
}
