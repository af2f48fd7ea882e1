// kernelgate: target sm_75, isa 8.0
//
// Makes and quantises the operands of a case on the device. The values are those
// that src/gemm/inputs.rs and src/lowp/recipe.rs make, bit for bit.
//
// Values are made from (seed, index) wherever they are needed: no kernel stores an
// unquantised matrix. Where a group fits a tile (all recipes but one scale a tensor)
// a block makes its values once, keeps them in registers, agrees on the largest and
// encodes.

#include "gemm_reference.cuh"

// 16 bits of element `index`: four elements share a hash.
__device__ __forceinline__ Word sixteenBits(Long hash, Long index) {
  return static_cast<Word>(hash >> (16 * (index & 3u))) & 0xffffu;
}

// Calls use(i, bits) for the elements index .. index + 15.
template <typename Use>
__device__ __forceinline__ void drawChunk(Long mixedSeed, Long index, Use use) {
  Long hash = 0;
  if (index % 4 == 0) {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      if (i % 4 == 0) hash = mixed(mixedSeed, index / 4 + i / 4);
      use(i, sixteenBits(hash, i));
    }
  } else {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      if (i == 0 || (index + i) % 4 == 0) hash = mixed(mixedSeed, (index + i) / 4);
      use(i, sixteenBits(hash, index + i));
    }
  }
}

// The values of columns col .. col + 15 before quantising, zero outside the matrix.
__device__ __forceinline__ void makeChunk(const Recipe& r, const float* quantiles,
                                          Long row, Long col, float (&value)[kChunk]) {
  const bool nothing = row >= r.rows || col >= r.cols ||
                       (r.halfZero && ((row + col / 16) & 1));
  if (nothing) {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) value[i] = 0.0f;
    return;
  }
  drawChunk(r.mixedSeed, row * r.cols + col, [&](int i, Word bits) {
    value[i] = col + i < r.cols ? quantiles[bits & 4095u] : 0.0f;
  });
  if (r.outlier) {
    const Long at = mixed(r.mixedSeed, ~row) % r.cols;
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      if (col + i == at) value[i] = 1000.0f * fmaxf(fabsf(value[i]), 0.5f);
    }
  }
}

__device__ __forceinline__ float largestOf(const float (&value)[kChunk]) {
  float largest = 0.0f;
#pragma unroll
  for (int i = 0; i < kChunk; ++i) largest = fmaxf(largest, fabsf(value[i]));
  return largest;
}

// The scale of a group whose largest magnitude has these bits.
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

// Stores a chunk's codes, packed into words from the lowest byte on.
__device__ __forceinline__ void storeChunk(const Recipe& r, Byte* codes, Long row,
                                           Long col, const Word (&words)[4]) {
  const Long at = row * bytesOfRow(r) + (r.fp4 ? col / 2 : col);
  const Long left = r.cols - col < kChunk ? r.cols - col : kChunk;
  const Long bytes = r.fp4 ? (left + 1) / 2 : left;
  if (bytes == 16 && isAligned(codes + at, 16)) {
    *reinterpret_cast<uint4*>(codes + at) = make_uint4(words[0], words[1], words[2], words[3]);
  } else if (bytes == 8 && isAligned(codes + at, 8)) {
    *reinterpret_cast<uint2*>(codes + at) = make_uint2(words[0], words[1]);
  } else {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      if (i < bytes) codes[at + i] = static_cast<Byte>(words[i / 4] >> (8 * (i % 4)));
    }
  }
}

__device__ __forceinline__ void encodeChunk(const Recipe& r, Byte* codes, Long row,
                                            Long col, const float (&value)[kChunk],
                                            float scale) {
  Word words[4] = {};
  if (r.fp4) {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      words[i / 8] |= encodeE2m1(__fdiv_rn(value[i], scale)) << (4 * (i % 8));
    }
  } else {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      words[i / 4] |= encodeE4m3(__fdiv_rn(value[i], scale)) << (8 * (i % 4));
    }
  }
  storeChunk(r, codes, row, col, words);
}

constexpr int kThreads = 256;
constexpr int kQuantiles = 4096;

__device__ __forceinline__ void loadTable(const float* quantiles, float* table) {
  for (int i = threadIdx.x; i < kQuantiles; i += kThreads) table[i] = quantiles[i];
  __syncthreads();
}

// A tile is 32 * kPasses rows by 128 columns; eight threads a row, a chunk each.
template <int kPasses>
__device__ __forceinline__ void quantiseTiles(const Recipe& r, const float* quantiles,
                                              Byte* codes, float* scales) {
  __shared__ float table[kQuantiles];
  __shared__ Word maxima[32 * kPasses * 8];
  loadTable(quantiles, table);
  const Long tileCols = (r.cols + 127) / 128;
  const Long tiles = (r.rows + 32 * kPasses - 1) / (32 * kPasses) * tileCols;
  const Word chunk = threadIdx.x % 8;
  // Chunks of a group along a row, and this thread's slot in a row of maxima.
  const Word chunks = 1u << (r.colShift - 4);
  const Word slot = chunk / chunks;
  for (Long tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const Long row0 = tile / tileCols * (32 * kPasses);
    const Long col = tile % tileCols * 128 + chunk * kChunk;
    for (int i = threadIdx.x; i < 32 * kPasses * 8; i += kThreads) maxima[i] = 0;
    __syncthreads();
    float value[kPasses][kChunk];
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const Word within = 32 * pass + threadIdx.x / 8;
      makeChunk(r, table, row0 + within, col, value[pass]);
      float largest = largestOf(value[pass]);
      for (Word step = 1; step < chunks; step *= 2) {
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
      }
      if (chunk % chunks == 0) {
        atomicMax(&maxima[(within >> r.rowShift) * 8 + slot], __float_as_uint(largest));
      }
    }
    __syncthreads();
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const Word within = 32 * pass + threadIdx.x / 8;
      const Long row = row0 + within;
      if (row < r.rows && col < r.cols) {
        const float scale = scaleOf(r, maxima[(within >> r.rowShift) * 8 + slot]);
        encodeChunk(r, codes, row, col, value[pass], scale);
        const bool first = chunk % chunks == 0 && (row & ((1ull << r.rowShift) - 1)) == 0;
        if (first) scales[scaleIndex(r, row, col)] = scale * r.scaleFactor;
      }
    }
    __syncthreads();
  }
}

