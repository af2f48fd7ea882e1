// kernelgate: target sm_90a, isa 8.0
//
// Block-scaled FP8 GEMM for Hopper: bulk tensor copies feed wgmma, and the
// tensor core's sums are promoted into FP32 every 128 of k.
//
// C[i,j] = sum over k-blocks q of scaleA[q,i] * scaleB[j/128,q] * sum of a * b
//
// Contract
//   mapA, mapB  bulk-copy descriptors of the E4M3 codes, rows x k, k contiguous;
//               boxes of 128 rows x 128 bytes, 128-byte swizzle, zero fill.
//               A: all groups one after the other; B: n rows a group.
//   scaleA      per k-block one row of `scaleStride` floats, a multiple of 4; a
//               group's rows start at its `scaleRow`, a multiple of 4
//   scaleB      per group ceil(n/128) x ceil(k/128) floats
//   out         a group's rows start at its `out` element, `ldc` >= n apart
//   tiles       `groups` lines (the `Dense` kernels take one group of `rows` rows
//               that starts every array, and read no table); rows that a group owns beyond `rows` are computed
//               as far as a tile reaches and never stored
//   k           a multiple of 16 (a bulk copy needs rows of whole 16 bytes);
//               m, n >= 1, any; a multiple of 128 is not needed
//   launch      an even number of blocks (clusters of 2) of 384 threads, with
//               kSharedBytes of dynamic shared memory; a block takes tile after
//               tile, so one block a multiprocessor is enough
//
// A cluster computes 256 x 256 of C: its two blocks share the 256 rows of A
// (each fetches half and multicasts it) and take 128 columns each. In a block one
// warp group fetches, two multiply: 128 rows each, in two waves of 64, so that one
// wave's promotion runs under the other's multiplication.
//
// wgmma cuts sums at 13 fractional bits (measured on H200), so a sum over all of
// k loses up to 6.6 % on same-sign data. `wgmmaUnpromoted*` does just that: a
// planted fault. It applies one scale at the end and so fits one scale a tensor.
//
// Sources: PTX ISA 9.0, "Asynchronous warpgroup level matrix instructions" and
// "Tensor"; the promotion is DeepSeek-V3's (arXiv 2412.19437, section 3.3.2).

#include <cstdint>
#include <cuda_bf16.h>

#include "hopper.cuh"

namespace {

constexpr int kRows = 256, kCols = 128, kDepth = 128;
// Three are faster than four on an H200 by about 1 %.
constexpr int kStages = 3;
constexpr int kCluster = 2;
constexpr int kWaves = kRows / 128;
constexpr int kConsumers = 256;
constexpr int kThreads = kConsumers + 128;
// Row tiles that are walked together, so that neighbours share operands in L2.
constexpr int kBand = 8;

struct Tiles {
  int rows;      // rows of the group that count
  int aRow;      // first row in mapA
  int scaleRow;  // first row in scaleA
  int reserved;
  long long out;  // first element in out
};

struct Shared {
  alignas(1024) uint8_t a[kStages][kRows * kDepth];
  alignas(1024) uint8_t b[kStages][kCols * kDepth];
  alignas(128) float scaleA[kStages][kRows];
  alignas(8) uint64_t full[kStages];
  uint64_t empty[kStages];
};
// The host asks for this much: `gemm_wgmma_shared_bytes` in src/gemm/wgmma.rs.
constexpr int kSharedBytes = sizeof(Shared) + 1024;
static_assert(kSharedBytes == 152576, "keep src/gemm/wgmma.rs in step");

// ---- which tile ---------------------------------------------------------------

// A tile of C: first row in its group, and index of its 256 columns.
struct Tile {
  int row, pair;
};

// Tile `at` of a group that is `down` x `across` tiles.
__device__ __forceinline__ Tile tileAt(int at, int down, int across) {
  const int band = at / (kBand * across), first = band * kBand;
  const int inBand = min(kBand, down - first);
  const int rest = at - band * kBand * across;
  return {(first + rest % inBand) * kRows, rest / inBand};
}

struct Problem {
  const float* scaleA;
  const float* scaleB;
  const Tiles* tiles;
  int rows;  // of the only group; unused where there is a table of groups
  int groups, n, ldc, blocksK, scaleStride;
};

// Work of a cluster, in the same order in every thread.
class Grouped {
 public:
  __device__ explicit Grouped(const Problem& p)
      : tiles_(p.tiles), groups_(p.groups) {
    across_ = (p.n + kCluster * kCols - 1) / (kCluster * kCols);
  }

