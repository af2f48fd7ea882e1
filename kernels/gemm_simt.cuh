// Block-scaled FP8 x FP8 and FP8 x FP4 GEMM on ordinary FP32 units: decode in
// software, multiply and add in FP32, scale and promote once a k-group.
//
// C[i,j] = sum over k-groups of (scaleA * scaleB) * sum over the group of a * b
//
// Contract
//   a        E4M3 codes, each group rows x depth, depth contiguous
//   b        E4M3 codes, n x depth, or E2M1 codes two a byte, n x ceil(depth/2)
//   aScale   per group ceil(rows/aGroupM) x ceil(depth/aGroupK) floats
//   bScale   per group ceil(n/bGroupN) x ceil(depth/bGroupK) floats
//   c        per group rows x ldc elements of the output type, ldc >= n
//   groups   eight 64-bit words a group: offsets of a and b in bytes, of the two
//            scales and of c in elements, then rows, depth, rows allocated
//   aShiftK, bShiftK, bShiftN, aShiftM: log2 of the group sizes; k-groups of at
//            least 16 (shift 4); 31 where one scale serves everything
//   outputType 0 FP32, 1 FP16, 2 BF16; accumulate adds to what c holds
//   severity only read by planted faults
//   launch   grid (ceil(n/kCols), ceil(max rows/kRows), groups), 1-D blocks
//   limits   rows, n and depth of a group below 2^31; offsets are 64-bit
//
// A dense GEMM is one group. m-grouped, masked and k-grouped forms differ only
// in the table. kFault plants one wrong line each; kFaultNone is the kernel.

#pragma once

using Byte = unsigned char;
using Word = unsigned int;
using Long = unsigned long long;

enum Fault : int {
  kFaultNone,
  kFaultDropLastK,
  kFaultDropRaggedTail,
  kFaultRepeatTail,
  kFaultNeighbourBScale,
  kFaultFrozenAScale,
  kFaultInvertedScale,
  kFaultScaleOff,
  kFaultOneBlockScale,
  kFaultRoundedScale,
  kFaultFlushedScale,
  kFaultScaleStride,
  kFaultWildElement,
  kFaultZeroTile,
  kFaultRowsUnwritten,
  kFaultSparseZeros,
  kFaultTruncated,
  kFaultTruncatedPromoted,
  kFaultBf16Accumulate,
  kFaultStorePastN,
  kFaultOneNan,
  kFaultAlwaysAccumulate,
  kFaultNeverAccumulate,
  kFaultMissingBarrier,
  kFaultArrivalOrder,
  kFaultMaskIgnored,
  kFaultNibblesSwapped,
  kFaultCoarseFp4Scale,
  kFaultTiesUp,
  kFaultTruncatedOutput,
  kFaultSubnormalCodes,
  kFaultSwappedColumns,
};

struct Group {
  Long a, b, aScale, bScale, c, rows, depth, allocated;
};

// E4M3 to FP32: the exponent and mantissa fields land in place, and one
// multiplication moves the bias. Subnormal codes become subnormal floats first,
// so this file must never be compiled with flush-to-zero.
template <int kFault>
__device__ __forceinline__ float decodeE4m3(Word code) {
  const Word magnitude = code & 0x7fu;
  if (kFault == kFaultSubnormalCodes && magnitude < 8u) return 0.0f;
  const Word bits = magnitude == 0x7fu ? 0x7fc00000u : magnitude << 20;
  const float value = __uint_as_float(bits) * 0x1p120f;
  return __uint_as_float(__float_as_uint(value) | ((code & 0x80u) << 24));
}

__device__ __forceinline__ float decodeE2m1(Word code) {
  const float value = __uint_as_float((code & 0x7u) << 22) * 0x1p126f;
  return __uint_as_float(__float_as_uint(value) | ((code & 0x8u) << 28));
}

// Four consecutive codes of a row, one a byte; zero codes past the row's end.
template <bool kFp4, int kFault>
__device__ __forceinline__ Word fetchQuad(const Byte* row, Word k, Word depth,
                                          bool wide) {
  if (!kFp4 && wide && k + 4 <= depth) {
    return *reinterpret_cast<const Word*>(row + k);
  }
  Word codes = 0;
#pragma unroll 1
  for (Word i = 0; i < 4; ++i) {
    Word at = k + i;
    if (kFault == kFaultRepeatTail && at >= depth) at = depth - 1;
    if (at >= depth) continue;
    Word code;
    if (kFp4) {
      const Word high = (kFault == kFaultNibblesSwapped ? ~at : at) & 1u;
      code = (static_cast<Word>(row[at / 2]) >> (4u * high)) & 0xfu;
    } else {
      code = row[at];
    }
    codes |= code << (8u * i);
  }
  return codes;
}

