// Regenerate: nvcc -fatbin --compress-mode={none,size,speed} for 75, 90 and 100; see tests/api/modules.rs.
extern "C" __global__ void scale(float *data, float by, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) data[i] *= by; }
