// kernelgate: target sm_75, isa 8.0
//
// Checks C on the device, for cases too large for the host: what may not change,
// and every element against an FP64 product or windows and dots of it. Host twins
// with the same names of things: src/gemm/gate.rs, src/gemm/sampled.rs,
// src/gemm/bound.rs. Nothing here is shared with the kernels under test.

#include "gemm_reference.cuh"

// Adds a position-dependent digest of `bytes` bytes to sum; `from` is aligned to 16.
// Launch: any grid of whole warps.
extern "C" __global__ void digest(const Byte* from, Long bytes, Long* sum) {
  constexpr Long kStep = 0x9e3779b97f4a7c15ull;
  Long mine = 0;
  const Long me = blockIdx.x * static_cast<Long>(blockDim.x) + threadIdx.x;
  for (Long i = me; i < bytes / 16; i += static_cast<Long>(blockDim.x) * gridDim.x) {
    const ulonglong2 two = reinterpret_cast<const ulonglong2*>(from)[i];
    mine += finalise(two.x + 2 * i * kStep) + finalise(two.y + (2 * i + 1) * kStep);
  }
  if (me < bytes % 16) {
    const Long at = bytes / 16 * 16 + me;
    mine += finalise(from[at] + ~at * kStep);
  }
  for (int step = 16; step > 0; step /= 2) {
    mine += __shfl_xor_sync(0xffffffffu, mine, step);
  }
  if (threadIdx.x % 32 == 0) atomicAdd(sum, mine);
}

constexpr Long kGuard = 256;

// Guard bands around `bytes` bytes: regions holds (start of the band before, bytes)
// a region. Launch: a block of 256 threads a region.
extern "C" __global__ void fillGuards(const Long* regions, Word pattern) {
  Byte* start = reinterpret_cast<Byte*>(regions[2 * blockIdx.x]);
  const Long i = threadIdx.x;
  const Byte value = static_cast<Byte>(pattern);
  start[i] = value;
  start[kGuard + regions[2 * blockIdx.x + 1] + i] = value;
}

// For each region the distance from the data of the nearest changed guard byte, in
// nearest[2 * region] before it and [2 * region + 1] after it. Launch as fillGuards.
extern "C" __global__ void checkGuards(const Long* regions, Word pattern,
                                       Long* nearest) {
  const Byte* start = reinterpret_cast<const Byte*>(regions[2 * blockIdx.x]);
  const Long i = threadIdx.x;
  const Byte value = static_cast<Byte>(pattern);
  if (start[i] != value) atomicMin(&nearest[2 * blockIdx.x], kGuard - i);
  if (start[kGuard + regions[2 * blockIdx.x + 1] + i] != value) {
    atomicMin(&nearest[2 * blockIdx.x + 1], i);
  }
}

// Elements of one group's C that are not C's to write and no longer hold `poison`:
// columns n .. ldc of `rows` rows, and the rows after them up to `allocated`.
// touched[0] counts them, touched[1] gets the first, row * ldc + column.
// Launch: any grid.
extern "C" __global__ void countTouched(const void* c, Word elementBytes, Word poison,
                                        Long n, Long ldc, Long rows, Long allocated,
                                        Long* touched) {
  const Long pad = ldc - n;
  const Long padding = rows * pad;
  const Long all = padding + (allocated - rows) * ldc;
  const Long step = static_cast<Long>(blockDim.x) * gridDim.x;
  for (Long i = blockIdx.x * static_cast<Long>(blockDim.x) + threadIdx.x; i < all;
       i += step) {
    const Long at = i < padding ? i / pad * ldc + n + i % pad
                                : rows * ldc + (i - padding);
    const Word held = elementBytes == 4 ? static_cast<const Word*>(c)[at]
                                        : static_cast<const unsigned short*>(c)[at];
    if (held != poison) {
      atomicAdd(&touched[0], 1ull);
      atomicMin(&touched[1], at);
    }
  }
}

