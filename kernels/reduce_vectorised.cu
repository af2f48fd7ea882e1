// kernelgate: target sm_75, isa 8.0
//
// Sum at the speed of memory. The one idea: a block of `reduce.cu` asks for 1 KiB
// and then spends its time folding; here every thread keeps four 16-byte loads in
// flight and folds once, at the end.
//
// Contract
//   in        n floats, 16-byte aligned, only read
//   partials  gridDim.x floats, one written by each block
//   n         number of elements, any; the tail past a multiple of 4 is read too
//   launch    1-D grid of any size, 1-D blocks of exactly 256 threads; a few
//             blocks a multiprocessor saturate memory
//
// Order of addition: a thread adds its own elements, four sums side by side, then
// a warp folds by shuffles, then a block over its warps. The host adds the
// partials. Longer chains than a tree, so a looser error bound.

constexpr unsigned int kThreads = 256;
constexpr unsigned int kWarps = kThreads / 32;
constexpr int kInFlight = 4;
using Long = unsigned long long;

static __device__ __forceinline__ float sumOf(float4 v) {
    return (v.x + v.y) + (v.z + v.w);
}

// This thread's share of in[0, n).
static __device__ __forceinline__ float threadSum(const float* in, Long n) {
    const float4* quads = reinterpret_cast<const float4*>(in);
    const Long count = n / 4;
    const Long stride = static_cast<Long>(gridDim.x) * kThreads;
    Long i = static_cast<Long>(blockIdx.x) * kThreads + threadIdx.x;
    float sum[kInFlight] = {};
    for (; i + (kInFlight - 1) * stride < count; i += kInFlight * stride) {
        float4 quad[kInFlight];
#pragma unroll
        for (int j = 0; j < kInFlight; ++j) quad[j] = __ldcs(&quads[i + j * stride]);
#pragma unroll
        for (int j = 0; j < kInFlight; ++j) sum[j] += sumOf(quad[j]);
    }
    for (; i < count; i += stride) sum[0] += sumOf(__ldcs(&quads[i]));
    if (blockIdx.x == 0 && threadIdx.x < n % 4) sum[1] += in[4 * count + threadIdx.x];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

static __device__ __forceinline__ float warpSum(float sum) {
    for (int step = 16; step > 0; step /= 2) {
        sum += __shfl_down_sync(0xffffffffu, sum, step);
    }
    return sum;
}

static __device__ __forceinline__ void leavePartial(float sum, float* partials) {
    __shared__ float cell[kWarps];
    sum = warpSum(sum);
    if (threadIdx.x % 32 == 0) cell[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = warpSum(threadIdx.x < kWarps ? cell[threadIdx.x] : 0.0f);
        if (threadIdx.x == 0) partials[blockIdx.x] = sum;
    }
}

extern "C" __global__ void __launch_bounds__(kThreads)
    vectorisedSum(const float* in, float* partials, Long n) {
    leavePartial(threadSum(in, n), partials);
}

// A planted slowdown: the first `again` elements are read a second time and count
// for nothing. The result is the same, the work is (n + again) / n of it. The
// benchmark must call 3 % more and must not call 0.3 % more.
extern "C" __global__ void __launch_bounds__(kThreads)
    vectorisedSumSlowed(const float* in, float* partials, Long n, Long again) {
    const float sum = threadSum(in, n);
    leavePartial(sum + 0.0f * threadSum(in, again), partials);
}