__device__ __forceinline__ float roundToBf16(float x) {
  const Word bits = __float_as_uint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return x;
  return __uint_as_float((bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u);
}

template <int kFault>
__device__ __forceinline__ unsigned short bf16Bits(float x) {
  const Word bits = __float_as_uint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  if (kFault == kFaultTruncatedOutput) return bits >> 16;
  if (kFault == kFaultTiesUp) return (bits + 0x8000u) >> 16;
  return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

__device__ __forceinline__ unsigned short f16Bits(float x) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}

__device__ __forceinline__ float loadOutput(const void* c, Long at, Word type) {
  if (type == 0) return static_cast<const float*>(c)[at];
  const unsigned short bits = static_cast<const unsigned short*>(c)[at];
  if (type == 2) return __uint_as_float(static_cast<Word>(bits) << 16);
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

template <int kFault>
__device__ __forceinline__ void storeOutput(void* c, Long at, Word type,
                                            float value) {
  if (type == 0) {
    static_cast<float*>(c)[at] = value;
  } else {
    static_cast<unsigned short*>(c)[at] =
        type == 1 ? f16Bits(value) : bf16Bits<kFault>(value);
  }
}

__device__ __forceinline__ float roundUpToPowerOfTwo(float x) {
  const Word bits = __float_as_uint(x);
  return __uint_as_float((bits + 0x007fffffu) & 0x7f800000u);
}

// What the Hopper tensor core does to one k = 32 step: products and accumulator
// are aligned to the largest exponent and cut at 13 fractional bits.
__device__ __forceinline__ float truncatedStep(const float* a, const float* b,
                                               int strideA, int strideB,
                                               float sum) {
  Word largest = __float_as_uint(sum) & 0x7f800000u;
#pragma unroll 1
  for (int k = 0; k < 32; ++k) {
    const float product = a[k * strideA] * b[k * strideB];
    largest = max(largest, __float_as_uint(product) & 0x7f800000u);
  }
  if (largest == 0) return sum;
  // 2^(13 - e) and 2^(e - 13), e the largest exponent.
  const float up = __uint_as_float((254u + 13u - (largest >> 23)) << 23);
  const float down = __uint_as_float(largest - (13u << 23));
  float steps = truncf(sum * up);
#pragma unroll 1
  for (int k = 0; k < 32; ++k) {
    steps += truncf(a[k * strideA] * b[k * strideB] * up);
  }
  return __uint_as_float(__float_as_uint(steps * down) & ~0x3ffu);
}

// Blocks taken so far by kernels with the arrival-order fault; never reset, as a
// scheduler's counter that the next launch forgets to clear.
__device__ Word arrivals;

#define GEMM_PARAMETERS                                                       \
  const Byte *a, const Byte *b, const float *aScale, const float *bScale,     \
      void *c, const Group *groups, Word n, Word ldc, Word aShiftK,           \
      Word bShiftK, Word bShiftN, Word aShiftM, Word outputType,              \
      Word accumulate, float severity
#define GEMM_ARGUMENTS                                                        \
  a, b, aScale, bScale, c, groups, n, ldc, aShiftK, bShiftK, bShiftN, aShiftM, \
      outputType, accumulate, severity

// Groups of 2^shift that cover `extent`.
__device__ __forceinline__ Word groupsOf(Word extent, Word shift) {
  return ((extent - 1u) >> shift) + 1u;
}

template <int kRows, int kCols, int kDepth, int kThreadRows, int kThreadCols,
          int kUnroll, bool kPrefetch, bool kFp4, int kFault>
__device__ __forceinline__ void simtGemm(GEMM_PARAMETERS) {
  constexpr Word kAcross = kCols / kThreadCols;
  constexpr Word kDown = kRows / kThreadRows;
  constexpr Word kThreads = kAcross * kDown;
  constexpr Word kQuadsAlong = kDepth / 4;
  constexpr int kQuadsA = kRows * kQuadsAlong / kThreads;
  constexpr int kQuadsB = kCols * kQuadsAlong / kThreads;
  constexpr Word kChunk = 16;
  constexpr bool kTruncating =
      kFault == kFaultTruncated || kFault == kFaultTruncatedPromoted;
  static_assert(kQuadsA > 0 && kQuadsB > 0 && kDepth % kChunk == 0, "tile");
  static_assert(!kTruncating || kDepth == 32, "one hardware step a tile");

  // k-major, so that the inner loop reads rows and columns as vectors; the pad
  // keeps the transposing stores off one bank.
  __shared__ __align__(16) float tileA[2][kDepth][kRows + 4];
  __shared__ __align__(16) float tileB[2][kDepth][kCols + 4];

  const Group group = groups[blockIdx.z];
  const Word rows = static_cast<Word>(
      kFault == kFaultMaskIgnored ? group.allocated : group.rows);
  const Word row0 = blockIdx.y * kRows;
  const Word col0 = blockIdx.x * kCols;
  if (row0 >= rows) return;

  const Word layoutDepth = static_cast<Word>(group.depth);
  Word depth = layoutDepth;
  if (kFault == kFaultDropLastK && depth > 0) depth -= 1;
  if (kFault == kFaultDropRaggedTail && depth > 128) depth = depth / 128 * 128;

  // Row strides follow the operands' layout, not the depth that a fault sees.
  const Word strideB = kFp4 ? (layoutDepth + 1) / 2 : layoutDepth;
  Word aScales = groupsOf(layoutDepth, aShiftK);
  const Word bScales = groupsOf(layoutDepth, bShiftK);
  if (kFault == kFaultScaleStride) {
    // A floor where a ceiling belongs: right whenever k is a multiple.
    aScales = max(layoutDepth >> aShiftK, 1u);
  }
  const Byte* aBase = a + group.a;
  const Byte* bBase = b + group.b;
  const bool wideA =
      ((reinterpret_cast<Long>(aBase) | layoutDepth) & 3u) == 0;
  const bool wideB =
      ((reinterpret_cast<Long>(bBase) | layoutDepth) & 3u) == 0;
  const Word promoteMask = (1u << min(min(aShiftK, bShiftK), 7u)) - 1u;

  const Word tx = threadIdx.x % kAcross;
  const Word ty = threadIdx.x / kAcross;
  const Word tiles = (depth + kDepth - 1) / kDepth;

  // Rotates the order in which k is walked; whole promotion groups only.
  Word first = 0;
  if (kFault == kFaultArrivalOrder) {
    __shared__ Word ticket;
    if (threadIdx.x == 0) ticket = atomicAdd(&arrivals, 1u);
    __syncthreads();
    const Word step = max(128u / kDepth, 1u);
    const Word turns = (tiles + step - 1) / step;
    first = turns > 0 ? (ticket % turns) * step : 0;
  }
  auto depthOf = [&](Word turn) {
    const Word tile = first + turn;
    return (tile < tiles ? tile : tile - tiles) * kDepth;
  };

  float total[kThreadRows][kThreadCols] = {};
  float part[kThreadRows][kThreadCols] = {};
  auto promoteAt = [&](Word k) {
    const Word aAt = kFault == kFaultFrozenAScale ? 0u : k >> aShiftK;
    const Word bAt =
        (kFault == kFaultCoarseFp4Scale ? k & ~127u : k) >> bShiftK;
    float sb[kThreadCols];
#pragma unroll
    for (int j = 0; j < kThreadCols; ++j) {
      Word block = min(col0 + tx * kThreadCols + j, n - 1u) >> bShiftN;
      if (kFault == kFaultNeighbourBScale) {
        block = block + 1u < groupsOf(n, bShiftN) ? block + 1u : 0u;
      }
      sb[j] = bScale[group.bScale + static_cast<Long>(block) * bScales + bAt];
      if (kFault == kFaultScaleOff) sb[j] *= 1.0f + severity;
      if (kFault == kFaultOneBlockScale && block == 0 && k < 128u) {
        sb[j] *= 1.0f + severity;
      }
    }
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      const Word block = min(row0 + ty * kThreadRows + i, rows - 1u) >> aShiftM;
      float sa = aScale[group.aScale + static_cast<Long>(block) * aScales + aAt];
      if (kFault == kFaultInvertedScale) sa = 1.0f / sa;
      if (kFault == kFaultRoundedScale) sa = roundUpToPowerOfTwo(sa);
      if (kFault == kFaultFlushedScale && fabsf(sa) < 0x1p-126f) sa = 0.0f;
#pragma unroll
      for (int j = 0; j < kThreadCols; ++j) {
        total[i][j] = fmaf(part[i][j], sa * sb[j], total[i][j]);
        if (kFault == kFaultBf16Accumulate) total[i][j] = roundToBf16(total[i][j]);
        part[i][j] = 0.0f;
      }
    }
  };

  auto fetchA = [&](Word quad, Word k0) {
    const Word row = row0 + quad / kQuadsAlong;
    const Word k = k0 + quad % kQuadsAlong * 4u;
    const Byte* from = aBase + static_cast<Long>(row) * layoutDepth;
    return row < rows ? fetchQuad<false, kFault>(from, k, depth, wideA) : 0u;
  };
  auto fetchB = [&](Word quad, Word k0) {
    const Word col = col0 + quad / kQuadsAlong;
    const Word k = k0 + quad % kQuadsAlong * 4u;
    const Byte* from = bBase + static_cast<Long>(col) * strideB;
    return col < n ? fetchQuad<kFp4, kFault>(from, k, depth, wideB) : 0u;
  };
  auto placeA = [&](Word quad, Word buffer, Word codes) {
    float* to = &tileA[buffer][quad % kQuadsAlong * 4u][quad / kQuadsAlong];
#pragma unroll kUnroll
    for (int i = 0; i < 4; ++i, codes >>= 8) {
      to[i * (kRows + 4)] = decodeE4m3<kFault>(codes & 0xffu);
    }
  };
  auto placeB = [&](Word quad, Word buffer, Word codes) {
    float* to = &tileB[buffer][quad % kQuadsAlong * 4u][quad / kQuadsAlong];
#pragma unroll kUnroll
    for (int i = 0; i < 4; ++i, codes >>= 8) {
      to[i * (kCols + 4)] = kFp4 ? decodeE2m1(codes & 0xfu)
                                 : decodeE4m3<kFault>(codes & 0xffu);
    }
  };

  // Turn t multiplies tile t - 1 out of one buffer and fills the other with tile
  // t: one barrier a tile. The large kernel starts its loads before it multiplies.
  Word nextA[kPrefetch ? kQuadsA : 1];
  Word nextB[kPrefetch ? kQuadsB : 1];
#pragma unroll 1
  for (Word turn = 0; turn <= tiles; ++turn) {
    if (kPrefetch && turn < tiles) {
      const Word k0 = depthOf(turn);
#pragma unroll
      for (int q = 0; q < kQuadsA; ++q) {
        nextA[q] = fetchA(q * kThreads + threadIdx.x, k0);
      }
#pragma unroll
      for (int q = 0; q < kQuadsB; ++q) {
        nextB[q] = fetchB(q * kThreads + threadIdx.x, k0);
      }
    }
    if (turn > 0) {
      const Word k0 = depthOf(turn - 1);
      const Word buffer = (turn - 1) & 1u;
      if constexpr (kTruncating) {
#pragma unroll
        for (int i = 0; i < kThreadRows; ++i) {
#pragma unroll
          for (int j = 0; j < kThreadCols; ++j) {
            part[i][j] = truncatedStep(&tileA[buffer][0][ty * kThreadRows + i],
                                       &tileB[buffer][0][tx * kThreadCols + j],
                                       kRows + 4, kCols + 4, part[i][j]);
          }
        }
        // Without promotion one scale must serve all of k.
        const bool due = kFault == kFaultTruncatedPromoted &&
                         ((k0 + kDepth) & promoteMask) == 0;
        if (due || turn == tiles) promoteAt(k0);
      } else {
#pragma unroll 1
        for (Word chunk = 0; chunk < kDepth; chunk += kChunk) {
          const float* fromA = &tileA[buffer][chunk][ty * kThreadRows];
          const float* fromB = &tileB[buffer][chunk][tx * kThreadCols];
#pragma unroll kUnroll
          for (int k = 0; k < kChunk; ++k) {
            float va[kThreadRows];
            float vb[kThreadCols];
#pragma unroll
            for (int i = 0; i < kThreadRows; i += 4) {
              *reinterpret_cast<float4*>(va + i) =
                  *reinterpret_cast<const float4*>(fromA + k * (kRows + 4) + i);
            }
#pragma unroll
            for (int j = 0; j < kThreadCols; j += 4) {
              *reinterpret_cast<float4*>(vb + j) =
                  *reinterpret_cast<const float4*>(fromB + k * (kCols + 4) + j);
            }
#pragma unroll
            for (int i = 0; i < kThreadRows; ++i) {
#pragma unroll
              for (int j = 0; j < kThreadCols; ++j) {
                part[i][j] = fmaf(va[i], vb[j], part[i][j]);
              }
            }
          }
          const Word end = k0 + chunk + kChunk;
          if (end - kChunk < depth && ((end & promoteMask) == 0 || end >= depth)) {
            promoteAt(end - kChunk);
          }
        }
      }
    }
    if (turn < tiles) {
      const Word buffer = turn & 1u;
      if constexpr (kPrefetch) {
#pragma unroll
        for (int q = 0; q < kQuadsA; ++q) {
          placeA(q * kThreads + threadIdx.x, buffer, nextA[q]);
        }
#pragma unroll
        for (int q = 0; q < kQuadsB; ++q) {
          placeB(q * kThreads + threadIdx.x, buffer, nextB[q]);
        }
      } else {
        const Word k0 = depthOf(turn);
#pragma unroll 1
        for (Word q = threadIdx.x; q < kRows * kQuadsAlong; q += kThreads) {
          placeA(q, buffer, fetchA(q, k0));
        }
#pragma unroll 1
        for (Word q = threadIdx.x; q < kCols * kQuadsAlong; q += kThreads) {
          placeB(q, buffer, fetchB(q, k0));
        }
      }
    }
    if (kFault != kFaultMissingBarrier) __syncthreads();
  }

  if (kFault == kFaultRowsUnwritten && row0 + kRows > rows) return;

  // The totals leave through shared memory, one row of each thread at a time:
  // neighbouring threads then store neighbouring columns.
  float(*slab)[kCols] = reinterpret_cast<float(*)[kCols]>(&tileA[0][0][0]);
  static_assert(sizeof(tileA) >= sizeof(float) * kDown * kCols, "slab");
#pragma unroll 1
  for (Word i = 0; i < kThreadRows; ++i) {
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kThreadCols; ++j) {
      slab[ty][tx * kThreadCols + j] = total[0][j];
#pragma unroll
      for (int r = 0; r + 1 < kThreadRows; ++r) total[r][j] = total[r + 1][j];
    }
    __syncthreads();
#pragma unroll 1
    for (Word at = threadIdx.x; at < kDown * kCols; at += kThreads) {
      const Word row = row0 + at / kCols * kThreadRows + i;
      Word col = col0 + at % kCols;
      if (row >= rows || (kFault == kFaultStorePastN ? col > n : col >= n)) continue;
      float value = slab[at / kCols][at % kCols];
      if (kFault == kFaultSwappedColumns && col0 + kCols >= n && (col | 1u) < n) {
        col ^= 1u;
      }
      const Long to = group.c + static_cast<Long>(row) * ldc + col;
      const bool adds = kFault == kFaultAlwaysAccumulate  ? true
                        : kFault == kFaultNeverAccumulate ? false
                                                          : accumulate != 0;
      if (adds) value += loadOutput(c, to, outputType);
      if (kFault == kFaultWildElement && row == rows / 2 && col == n / 2) {
        value = 1000.0f;
      }
      if (kFault == kFaultZeroTile &&
          (blockIdx.x | blockIdx.y | blockIdx.z) == 0) {
        value = 0.0f;
      }
      if (kFault == kFaultSparseZeros) {
        const Word mixed = (row * 0x9e3779b1u) ^ (col * 0x85ebca6bu);
        if ((mixed >> 9) % 2000u == 0u) value = 0.0f;
      }
      if (kFault == kFaultOneNan && row + 1 == rows && col + 1 == n) {
        value = __uint_as_float(0x7fc00000u);
      }
      storeOutput<kFault>(c, to, outputType, value);
    }
  }
}
