// kernelgate: target sm_89, isa 8.4
//
// Block-scaled FP8 GEMM for devices whose mma.sync has no FP8 multiplier (sm_90):
// fragments are unpacked to FP16 here, once for each use by a whole row or column of
// the warp's tile, and multiplied by mma.sync m16n8k16 into FP32. E4M3 is exact in
// FP16. The compiler's own unpacking of m16n8k32 adds each product to the accumulator
// outside the tensor core; this kernel chains the eight steps of a k-group inside it
// and is twice as fast on an H200.
//
// Contract: mma.cuh, with k-groups of 128 or one scale along all of k, and columns of
// B that share scales by 64 or more (`aShiftK`, `bShiftK` >= 7, `bShiftN` >= 6).
// Launch: grid (ceil(n/128), ceil(max rows/64), groups), 128 threads, kSharedBytes of
// dynamic shared memory.
//
// Four warps in two rows of 32 and two columns of 64. Two blocks share a
// multiprocessor, so that one multiplies while the other adds up or waits. A step is
// 128 of k: two steps are in flight; the fragments of the next 16 of k are unpacked
// while the present ones are multiplied, across steps as well.

#include "mma.cuh"

constexpr int kTileM = 64, kTileN = 128, kStep = 128, kStages = 3;
constexpr int kThreads = 128;
constexpr int kWarpM = 32, kWarpN = 64;
constexpr int kTilesM = kWarpM / 16, kTilesN = kWarpN / 8;  // m16n8 tiles of a warp
constexpr int kStageBytes = (kTileM + kTileN) * kStep;
// A thread copies one chunk of 16 bytes of every kRowsApart-th row.
constexpr int kChunks = kStep / 16, kRowsApart = kThreads / kChunks;
constexpr int kCopiesA = kTileM / kRowsApart, kCopiesB = kTileN / kRowsApart;
// Blocks walk down bands of this many tile rows: their operands stay in L2.
constexpr Word kBand = 4;

// Eight rows of one chunk fall on distinct banks, for ldmatrix as for cp.async.
__device__ __forceinline__ int swizzled(int row, int chunk) {
  return row * kStep + ((chunk ^ row) & (kChunks - 1)) * 16;
}

// Four E4M3 codes as two pairs of FP16: bytes 0 and 1, bytes 2 and 3.
__device__ __forceinline__ void widen(Word& low, Word& high, Word codes) {
  asm("{ .reg .b16 l, h;\n"
      "  mov.b32 {l, h}, %2;\n"
      "  cvt.rn.f16x2.e4m3x2 %0, l;\n"
      "  cvt.rn.f16x2.e4m3x2 %1, h; }"
      : "=r"(low), "=r"(high) : "r"(codes));
}

__device__ __forceinline__ void multiply(float (&d)[4], const Word (&a)[4],
                                         const Word (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The first product of a k-group needs no cleared accumulator.
__device__ __forceinline__ void multiplyFirst(float (&d)[4], const Word (&a)[4],
                                              const Word (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]),
        "f"(0.0f));
}

__device__ __forceinline__ Word packF16(float low, float high) {
  Word bits;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}

