// Regenerate: nvcc -ptx -arch=sm_75 launch.cu -o launch.ptx
extern "C" __global__ void addIndex(unsigned *data, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] += i;
}
extern "C" __global__ void __launch_bounds__(64) bounded() {}
