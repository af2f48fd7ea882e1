// kernelgate: target sm_75, isa 8.0
//
// Copy: the measured ceiling of memory. The one idea: nothing but 16-byte loads
// and stores, so what it reaches is what a kernel that reads and writes can reach.
//
// Contract
//   in, out   n quads of 16 bytes, 16-byte aligned, not overlapping
//   launch    1-D grid and blocks of any size

using Long = unsigned long long;
constexpr int kInFlight = 4;

extern "C" __global__ void copyQuads(const uint4* in, uint4* out, Long n) {
    const Long stride = static_cast<Long>(gridDim.x) * blockDim.x;
    Long i = static_cast<Long>(blockIdx.x) * blockDim.x + threadIdx.x;
    for (; i + (kInFlight - 1) * stride < n; i += kInFlight * stride) {
        uint4 quad[kInFlight];
#pragma unroll
        for (int j = 0; j < kInFlight; ++j) quad[j] = __ldcs(&in[i + j * stride]);
#pragma unroll
        for (int j = 0; j < kInFlight; ++j) __stcs(&out[i + j * stride], quad[j]);
    }
    for (; i < n; i += stride) __stcs(&out[i], __ldcs(&in[i]));
}