__device__ __forceinline__ Word packBf16(float low, float high) {
  Word bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    mmaFp8Widened(const Byte* a, const Byte* b, const float* aScale,
                  const float* bScale, void* c, const Group* groups, Word n,
                  Word ldc, Word aShiftK, Word bShiftK, Word bShiftN,
                  Word aShiftM, Word outputType, Word accumulate,
                  float severity) {
  extern __shared__ __align__(128) Byte stages[];

  const Group group = groups[blockIdx.z];
  const Word rows = static_cast<Word>(group.rows);
  const Word depth = static_cast<Word>(group.depth);
  const Word block = blockIdx.y * gridDim.x + blockIdx.x;
  const Word band = block / (kBand * gridDim.x);
  const Word high = min(gridDim.y - band * kBand, kBand);
  const Word inside = block - band * kBand * gridDim.x;
  const Word row0 = (band * kBand + inside % high) * kTileM;
  const Word col0 = inside / high * kTileN;
  if (row0 >= rows) return;

  const Word warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Word across = lane / 4, along = lane % 4;
  const Word warpRow = warp / 2 * kWarpM, warpCol = warp % 2 * kWarpN;
  const Word steps = (depth + kStep - 1) / kStep;
  const bool whole = row0 + kTileM <= rows && col0 + kTileN <= n;
  const Word wholeSteps = whole ? depth / kStep : 0;

  // ---- copies into shared memory
  const Word myRow = threadIdx.x / kChunks, myChunk = threadIdx.x % kChunks;
  const Byte* fromA =
      a + group.a + static_cast<Long>(row0 + myRow) * depth + myChunk * 16;
  const Byte* fromB =
      b + group.b + static_cast<Long>(col0 + myRow) * depth + myChunk * 16;
  const int leftA = static_cast<int>(min(rows - row0, Word{kTileM}) - myRow);
  const int leftB = static_cast<int>(min(n - col0, Word{kTileN}) - myRow);
  const Long apart = static_cast<Long>(depth) * kRowsApart;

  Word loaded = 0, freeStage = 0;
  // Always a group, even an empty one, so that the count of open groups is known.
  auto load = [&] {
    Byte* toA = stages + freeStage * kStageBytes + swizzled(myRow, myChunk);
    Byte* toB = toA + kTileM * kStep;
    const Word k = loaded * kStep;
    if (loaded < wholeSteps) {
      const Byte* at = fromA + k;
#pragma unroll
      for (int i = 0; i < kCopiesA; ++i, at += apart)
        copyWhole(toA + i * kRowsApart * kStep, at);
      at = fromB + k;
#pragma unroll
      for (int i = 0; i < kCopiesB; ++i, at += apart)
        copyWhole(toB + i * kRowsApart * kStep, at);
    } else if (loaded < steps) {
      const bool inK = k + myChunk * 16 < depth;
      // An address outside the operand is never formed, even for size 0.
#pragma unroll 1
      for (int i = 0; i < kCopiesA; ++i) {
        const bool real = inK && i * kRowsApart < leftA;
        copyAsync(toA + i * kRowsApart * kStep, real ? fromA + k + i * apart : a,
                  real);
      }
#pragma unroll 1
      for (int i = 0; i < kCopiesB; ++i) {
        const bool real = inK && i * kRowsApart < leftB;
        copyAsync(toB + i * kRowsApart * kStep, real ? fromB + k + i * apart : b,
                  real);
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    ++loaded;
    freeStage = freeStage + 1 == kStages ? 0 : freeStage + 1;
  };
  auto await = [] {
    asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory");
    __syncthreads();
  };

  // ---- fragments: raw codes of 32 of k, twice; unpacked ones of 16 of k
  Word rawA[2][kTilesM][4], rawB[2][kTilesN][2];
  Word wideA[kTilesM][4], wideB[2][kTilesN][2];
  // Lane l names row l % 8 of matrix l / 8.
  const int rowA = warpRow + lane % 16, chunkA = lane / 16;
  const int rowB = warpCol + lane / 16 * 8 + lane % 8, chunkB = lane / 8 % 2;
  auto fetch = [&](int slot, Word stage, int k) {
    const Byte* stageA = stages + stage * kStageBytes;
    const Byte* stageB = stageA + kTileM * kStep;
#pragma unroll
    for (int j = 0; j < kTilesN; j += 2)
      loadFour(rawB[slot][j][0], rawB[slot][j][1], rawB[slot][j + 1][0],
               rawB[slot][j + 1][1],
               stageB + swizzled(rowB + j * 8, k / 16 + chunkB));
#pragma unroll
    for (int i = 0; i < kTilesM; ++i)
      loadFour(rawA[slot][i][0], rawA[slot][i][1], rawA[slot][i][2],
               rawA[slot][i][3],
               stageA + swizzled(rowA + i * 16, k / 16 + chunkA));
  };
  // Half h of 32 of k is its bytes 16 h to 16 h + 15. The order of k inside it is
  // the bytes' order in a register, for A and B alike.
  auto widenA = [&](int i, int slot, int half) {
    widen(wideA[i][0], wideA[i][2], rawA[slot][i][half * 2]);
    widen(wideA[i][1], wideA[i][3], rawA[slot][i][half * 2 + 1]);
  };
  auto widenB = [&](int to, int j, int slot, int half) {
    widen(wideB[to][j][0], wideB[to][j][1], rawB[slot][j][half]);
  };

  // ---- scales: a warp's columns share theirs
  const Word aScales = ((depth - 1u) >> aShiftK) + 1u;
  const Long bScales = ((depth - 1u) >> bShiftK) + 1u;
  Word scaleRow[kTilesM * 2];
#pragma unroll
  for (int i = 0; i < kTilesM * 2; ++i)
    scaleRow[i] =
        (min(row0 + warpRow + i * 8 + across, rows - 1u) >> aShiftM) * aScales;
  const float* scaleA = aScale + group.aScale;
  const float* scaleB =
      bScale + group.bScale + (min(col0 + warpCol, n - 1u) >> bShiftN) * bScales;

  float total[kTilesM][kTilesN][4] = {};
  float part[kTilesM][kTilesN][4];

  for (int s = 0; s + 1 < kStages; ++s) load();
  await();
  fetch(0, 0, 0);
  load();
#pragma unroll
  for (int i = 0; i < kTilesM; ++i) widenA(i, 0, 0);
#pragma unroll
  for (int j = 0; j < kTilesN; ++j) widenB(0, j, 0, 0);

  Word stage = 0;
  for (Word step = 0; step < steps; ++step) {
    const Word next = stage + 1 == kStages ? 0 : stage + 1;
    const float colScale = scaleB[step * kStep >> bShiftK];
    float rowScale[kTilesM * 2];
#pragma unroll
    for (int i = 0; i < kTilesM * 2; ++i)
      rowScale[i] = scaleA[scaleRow[i] + (step * kStep >> aShiftK)];

#pragma unroll
    for (int sixteen = 0; sixteen < kStep / 16; ++sixteen) {
      const int slot = sixteen / 2 % 2, half = sixteen % 2;
      const bool last = sixteen + 1 == kStep / 16;
      if (last) {
        // The next step is there for all, and all hold the rest of this one in
        // registers: its place is free.
        await();
        fetch(slot ^ 1, next, 0);
        load();
      } else if (half == 1) {
        fetch(slot ^ 1, stage, (sixteen + 1) * 16);
      }
      const int nextSlot = half ? slot ^ 1 : slot, nextHalf = half ^ 1;
      // j outside: faster than i outside by 2 % where k is long.
#pragma unroll
      for (int j = 0; j < kTilesN; ++j) {
#pragma unroll
        for (int i = 0; i < kTilesM; ++i) {
          if (sixteen == 0)
            multiplyFirst(part[i][j], wideA[i], wideB[half][j]);
          else
            multiply(part[i][j], wideA[i], wideB[half][j]);
        }
        widenB(nextHalf, j, nextSlot, nextHalf);
      }
#pragma unroll
      for (int i = 0; i < kTilesM; ++i) widenA(i, nextSlot, nextHalf);
    }

#pragma unroll
    for (int i = 0; i < kTilesM * 2; ++i) {
      const float scale = rowScale[i] * colScale;
#pragma unroll
      for (int j = 0; j < kTilesN; ++j) {
#pragma unroll
        for (int e = i % 2 * 2; e < i % 2 * 2 + 2; ++e)
          total[i / 2][j][e] = fmaf(part[i / 2][j][e], scale, total[i / 2][j][e]);
      }
    }
    stage = next;
  }

  // ---- C: two neighbours at once where the whole tile is there and aligned
  const Long corner = group.c + static_cast<Long>(row0 + warpRow + across) * ldc +
                      col0 + warpCol + along * 2;
  const bool aligned = ((group.c | ldc) & 1) == 0;
  if (whole && aligned && outputType != 0 && accumulate == 0) {
    auto store = [&](auto pack) {
      Word* at = reinterpret_cast<Word*>(static_cast<unsigned short*>(c) + corner);
#pragma unroll
      for (int i = 0; i < kTilesM * 2; ++i, at += static_cast<Long>(ldc) * 4) {
#pragma unroll
        for (int j = 0; j < kTilesN; ++j)
          at[j * 4] =
              pack(total[i / 2][j][i % 2 * 2], total[i / 2][j][i % 2 * 2 + 1]);
      }
    };
    if (outputType == 1)
      store(packF16);
    else
      store(packBf16);
    return;
  }
#pragma unroll
  for (int i = 0; i < kTilesM; ++i) {
#pragma unroll
    for (int j = 0; j < kTilesN; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const Word row = row0 + warpRow + i * 16 + (e >> 1) * 8 + across;
        const Word col = col0 + warpCol + j * 8 + along * 2 + (e & 1);
        if (row < rows && col < n)
          storeOutput(c, group.c + static_cast<Long>(row) * ldc + col, outputType,
                      accumulate != 0, total[i][j][e]);
      }
    }
  }
}
