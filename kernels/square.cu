// kernelgate: target sm_75, isa 8.0
//
// Square each element. The one idea: a kernel can leave the right answer in
// every element that a test compares and still store where it must not.
//
// Contract (both kernels)
//   in, out   n floats each, not overlapping
//   n         number of elements, at least 1
//   launch    1-D grid that covers n, any 1-D block size

// The fix: one guard, one store.
extern "C" __global__ void squareGuarded(const float* in, float* out,
                                         unsigned long long n) {
    const unsigned long long i =
        blockIdx.x * static_cast<unsigned long long>(blockDim.x) + threadIdx.x;
    if (i < n) {
        out[i] = in[i] * in[i];
    }
}

// Deliberate bug: the thread that owns the last element also stores out[n],
// 4 bytes that nobody allocated. A host that compares n elements cannot see it.
//
// The stray store comes after every valid store of its warp. A sanitizer that
// stops the faulting warp therefore stops it with its results already written,
// and the visible output stays right under the tool as well. With `i <= n` as
// the only guard the stray lane would be part of the same store instruction,
// and the tool would take the warp's valid results away with it.
extern "C" __global__ void squarePastEnd(const float* in, float* out,
                                         unsigned long long n) {
    const unsigned long long i =
        blockIdx.x * static_cast<unsigned long long>(blockDim.x) + threadIdx.x;
    if (i < n) {
        out[i] = in[i] * in[i];
    }
    __syncwarp();  // keeps the two stores in this order
    if (i + 1 == n) {
        out[n] = 0.0f;  // BUG: one element past the end
    }
}