// Groups of one row. Launch: any grid, 256 threads; tiles of 32 rows.
extern "C" __global__ void __launch_bounds__(kThreads)
    quantiseRows(Recipe r, const float* quantiles, Byte* codes, float* scales) {
  quantiseTiles<1>(r, quantiles, codes, scales);
}

// Groups of up to 128 rows. Launch: any grid, 256 threads; tiles of 128 rows.
extern "C" __global__ void __launch_bounds__(kThreads)
    quantiseBlocks(Recipe r, const float* quantiles, Byte* codes, float* scales) {
  quantiseTiles<4>(r, quantiles, codes, scales);
}

// Calls use(row, col) for each chunk of the matrix, whatever the grid.
template <typename Use>
__device__ __forceinline__ void eachChunk(const Recipe& r, Use use) {
  const Long perRow = (r.cols + kChunk - 1) / kChunk;
  const Long chunks = r.rows * perRow;
  const Long step = static_cast<Long>(blockDim.x) * gridDim.x;
  for (Long i = blockIdx.x * static_cast<Long>(blockDim.x) + threadIdx.x; i < chunks;
       i += step) {
    use(i / perRow, i % perRow * kChunk);
  }
}

// One scale a tensor, first half: the largest magnitude, as the bits of a float.
// `maximum` holds 0 before. Launch: any grid, 256 threads.
extern "C" __global__ void __launch_bounds__(kThreads)
    tensorMaximum(Recipe r, const float* quantiles, Word* maximum) {
  __shared__ float table[kQuantiles];
  loadTable(quantiles, table);
  float largest = 0.0f;
  eachChunk(r, [&](Long row, Long col) {
    float value[kChunk];
    makeChunk(r, table, row, col, value);
    largest = fmaxf(largest, largestOf(value));
  });
  for (int step = 16; step > 0; step /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
  }
  if (threadIdx.x % 32 == 0) atomicMax(maximum, __float_as_uint(largest));
}

// Second half: codes and the scale. Launch: any grid, 256 threads.
extern "C" __global__ void __launch_bounds__(kThreads)
    encodeTensor(Recipe r, const float* quantiles, const Word* maximum, Byte* codes,
                 float* scales) {
  __shared__ float table[kQuantiles];
  loadTable(quantiles, table);
  const float scale = scaleOf(r, *maximum);
  eachChunk(r, [&](Long row, Long col) {
    float value[kChunk];
    makeChunk(r, table, row, col, value);
    encodeChunk(r, codes, row, col, value, scale);
  });
  if (blockIdx.x == 0 && threadIdx.x == 0) scales[0] = scale * r.scaleFactor;
}

// Codes of -2, -1, 1, 2: `four` holds them a byte each. Launch: any grid.
extern "C" __global__ void encodeIntegers(Recipe r, Word four, Byte* codes) {
  eachChunk(r, [&](Long row, Long col) {
    Word words[4] = {};
    drawChunk(r.mixedSeed, row * r.cols + col, [&](int i, Word bits) {
      if (col + i >= r.cols) return;
      const Word code = four >> (8 * (bits & 3u)) & 0xffu;
      if (r.fp4) {
        words[i / 8] |= code << (4 * (i % 8));
      } else {
        words[i / 4] |= code << (8 * (i % 4));
      }
    });
    storeChunk(r, codes, row, col, words);
  });
}

// Scales of 1/2, 1 and 2 for the integers. One thread a scale.
extern "C" __global__ void integerScales(Long mixedSeed, Long count, float* scales) {
  const Long i = blockIdx.x * static_cast<Long>(blockDim.x) + threadIdx.x;
  if (i >= count) return;
  const Word pick = (mixed(mixedSeed, i) >> 24) % 3u;
  scales[i] = pick == 0 ? 0.5f : static_cast<float>(pick);
}

// Fills bytes with a repeated 32-bit pattern; `to` is aligned to 16. Any grid.
extern "C" __global__ void fillBytes(Byte* to, Word pattern, Long bytes) {
  const Long step = static_cast<Long>(blockDim.x) * gridDim.x;
  const Long me = blockIdx.x * static_cast<Long>(blockDim.x) + threadIdx.x;
  for (Long i = me; i < bytes / 16; i += step) {
    reinterpret_cast<uint4*>(to)[i] = make_uint4(pattern, pattern, pattern, pattern);
  }
  if (me < bytes % 16) {
    const Long at = bytes / 16 * 16 + me;
    to[at] = static_cast<Byte>(pattern >> (8 * (at % 4)));
  }
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