__device__ __forceinline__ double warpSum(double x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

// Euclidean norm of each row. Launch: 128 threads, a warp a row.
extern "C" __global__ void rowNorms(Recipe r, const Byte* codes,
                                    const float* scales, double* norms) {
  const Long row = blockIdx.x * 4ull + threadIdx.x / 32;
  if (row >= r.rows) return;
  double sum = 0.0;
  for (Long col = threadIdx.x % 32 * kChunk; col < r.cols; col += 32 * kChunk) {
    float value[kChunk];
    loadChunk(r, codes, row, col, value);
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < kChunk; ++i) squares += value[i] * value[i];
    const double scale = scales[scaleIndex(r, row, col)];
    sum += static_cast<double>(squares) * scale * scale;
  }
  sum = warpSum(sum);
  // Never below the true norm: sixteen FP32 roundings are below 1e-5.
  if (threadIdx.x % 32 == 0) norms[row] = sqrt(sum) * (1.0 + 1e-5);
}

// +1 or -1 for each column of C. One thread a column.
extern "C" __global__ void drawSigns(Long checkSeed, Long n, float* signs) {
  const Long i = blockIdx.x * static_cast<Long>(blockDim.x) + threadIdx.x;
  if (i < n) signs[i] = mixed(checkSeed, i) >> 63 ? -1.0f : 1.0f;
}

// signedB[window][k] = sum over the window's 128 rows of B of sign * B[row][k].
// Launch: grid (ceil(cols/16/64), windows), 64 threads, a chunk each.
extern "C" __global__ void signedColumns(Recipe b, const Byte* codes,
                                         const float* scales, const float* signs,
                                         double* signedB) {
  const Long col = (blockIdx.x * 64ull + threadIdx.x) * kChunk;
  if (col >= b.cols) return;
  const Long last = min(blockIdx.y * 128ull + 128, b.rows);
  double sum[kChunk] = {};
  for (Long row = blockIdx.y * 128ull; row < last; ++row) {
    float value[kChunk];
    loadChunk(b, codes, row, col, value);
    const double scale = static_cast<double>(scales[scaleIndex(b, row, col)] * signs[row]);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) sum[i] += value[i] * scale;
  }
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    if (col + i < b.cols) signedB[blockIdx.y * b.cols + col + i] = sum[i];
  }
}

// Rows row0 .. row0 + rows of a matrix in FP64, exactly. Launch: any grid.
extern "C" __global__ void dequantise(Recipe r, const Byte* codes, const float* scales,
                                      Long row0, Long rows, double* out) {
  const Long perRow = (r.cols + 3) / 4;
  const Long step = static_cast<Long>(blockDim.x) * gridDim.x;
  for (Long i = blockIdx.x * static_cast<Long>(blockDim.x) + threadIdx.x;
       i < rows * perRow; i += step) {
    const Long row = i / perRow;
    const Long col = i % perRow * 4;
    const double scale = scales[scaleIndex(r, row0 + row, col)];
    double* to = out + row * r.cols + col;
    const Long at = (row0 + row) * bytesOfRow(r) + (r.fp4 ? col / 2 : col);
    if (!r.fp4 && r.cols % 4 == 0 && isAligned(codes + at, 4)) {
      const Word four = *reinterpret_cast<const Word*>(codes + at);
      double value[4];
      for (int j = 0; j < 4; ++j) value[j] = decodeE4m3(four >> (8 * j) & 0xffu) * scale;
      reinterpret_cast<double2*>(to)[0] = make_double2(value[0], value[1]);
      reinterpret_cast<double2*>(to)[1] = make_double2(value[2], value[3]);
    } else {
      for (int j = 0; j < 4 && col + j < r.cols; ++j) {
        const float value = r.fp4 ? decodeE2m1(codes[at + j / 2] >> (4 * (j % 2)) & 15u)
                                  : decodeE4m3(codes[at + j]);
        to[j] = value * scale;
      }
    }
  }
}

