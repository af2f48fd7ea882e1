// kernelgate: target sm_89, isa 8.4
//
// Block-scaled FP8 GEMM on tensor cores through mma.sync m16n8k32, double
// buffered with cp.async, scaled and promoted into FP32 once a k-group.
//
// Contract: mma.cuh, with k-groups of at least 32. Launch: grid (ceil(n/tile),
// ceil(max rows/tile), groups); `mmaFp8` has a tile of 64 and 128 threads,
// `mmaFp8Large` one of 128 and 256 threads.
//
// On sm_90 this instruction unpacks to FP16 and accumulates in FP32, so it does
// not show the truncation of wgmma; gemm_mma_widened.cu does the unpacking itself
// there and is twice as fast.

#include "mma.cuh"

constexpr int kTile = 64;
constexpr int kDepth = 64;
// 16 bytes of pad: rows stay aligned, and eight rows fall on distinct banks.
constexpr int kStride = kDepth + 16;

__device__ __forceinline__ void multiply(float (&d)[4], const Word (&a)[4],
                                         const Word (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

extern "C" __global__ void __launch_bounds__(128)
    mmaFp8(const Byte* a, const Byte* b, const float* aScale,
           const float* bScale, void* c, const Group* groups, Word n, Word ldc,
           Word aShiftK, Word bShiftK, Word bShiftN, Word aShiftM,
           Word outputType, Word accumulate, float severity) {
  __shared__ __align__(16) Byte tileA[2][kTile * kStride];
  __shared__ __align__(16) Byte tileB[2][kTile * kStride];

  const Group group = groups[blockIdx.z];
  const Word row0 = blockIdx.y * kTile;
  const Word col0 = blockIdx.x * kTile;
  if (row0 >= group.rows) return;

  const Word warp = threadIdx.x / 32;
  const Word lane = threadIdx.x % 32;
  // Fragment coordinates of m16n8k32: eight rows of four lanes each.
  const Word across = lane / 4;
  const Word along = lane % 4;
  const Word warpRow = warp / 2 * 32;
  const Word warpCol = warp % 2 * 32;
  const Word rows = static_cast<Word>(group.rows);
  const Word depth = static_cast<Word>(group.depth);
  const Long aScales = ((depth - 1u) >> aShiftK) + 1u;
  const Long bScales = ((depth - 1u) >> bShiftK) + 1u;
  const Word promoteMask = (1u << min(min(aShiftK, bShiftK), 7u)) - 1u;
  const Word tiles = (depth + kDepth - 1) / kDepth;

  auto load = [&](Word tile) {
    const Word k0 = tile * kDepth;
    for (int chunk = threadIdx.x; chunk < kTile * kDepth / 16; chunk += 128) {
      const Word row = chunk / (kDepth / 16);
      const Word k = chunk % (kDepth / 16) * 16;
      const bool inK = k0 + k < depth;
      const bool realA = inK && row0 + row < rows;
      const bool realB = inK && col0 + row < n;
      // An address outside the operand is never formed, even for size 0.
      copyAsync(&tileA[tile & 1][row * kStride + k],
                a + group.a + (realA ? (row0 + row) * group.depth + k0 + k : 0ull),
                realA);
      copyAsync(&tileB[tile & 1][row * kStride + k],
                b + group.b + (realB ? (col0 + row) * group.depth + k0 + k : 0ull),
                realB);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };

  float total[2][4][4] = {};
  float part[2][4][4] = {};
  auto promoteAt = [&](Word k) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Word row =
            min(row0 + warpRow + i * 16 + half * 8 + across, rows - 1u);
        const float sa = aScale[group.aScale + (row >> aShiftM) * aScales +
                                (k >> aShiftK)];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const Word col =
                min(col0 + warpCol + j * 8 + along * 2 + e, n - 1u);
            const float sb = bScale[group.bScale + (col >> bShiftN) * bScales +
                                    (k >> bShiftK)];
            float& p = part[i][j][half * 2 + e];
            float& t = total[i][j][half * 2 + e];
            t = fmaf(p, sa * sb, t);
            p = 0.0f;
          }
        }
      }
    }
  };

  if (tiles > 0) load(0);
  for (Word t = 0; t < tiles; ++t) {
    if (t + 1 < tiles) {
      load(t + 1);
      asm volatile("cp.async.wait_group 1;" ::: "memory");
    } else {
      asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
    __syncthreads();
    const Byte* shared_a = tileA[t & 1];
    const Byte* shared_b = tileB[t & 1];
    const Word k0 = t * kDepth;
#pragma unroll
    for (int k = 0; k < kDepth; k += 32) {
      if (k0 + k >= depth) break;
      Word fragA[2][4];
      Word fragB[4][2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          const int row = warpRow + i * 16 + (r & 1) * 8 + across;
          fragA[i][r] = *reinterpret_cast<const Word*>(
              shared_a + row * kStride + k + (r >> 1) * 16 + along * 4);
        }
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int col = warpCol + j * 8 + across;
          fragB[j][r] = *reinterpret_cast<const Word*>(
              shared_b + col * kStride + k + r * 16 + along * 4);
        }
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) multiply(part[i][j], fragA[i], fragB[j]);
      }
      const Word end = k0 + k + 32;
      if ((end & promoteMask) == 0 || end >= depth) promoteAt(k0 + k);
    }
    // The next load overwrites the buffer that was just read.
    __syncthreads();
  }

