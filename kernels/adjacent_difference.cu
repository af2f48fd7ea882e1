// kernelgate: target sm_75, isa 8.0
//
// Adjacent difference: out[i] = in[i + 1] - in[i], and 0 for the last element.
// The one idea: where the guard stands, before the load or after it.
//
// Contract (both kernels)
//   in, out   n unsigned ints each, not overlapping; differences wrap
//   n         number of elements
//   launch    1-D grid that covers n, any 1-D block size

// The fix: the boundary is tested first, so in[n] is never read.
extern "C" __global__ void diffNext(const unsigned int* in, unsigned int* out,
                                    unsigned long long n) {
    const unsigned long long i =
        blockIdx.x * static_cast<unsigned long long>(blockDim.x) + threadIdx.x;
    if (i + 1 < n) {
        out[i] = in[i + 1] - in[i];
    } else if (i < n) {
        out[i] = 0u;
    }
}

// Deliberate bug: in[i + 1] is loaded whatever i is. The owner of the last
// element reads in[n], 4 bytes past the end, and then throws the value away, so
// `out` is right. With 6,151 elements and 256 threads a block that owner is
// thread (6,0,0) of block (24,0,0).
//
//   tap       n unsigned ints, each written; nothing reads them
//
// Without `tap` the compiler may move the load under the test that uses it and
// so repair in the binary what is wrong in the source. A stored value is always
// used: the load has to stay where it is written.
extern "C" __global__ void diffNextPastEnd(const unsigned int* in,
                                           unsigned int* out, unsigned int* tap,
                                           unsigned long long n) {
    const unsigned long long i =
        blockIdx.x * static_cast<unsigned long long>(blockDim.x) + threadIdx.x;
    if (i < n) {
        const unsigned int next = in[i + 1];  // BUG: in[n] when i + 1 == n
        tap[i] = next;
        out[i] = (i + 1 < n) ? next - in[i] : 0u;
    }
}