// out[row][col] = sum over k of a[row][k] * b[col][k], all FP64, rows of `depth`.
// For devices without a library. Launch: grid (ceil(n/64), ceil(rows/64)), 256 threads.
extern "C" __global__ void productFp64(const double* a, const double* b, Long rows,
                                       Long n, Long depth, double* out) {
  __shared__ double tileA[16][65];
  __shared__ double tileB[16][65];
  const Long row0 = blockIdx.y * 64ull;
  const Long col0 = blockIdx.x * 64ull;
  const int tx = threadIdx.x % 16;
  const int ty = threadIdx.x / 16;
  double sum[4][4] = {};
  for (Long k0 = 0; k0 < depth; k0 += 16) {
    for (int i = threadIdx.x; i < 64 * 16; i += 256) {
      const Long k = k0 + i % 16;
      const Long row = row0 + i / 16;
      const Long col = col0 + i / 16;
      tileA[i % 16][i / 16] = k < depth && row < rows ? a[row * depth + k] : 0.0;
      tileB[i % 16][i / 16] = k < depth && col < n ? b[col * depth + k] : 0.0;
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
      const Long col = col0 + tx + 16 * j;
      if (row < rows && col < n) out[row * n + col] = sum[i][j];
    }
  }
}

__device__ __forceinline__ double widenBits(unsigned short bits, Word type) {
  if (type == 2) return __uint_as_float(static_cast<Word>(bits) << 16);
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

__device__ __forceinline__ double widen(const void* c, Long at, Word type) {
  if (type == 0) return static_cast<const float*>(c)[at];
  return widenBits(static_cast<const unsigned short*>(c)[at], type);
}

// Eight elements from `at` on, of which `count` exist.
__device__ __forceinline__ void widenEight(const void* c, Long at, Word type, Long count,
                                           double (&value)[8]) {
  const Byte* from = static_cast<const Byte*>(c) + at * (type == 0 ? 4 : 2);
  const bool whole = count == 8 && isAligned(from, 16);
  if (type != 0 && whole) {
    const uint4 all = *reinterpret_cast<const uint4*>(from);
    const Word words[4] = {all.x, all.y, all.z, all.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      value[i] = widenBits(static_cast<unsigned short>(words[i / 2] >> (16 * (i % 2))), type);
    }
  } else if (whole) {
    const float4 low = reinterpret_cast<const float4*>(from)[0];
    const float4 high = reinterpret_cast<const float4*>(from)[1];
    const float all[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) value[i] = all[i];
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) value[i] = i < count ? widen(c, at + i, type) : 0.0;
  }
}

// Half the spacing of the output type around x; NaN for NaN and infinity. FP32 is
// stored as computed: nothing.
__device__ __forceinline__ double halfUlp(double x, Word type) {
  const Word field = (__double2hiint(x) >> 20) & 0x7ffu;
  if (field == 0x7ffu) return x - x;
  if (type == 0) return 0.0;
  const int lowest = type == 1 ? -14 : -126;
  const int exponent = max(static_cast<int>(field) - 1023, lowest);
  const int precision = type == 1 ? 11 : 8;
  return __hiloint2double((exponent - precision + 1023) << 20, 0);
}

// How far a correct kernel may be from the truth: src/gemm/bound.rs.
struct Model {
  double factor;    // error before output rounding, per sum of magnitudes
  double constant;  // and what it is at least
  double lambda;    // standard deviations that a signed sum may be off
  double cUnit;     // unit of C's old values; 0 where C is not added to
  Long cSeed;
  Word type;        // 0 FP32, 1 FP16, 2 BF16
  Word roundsProduct;  // the product may be rounded before C's old value is added
};

// C of one group.
struct Result {
  const void* c;
  Long rows, n, ldc;
};

constexpr int kWindow = 128;
constexpr int kRowsPerBlock = 8;