  // Tile `t` over all groups; false past the last.
  __device__ bool find(int t) {
    while (group < groups_) {
      here = tiles_[group];
      const int down = (here.rows + kRows - 1) / kRows;
      if (t - passed_ < down * across_) {
        tile = tileAt(t - passed_, down, across_);
        return true;
      }
      passed_ += down * across_;
      group++;
    }
    return false;
  }

  int group = 0;
  Tiles here;
  Tile tile;

 private:
  const Tiles* tiles_;
  int groups_, across_, passed_ = 0;
};

// One group. Nothing comes from memory, so the compiler can tell that a whole warp
// agrees on tile and stage and keeps both in uniform registers. That leaves it room
// to spread the promotion's operands over both register banks: without, half of
// the 128 multiply-adds a k-block read three registers of one bank, and the kernel
// is 4 % slower (nvdisasm shows both).
class Dense {
 public:
  __device__ explicit Dense(const Problem& p) : here{p.rows, 0, 0, 0, 0} {
    down_ = (p.rows + kRows - 1) / kRows;
    across_ = (p.n + kCluster * kCols - 1) / (kCluster * kCols);
  }

  __device__ bool find(int t) {
    if (t >= down_ * across_) return false;
    tile = tileAt(t, down_, across_);
    return true;
  }

  static constexpr int group = 0;
  const Tiles here;
  Tile tile;

