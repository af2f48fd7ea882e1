// kernelgate: target sm_75, isa 8.0
//
// What stands around a timed kernel: a kernel that blocks the stream while the
// host fills it, one that empties L2, one that does nothing.

using Long = unsigned long long;

static __device__ __forceinline__ Long nanoseconds() {
    Long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

// Holds the stream until the host sets flags[0], so that the launches behind it
// are all queued before the first of them runs and no launch gap is timed. Gives
// up after `limit` nanoseconds and says so in flags[1]: a host that waits for
// the device before it releases would wait forever.
//
// Contract: flags are two words of host memory; one block of one thread.
extern "C" __global__ void holdStream(volatile unsigned int* flags, Long limit) {
    const Long start = nanoseconds();
    while (flags[0] == 0) {
        if (nanoseconds() - start > limit) {
            flags[1] = 1;
            __threadfence_system();
            return;
        }
    }
}

// Reads n quads of 16 bytes. More than L2 holds leaves nothing of the operands
// there, and only clean lines: a fill would leave dirty ones, whose way back to
// memory the timed kernel would pay.
//
// Contract: sink is one word, never written in practice: no sum of the xor is
// known to the compiler, and `in` is filled so that it is not ~0.
extern "C" __global__ void readThrough(const uint4* in, Long n, unsigned int* sink) {
    const Long stride = static_cast<Long>(gridDim.x) * blockDim.x;
    unsigned int all = 0;
    for (Long i = static_cast<Long>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
         i += stride) {
        const uint4 quad = in[i];
        all |= quad.x ^ quad.y ^ quad.z ^ quad.w;
    }
    if (all == 0xffffffffu) *sink = all;
}

extern "C" __global__ void nothing() {}