// Signed sums of each row's windows against `wanted`. first gets the smallest
// row * windows + window outside its gate; differences and gates are kept for all.
// Launch: grid (ceil(rows/8), ceil(windows/w)), 16 * w threads, w even: sixteen
// lanes a window, eight columns a lane.
extern "C" __global__ void judgeWindows(Result r, Model m, Long windows,
                                        const float* signs, const double* wanted,
                                        const double* normsA, const double* normsB,
                                        Long* first, double* differences,
                                        double* gates) {
  const Long window = blockIdx.y * static_cast<Long>(blockDim.x / 16) + threadIdx.x / 16;
  const Long col = window * kWindow + threadIdx.x % 16 * 8;
  const Long count = col < r.n ? min(8ull, r.n - col) : 0;
  double sign[8];
  double norm[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    sign[i] = i < count ? signs[col + i] : 0.0;
    norm[i] = i < count ? m.factor * normsB[col + i] : 0.0;
  }
  const Long last = min((blockIdx.x + 1ull) * kRowsPerBlock, r.rows);
  for (Long row = blockIdx.x * static_cast<Long>(kRowsPerBlock); row < last; ++row) {
    double got[8];
    widenEight(r.c, row * r.ldc + col, m.type, count, got);
    const double normA = normsA[row];
    double difference = 0.0;
    double squares = 0.0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (i >= count) continue;
      const double held = heldBefore(m.cSeed, row * r.n + col + i, m.cUnit);
      difference += sign[i] * (got[i] - held);
      const double error = normA * norm[i] + m.factor * fabs(held) + m.constant;
      double reach = error + halfUlp(fabs(got[i]) + error, m.type);
      if (m.roundsProduct) {
        // The product was rounded before C's old value came to it.
        reach += halfUlp(fabs(got[i] - held) + halfUlp(got[i], m.type), m.type);
      }
      squares += reach * reach;
    }
    for (int step = 8; step > 0; step /= 2) {
      difference += __shfl_xor_sync(0xffffffffu, difference, step);
      squares += __shfl_xor_sync(0xffffffffu, squares, step);
    }
    if (threadIdx.x % 16 == 0 && window < windows) {
      const Long at = row * windows + window;
      difference -= wanted[at];
      const double gate = m.lambda * sqrt(squares);
      differences[at] = difference;
      gates[at] = gate;
      // Written so that NaN is outside.
      if (!(fabs(difference) <= gate)) atomicMin(first, at);
    }
  }
}

// The dot product, the sum of magnitudes and C at chosen places, (row, column) each.
// Launch: one block of 128 threads a place.
extern "C" __global__ void exactDots(Recipe a, const Byte* aCodes,
                                     const float* aScales, Recipe b,
                                     const Byte* bCodes, const float* bScales,
                                     const Long* places, Result r, Word type,
                                     double* dots, double* magnitudes, double* got) {
  __shared__ double sums[4];
  __shared__ double sizes[4];
  const Long row = places[2 * blockIdx.x];
  const Long col = places[2 * blockIdx.x + 1];
  double sum = 0.0;
  double size = 0.0;
  for (Long k = threadIdx.x * kChunk; k < a.cols; k += 128 * kChunk) {
    float x[kChunk];
    float y[kChunk];
    loadChunk(a, aCodes, row, k, x);
    loadChunk(b, bCodes, col, k, y);
    double part = 0.0;
    double partSize = 0.0;
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      // Two codes of four bits: exact in FP32.
      const double product = x[i] * y[i];
      part += product;
      partSize += fabs(product);
    }
    const double scale = static_cast<double>(aScales[scaleIndex(a, row, k)]) *
                         static_cast<double>(bScales[scaleIndex(b, col, k)]);
    sum += part * scale;
    size += partSize * scale;
  }
  sum = warpSum(sum);
  size = warpSum(size);
  if (threadIdx.x % 32 == 0) {
    sums[threadIdx.x / 32] = sum;
    sizes[threadIdx.x / 32] = size;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    dots[blockIdx.x] = sums[0] + sums[1] + (sums[2] + sums[3]);
    magnitudes[blockIdx.x] = sizes[0] + sizes[1] + (sizes[2] + sizes[3]);
    got[blockIdx.x] = widen(r.c, row * r.ldc + col, type);
  }
}