 private:
  int down_, across_;
};

// Ring of shared-memory stages: position and phase of its barriers.
struct Ring {
  int stage = 0;
  uint32_t phase = 0;
  __device__ __forceinline__ void next() {
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

// ---- the two roles ------------------------------------------------------------

// One thread fetches for its block, and half of A for its neighbour.
template <typename Schedule>
__device__ __forceinline__ void produce(Shared& s, const TensorMap* mapA,
                                        const TensorMap* mapB,
                                        const Problem& p, int rank) {
  const int clusters = gridDim.x / kCluster;
  Ring ring;
  Schedule schedule(p);
  for (int t = blockIdx.x / kCluster; schedule.find(t); t += clusters) {
    const Tiles& group = schedule.here;
    const int col = (schedule.tile.pair * kCluster + rank) * kCols;
    const int half = rank * (kRows / 2);
    const int padded = (group.rows + 3) / 4 * 4;
    const uint32_t line = min(kRows, padded - schedule.tile.row) * 4;
    // Unrolled, the loop outgrows this warp's 40 registers.
#pragma unroll 1
    for (int kb = 0; kb < p.blocksK; kb++) {
      uint64_t* full = &s.full[ring.stage];
      barrierWait(&s.empty[ring.stage], ring.phase ^ 1);
      barrierExpect(full, (kRows + kCols) * kDepth + line);
      fetchTileForBoth(&s.a[ring.stage][half * kDepth], mapA, full, kb * kDepth,
                       group.aRow + schedule.tile.row + half);
      fetchTile(s.b[ring.stage], mapB, full, kb * kDepth,
                schedule.group * p.n + col);
      fetchLine(s.scaleA[ring.stage],
                p.scaleA + static_cast<size_t>(kb) * p.scaleStride +
                    group.scaleRow + schedule.tile.row,
                line, full);
      ring.next();
    }
  }
}

// Lane q of a quad holds columns 2q, 2q+1 of four 8-column groups; afterwards it
// holds all eight columns of group q, so that a store is 16 bytes wide.
__device__ __forceinline__ void transposeQuad(uint32_t (&v)[4], int q) {
  const bool odd = q & 1, high = q & 2;
  uint32_t x = odd ? v[0] : v[1], y = odd ? v[2] : v[3];
  x = __shfl_xor_sync(0xffffffffu, x, 1);
  y = __shfl_xor_sync(0xffffffffu, y, 1);
  if (odd) {
    v[0] = x;
    v[2] = y;
  } else {
    v[1] = x;
    v[3] = y;
  }
  x = high ? v[0] : v[2];
  y = high ? v[1] : v[3];
  x = __shfl_xor_sync(0xffffffffu, x, 2);
  y = __shfl_xor_sync(0xffffffffu, y, 2);
  if (high) {
    v[0] = x;
    v[1] = y;
  } else {
    v[2] = x;
    v[3] = y;
  }
}

// One row of a wave in one lane: total[4i + 2h], total[4i + 2h + 1] are columns
// 8i + 2 * quad and the next. `col` is the tile's first column; `inside` says
// whether the row counts; `wide` that n and every row allow whole vectors.
__device__ __forceinline__ void storeRow(const float (&total)[64], int h,
                                         __nv_bfloat16* row, bool inside,
                                         int col, int n, int quad, bool wide) {
#pragma unroll
  for (int g = 0; g < 4; g++) {
    uint32_t v[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const int i = 16 * g + 4 * j + 2 * h;
      const __nv_bfloat162 two = __floats2bfloat162_rn(total[i], total[i + 1]);
      v[j] = *reinterpret_cast<const uint32_t*>(&two);
    }
    transposeQuad(v, quad);  // every lane of the warp takes part
    const int at = col + g * 32 + quad * 8;
    if (inside && at < n) {
      if (wide) {
        *reinterpret_cast<uint4*>(row + at) = make_uint4(v[0], v[1], v[2], v[3]);
      } else {
#pragma unroll
        for (int j = 0; j < 8; j++) {
          const uint32_t bits = v[j / 2] >> (16 * (j % 2));
          if (at + j < n) {
            row[at + j] = __ushort_as_bfloat16(static_cast<unsigned short>(bits));
          }
        }
      }
    }
  }
}

__device__ __forceinline__ void storeRow(const float (&total)[64], int h,
                                         float* row, bool inside, int col,
                                         int n, int quad, bool wide) {
#pragma unroll
  for (int i = 0; i < 16; i++) {
    const int at = col + 8 * i + 2 * quad;
    const float x = total[4 * i + 2 * h], y = total[4 * i + 2 * h + 1];
    if (inside && at < n) {
      if (wide) {
        *reinterpret_cast<float2*>(row + at) = make_float2(x, y);
      } else {
        row[at] = x;
        if (at + 1 < n) row[at + 1] = y;
      }
    }
  }
}

// A warp group multiplies its 64 rows of each wave and stores them.
template <typename Schedule, typename Out, bool kPromote>
__device__ __forceinline__ void consume(Shared& s, Out* out, const Problem& p,
                                        int rank) {
  const int warpGroup = threadIdx.x / 128;
  const int lane = threadIdx.x % 32, warp = (threadIdx.x / 32) % 4;
  const int rowInWave = warpGroup * 64 + warp * 16 + lane / 4;
  const int clusters = gridDim.x / kCluster;
  constexpr int kVector = 16 / sizeof(Out);
  const bool stridesWide = p.ldc % kVector == 0 && p.n % kVector == 0;
  Ring ring;
  Schedule schedule(p);
  for (int t = blockIdx.x / kCluster; schedule.find(t); t += clusters) {
    const Tiles& group = schedule.here;
    const int col = (schedule.tile.pair * kCluster + rank) * kCols;
    const int blocksN = (p.n + kCols - 1) / kCols;
    // The second block of the last pair may be past n: any valid scale will do.
    const float* scaleB =
        p.scaleB + (static_cast<size_t>(schedule.group) * blocksN +
                    min(col / kCols, blocksN - 1)) *
                       p.blocksK;
    float total[kWaves][64];
#pragma unroll
    for (int w = 0; w < kWaves; w++) {
#pragma unroll
      for (int i = 0; i < 64; i++) total[w][i] = 0.0f;
    }
    for (int kb = 0; kb < p.blocksK; kb++) {
      const float bScale = __ldg(scaleB + kb);
      barrierWait(&s.full[ring.stage], ring.phase);
      float scale[kWaves][2];
#pragma unroll
      for (int w = 0; w < kWaves; w++) {
        scale[w][0] = s.scaleA[ring.stage][w * 128 + rowInWave];
        scale[w][1] = s.scaleA[ring.stage][w * 128 + rowInWave + 8];
      }
#pragma unroll
      for (int w = 0; w < kWaves; w++) {
        float fresh[64];
        float(&d)[64] = kPromote ? fresh : total[w];
        const uint64_t a =
            operand(&s.a[ring.stage][(w * 128 + warpGroup * 64) * kDepth]);
        const uint64_t b = operand(s.b[ring.stage]);
        pin(d);
        wgmmaFence();
#pragma unroll
        for (int kk = 0; kk < kDepth / 32; kk++) {
          multiply(d, a + kk * 2, b + kk * 2, kPromote ? kk : kk | kb);
        }
        wgmmaCommit();
        pin(d);
        wgmmaWait();
        // The stage may be refilled once both blocks have read A from it.
        if (w == kWaves - 1 && lane < kCluster) {
          barrierArriveAt(&s.empty[ring.stage], lane);
        }
        if (kPromote || kb == p.blocksK - 1) {
          const float s0 = scale[w][0] * bScale, s1 = scale[w][1] * bScale;
#pragma unroll
          for (int i = 0; i < 64; i++) {
            const float factor = i % 4 < 2 ? s0 : s1;
            total[w][i] = kPromote ? total[w][i] + factor * d[i] : factor * d[i];
          }
        }
      }
      ring.next();
    }
    Out* base = out + group.out;
    const bool wide =
        stridesWide && (reinterpret_cast<uintptr_t>(base) & 15) == 0;
#pragma unroll
    for (int w = 0; w < kWaves; w++) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const int row = schedule.tile.row + w * 128 + rowInWave + h * 8;
        Out* to = base + static_cast<size_t>(row) * p.ldc;
        storeRow(total[w], h, to, row < group.rows, col, p.n, lane % 4, wide);
      }
    }
  }
}

template <typename Schedule, typename Out, bool kPromote>
__device__ __forceinline__ void gemm(const TensorMap* mapA,
                                     const TensorMap* mapB, Out* out,
                                     const Problem& p) {
  extern __shared__ uint8_t raw[];
  Shared& s = *reinterpret_cast<Shared*>(
      (reinterpret_cast<uintptr_t>(raw) + 1023) & ~uintptr_t(1023));
  // %cluster_ctarank, but in a form that the compiler knows to be uniform.
  const int rank = blockIdx.x % kCluster;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; i++) {
      barrierInit(&s.full[i], 1);
      barrierInit(&s.empty[i], kCluster * kConsumers / 32);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  clusterSync();
  // The fetching warp group gives its registers to the others.
  if (threadIdx.x / 128 == kConsumers / 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == kConsumers) produce<Schedule>(s, mapA, mapB, p, rank);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    consume<Schedule, Out, kPromote>(s, out, p, rank);
  }
  // A block must not end while its neighbour may still signal its barriers.
  clusterSync();
}

