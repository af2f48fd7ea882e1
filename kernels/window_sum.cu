// kernelgate: target sm_75, isa 8.0
//
// Sum over a window of three: out[i] = in[i - 1] + in[i] + in[i + 1], with zeros
// outside the input. The one idea: a shared tile with one halo cell on each
// side, and the bound of the loop that fills it.
//
// Contract (both kernels)
//   in, out   n unsigned ints each, not overlapping; sums wrap
//   n         number of elements
//   launch    1-D grid that covers n, 1-D blocks of exactly 256 threads
//
// Cell c of a block's tile holds element blockStart + c - 1.

constexpr unsigned int kThreads = 256;
constexpr unsigned int kTileCells = kThreads + 2;  // 258 cells, 1,032 bytes

// The fix: `<` fills the 258 cells that exist.
extern "C" __global__ void windowSum(const unsigned int* in, unsigned int* out,
                                     unsigned long long n) {
    __shared__ unsigned int tile[kTileCells];
    const unsigned int tid = threadIdx.x;
    const unsigned long long blockStart =
        blockIdx.x * static_cast<unsigned long long>(kThreads);

    for (unsigned int c = tid; c < kTileCells; c += kThreads) {
        const unsigned long long g = blockStart + c;
        tile[c] = (g >= 1 && g <= n) ? in[g - 1] : 0u;
    }
    __syncthreads();

    const unsigned long long i = blockStart + tid;
    if (i < n) {
        out[i] = tile[tid] + tile[tid + 1] + tile[tid + 2];
    }
}

// Deliberate bug: `<=` runs one cell too far. Thread 2 of every block writes
// cell 258, byte 1,032 of a 1,032-byte tile. No thread reads that cell, and the
// hardware rounds a block's shared memory up, so the output is right.
extern "C" __global__ void windowSumPastTile(const unsigned int* in,
                                             unsigned int* out,
                                             unsigned long long n) {
    __shared__ unsigned int tile[kTileCells];
    const unsigned int tid = threadIdx.x;
    const unsigned long long blockStart =
        blockIdx.x * static_cast<unsigned long long>(kThreads);

    for (unsigned int c = tid; c <= kTileCells; c += kThreads) {  // BUG: <=
        const unsigned long long g = blockStart + c;
        tile[c] = (g >= 1 && g <= n) ? in[g - 1] : 0u;
    }
    __syncthreads();

    const unsigned long long i = blockStart + tid;
    if (i < n) {
        out[i] = tile[tid] + tile[tid + 1] + tile[tid + 2];
    }
}