#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const Word row = row0 + warpRow + i * 16 + (e >> 1) * 8 + across;
        const Word col = col0 + warpCol + j * 8 + along * 2 + (e & 1);
        if (row < rows && col < n) {
          storeOutput(c, group.c + static_cast<Long>(row) * ldc + col, outputType,
                      accumulate != 0, total[i][j][e]);
        }
      }
    }
  }
}

// ---- the large tile -------------------------------------------------------------
// What the small one lacks: a warp's 64 x 32 of C uses each fragment four times (there
// B's twice), which matters where the hardware unpacks FP8 once a fragment;
// ldmatrix brings four words at once; two copies are in flight; scales are asked for
// before the multiplications that they follow.

constexpr int kLargeTile = 128;
constexpr int kLargeStages = 3;
constexpr int kTilesM = 4, kTilesN = 4;  // m16n8 tiles of a warp

// A row is four chunks of 16 bytes. Eight rows of one chunk must fall on distinct
// banks, for ldmatrix as for cp.async: the chunk's place turns with the row.
__device__ __forceinline__ int swizzled(int row, int k) {
  return row * kDepth + (((k >> 4) ^ (row >> 1)) & 3) * 16;
}

extern "C" __global__ void __launch_bounds__(256, 1)
    mmaFp8Large(const Byte* a, const Byte* b, const float* aScale,
                const float* bScale, void* c, const Group* groups, Word n,
                Word ldc, Word aShiftK, Word bShiftK, Word bShiftN,
                Word aShiftM, Word outputType, Word accumulate,
                float severity) {
  __shared__ __align__(16) Byte tileA[kLargeStages][kLargeTile * kDepth];
  __shared__ __align__(16) Byte tileB[kLargeStages][kLargeTile * kDepth];

  const Group group = groups[blockIdx.z];
  const Word row0 = blockIdx.y * kLargeTile;
  const Word col0 = blockIdx.x * kLargeTile;
  if (row0 >= group.rows) return;

  const Word warp = threadIdx.x / 32;
  const Word lane = threadIdx.x % 32;
  const Word across = lane / 4;
  const Word along = lane % 4;
  const Word warpRow = warp / 4 * 64;
  const Word warpCol = warp % 4 * 32;
  const Word rows = static_cast<Word>(group.rows);
  const Word depth = static_cast<Word>(group.depth);
  const Long aScales = ((depth - 1u) >> aShiftK) + 1u;
  const Long bScales = ((depth - 1u) >> bShiftK) + 1u;
  const Word promoteMask = (1u << min(min(aShiftK, bShiftK), 7u)) - 1u;
  const Word tiles = (depth + kDepth - 1) / kDepth;

  // Always a group, even an empty one, so that the count of open groups is known.
  auto load = [&](Word tile) {
    const Word k0 = tile * kDepth, stage = tile % kLargeStages;
    if (tile < tiles) {
#pragma unroll
      for (int chunk = threadIdx.x; chunk < kLargeTile * 4; chunk += 256) {
        const Word row = chunk / 4, k = chunk % 4 * 16;
        const bool inK = k0 + k < depth;
        const bool realA = inK && row0 + row < rows;
        const bool realB = inK && col0 + row < n;
        copyAsync(&tileA[stage][swizzled(row, k)],
                  a + group.a +
                      (realA ? (row0 + row) * group.depth + k0 + k : 0ull),
                  realA);
        copyAsync(&tileB[stage][swizzled(row, k)],
                  b + group.b +
                      (realB ? (col0 + row) * group.depth + k0 + k : 0ull),
                  realB);
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };

  float total[kTilesM][kTilesN][4] = {};
  float part[kTilesM][kTilesN][4] = {};
  for (Word t = 0; t + 1 < kLargeStages; ++t) load(t);
  for (Word t = 0; t < tiles; ++t) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kLargeStages - 2) : "memory");
    // Tile t is there for all, and all are done with the stage that is refilled.
    __syncthreads();
    load(t + kLargeStages - 1);
    const Byte* sharedA = tileA[t % kLargeStages];
    const Byte* sharedB = tileB[t % kLargeStages];
#pragma unroll
    for (int k = 0; k < kDepth; k += 32) {
      const Word at = t * kDepth + k;
      if (at >= depth) break;
      const bool promote = ((at + 32) & promoteMask) == 0 || at + 32 >= depth;
      float rowScale[kTilesM][2], colScale[kTilesN][2];
      if (promote) {
#pragma unroll
        for (int i = 0; i < kTilesM * 2; ++i) {
          const Word row = min(row0 + warpRow + i * 8 + across, rows - 1u);
          rowScale[i / 2][i % 2] = aScale[group.aScale + (row >> aShiftM) * aScales +
                                          (at >> aShiftK)];
        }
#pragma unroll
        for (int j = 0; j < kTilesN * 2; ++j) {
          const Word col =
              min(col0 + warpCol + j / 2 * 8 + along * 2 + j % 2, n - 1u);
          colScale[j / 2][j % 2] = bScale[group.bScale + (col >> bShiftN) * bScales +
                                          (at >> bShiftK)];
        }
      }
      // Lane l names row l % 8 of matrix l / 8.
      Word fragB[kTilesN][2];
#pragma unroll
      for (int j = 0; j < kTilesN; j += 2) {
        const int row = warpCol + j * 8 + lane / 16 * 8 + lane % 8;
        loadFour(fragB[j][0], fragB[j][1], fragB[j + 1][0], fragB[j + 1][1],
                 sharedB + swizzled(row, k + lane / 8 % 2 * 16));
      }
#pragma unroll
      for (int i = 0; i < kTilesM; ++i) {
        Word fragA[4];
        const int row = warpRow + i * 16 + lane % 16;
        loadFour(fragA[0], fragA[1], fragA[2], fragA[3],
                 sharedA + swizzled(row, k + lane / 16 * 16));
#pragma unroll
        for (int j = 0; j < kTilesN; ++j) multiply(part[i][j], fragA, fragB[j]);
      }
      if (promote) {
#pragma unroll
        for (int i = 0; i < kTilesM; ++i) {
#pragma unroll
          for (int j = 0; j < kTilesN; ++j) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              total[i][j][e] = fmaf(part[i][j][e],
                                    rowScale[i][e >> 1] * colScale[j][e & 1],
                                    total[i][j][e]);
              part[i][j][e] = 0.0f;
            }
          }
        }
      }
    }
  }

#pragma unroll
  for (int i = 0; i < kTilesM; ++i) {
#pragma unroll
    for (int j = 0; j < kTilesN; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const Word row = row0 + warpRow + i * 16 + (e >> 1) * 8 + across;
        const Word col = col0 + warpCol + j * 8 + along * 2 + (e & 1);
        if (row < rows && col < n) {
          storeOutput(c, group.c + static_cast<Long>(row) * ldc + col, outputType,
                      accumulate != 0, total[i][j][e]);
        }
      }
    }
  }
}