// log2 of a scale's group; 31 where one scale serves everything.
__device__ __forceinline__ int groupOf(int index, int shift) {
  return shift >= 31 ? 0 : index >> shift;
}

}  // namespace

#define WGMMA_KERNEL(NAME, SCHEDULE, OUT, PROMOTE)                             \
  extern "C" __global__ void __launch_bounds__(kThreads, 1)                    \
      __cluster_dims__(kCluster, 1, 1)                                         \
          NAME(const __grid_constant__ TensorMap mapA,                         \
               const __grid_constant__ TensorMap mapB, const float* scaleA,    \
               const float* scaleB, OUT* out, const Tiles* tiles, int rows,    \
               int groups, int n, int ldc, int blocksK, int scaleStride) {     \
    gemm<SCHEDULE, OUT, PROMOTE>(&mapA, &mapB, out,                            \
                                 Problem{scaleA, scaleB, tiles, rows, groups,  \
                                         n, ldc, blocksK, scaleStride});       \
  }

WGMMA_KERNEL(wgmmaDenseBf16, Dense, __nv_bfloat16, true)
WGMMA_KERNEL(wgmmaDenseF32, Dense, float, true)
WGMMA_KERNEL(wgmmaBf16, Grouped, __nv_bfloat16, true)
WGMMA_KERNEL(wgmmaF32, Grouped, float, true)
WGMMA_KERNEL(wgmmaUnpromotedBf16, Grouped, __nv_bfloat16, false)
WGMMA_KERNEL(wgmmaUnpromotedF32, Grouped, float, false)

// A group's scales as the harness keeps them (rows of `fromCols` k-groups) to the
// layout above. One thread a row and k-block; rows past `rows` become zero.
extern "C" __global__ void spreadScalesA(const float* from, float* to, int rows,
                                         int padded, int stride, int fromCols,
                                         int rowShift, int kShift) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x, kb = blockIdx.y;
  if (row >= padded) return;
  const int source = groupOf(row, rowShift) * fromCols + groupOf(kb * kDepth, kShift);
  to[static_cast<size_t>(kb) * stride + row] = row < rows ? from[source] : 0.0f;
}

// One thread a block of 128 columns and k-block.
extern "C" __global__ void spreadScalesB(const float* from, float* to, int rows,
                                         int blocksK, int fromCols, int rowShift,
                                         int kShift) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x, kb = blockIdx.y;
  if (row >= rows) return;
  const int source =
      groupOf(row * kCols, rowShift) * fromCols + groupOf(kb * kDepth, kShift);
  to[static_cast<size_t>(row) * blocksK + kb] = from[source];
}