// x to the nearest value of the output type, in one step; past the largest, infinity.
__device__ __forceinline__ double rounded(double x, Word type) {
  const Word field = (__double2hiint(x) >> 20) & 0x7ffu;
  if (type == 0 || field == 0x7ffu) return x;
  const double spacing = 2.0 * halfUlp(x, type);
  // Adding and taking away 1.5 * 2^52 rounds to integers, ties to even.
  const double perSpacing = __hiloint2double(0x7fe00000 - __double2hiint(spacing), 0);
  const double steps = __dadd_rn(__dadd_rn(x * perSpacing, 0x1.8p52), -0x1.8p52);
  const double value = steps * spacing;
  const double largest = type == 1 ? 65504.0 : 0x1.fep127;
  return fabs(value) > largest ? copysign(__hiloint2double(0x7ff00000, 0), x) : value;
}

// What one block has seen of a group's elements; `at` is row * n + column.
struct Seen {
  double ratio, want, got, magnitude;  // the worst element
  Long at;
  Long bad;          // elements outside their interval
  Long first;        // the first of them
  double allowed, size, squares;  // sums for calc_diff and its limit
};

__device__ __forceinline__ void merge(Seen& s, const Seen& other) {
  if (other.ratio > s.ratio || (other.ratio == s.ratio && other.at < s.at)) {
    s.ratio = other.ratio;
    s.want = other.want;
    s.got = other.got;
    s.magnitude = other.magnitude;
    s.at = other.at;
  }
  s.bad += other.bad;
  s.first = min(s.first, other.first);
  s.allowed += other.allowed;
  s.size += other.size;
  s.squares += other.squares;
}

// Elements (row0 + i, col0 + j) of C against product[i][j], i < rows, j < cols.
// seen, one a block, goes on from what it holds unless `fresh`. Launch: the same grid
// for all windows of a group, 256 threads.
extern "C" __global__ void __launch_bounds__(256)
    judgeElements(Result r, Model m, Long row0, Long col0, Long rows, Long cols,
                  const double* product, const double* normsA, const double* normsB,
                  Seen* seen, Word fresh) {
  __shared__ Seen all[256];
  Seen mine = {-1.0, 0.0, 0.0, 0.0, ~0ull, 0, ~0ull, 0.0, 0.0, 0.0};
  for (Long i = blockIdx.x; i < rows; i += gridDim.x) {
    const Long row = row0 + i;
    for (Long j = threadIdx.x; j < cols; j += 256) {
      const Long at = row * r.n + col0 + j;
      const double held = heldBefore(m.cSeed, at, m.cUnit);
      const double exact = product[i * cols + j];
      const double want = exact + held;
      const double got = widen(r.c, row * r.ldc + col0 + j, m.type);
      const double magnitude = normsA[row] * normsB[col0 + j] + fabs(held);
      const double error = m.factor * magnitude + m.constant;
      double low = rounded(want - error, m.type);
      double high = rounded(want + error, m.type);
      if (m.roundsProduct) {
        low = fmin(low, rounded(rounded(exact - error, m.type) + held - error, m.type));
        high = fmax(high, rounded(rounded(exact + error, m.type) + held + error, m.type));
      }
      const double reach = fmax(high - want, want - low);
      const double off = fabs(got - want);
      Seen one;
      one.ratio = off == 0.0 ? 0.0 : off / reach;
      if (!(one.ratio >= 0.0)) one.ratio = __hiloint2double(0x7ff00000, 0);
      one.want = want;
      one.got = got;
      one.magnitude = magnitude;
      one.at = at;
      // Written so that NaN is outside.
      const bool inside = low <= got && got <= high;
      one.bad = inside ? 0 : 1;
      one.first = inside ? ~0ull : at;
      one.allowed = reach * reach;
      one.size = want * want + got * got;
      one.squares = (got - want) * (got - want);
      merge(mine, one);
    }
  }
  all[threadIdx.x] = mine;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (threadIdx.x < half) merge(all[threadIdx.x], all[threadIdx.x + half]);
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    if (!fresh) merge(all[0], seen[blockIdx.x]);
    seen[blockIdx.x] = all[0];
  }
}
