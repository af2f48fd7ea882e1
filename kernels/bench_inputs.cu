// kernelgate: target sm_75, isa 8.0
//
// Inputs made on the device. The one idea: element i is a function of (seed, i)
// alone, so that the host can make any element again and check a sampled result
// of a size that it could never compute in full.
//
// Contract
//   table     `size` values (a power of two); element i is table[hash(seed + i)]
//   launch    1-D grid and blocks of any size

using Long = unsigned long long;

static __device__ __forceinline__ Long finalise(Long x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

// The same as `element` in src/perf/inputs.rs.
static __device__ __forceinline__ unsigned int slot(Long seed, Long i, unsigned int size) {
    return static_cast<unsigned int>(finalise(seed + i * 0x9e3779b97f4a7c15ull) >> 32) & (size - 1);
}

template <typename T>
static __device__ __forceinline__ void fill(T* out, Long n, const T* table, unsigned int size,
                                            Long seed) {
    const Long stride = static_cast<Long>(gridDim.x) * blockDim.x;
    for (Long i = static_cast<Long>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {
        out[i] = table[slot(seed, i, size)];
    }
}

extern "C" __global__ void fillBytes(unsigned char* out, Long n, const unsigned char* table,
                                     unsigned int size, Long seed) {
    fill(out, n, table, size, seed);
}

extern "C" __global__ void fillWords(unsigned int* out, Long n, const unsigned int* table,
                                     unsigned int size, Long seed) {
    fill(out, n, table, size, seed);
}
