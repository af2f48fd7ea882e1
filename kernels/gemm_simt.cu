// kernelgate: target sm_75, isa 8.0
//
// The portable GEMM under test. Contract and algorithm: gemm_simt.cuh.
//
// Two tiles: 128 x 128 for throughput, 32 x 32 for small problems and for the
// CPU driver, where an idle row costs as much as a busy one.

#include "gemm_simt.cuh"

extern "C" __global__ void __launch_bounds__(64) simtFp8Small(GEMM_PARAMETERS) {
  simtGemm<32, 32, 32, 4, 4, 4, false, false, kFaultNone>(GEMM_ARGUMENTS);
}

extern "C" __global__ void __launch_bounds__(64) simtFp4Small(GEMM_PARAMETERS) {
  simtGemm<32, 32, 32, 4, 4, 4, false, true, kFaultNone>(GEMM_ARGUMENTS);
}

extern "C" __global__ void __launch_bounds__(256) simtFp8Large(GEMM_PARAMETERS) {
  simtGemm<128, 128, 16, 8, 8, 16, true, false, kFaultNone>(GEMM_ARGUMENTS);
}

extern "C" __global__ void __launch_bounds__(256) simtFp4Large(GEMM_PARAMETERS) {
  simtGemm<128, 128, 16, 8, 8, 16, true, true, kFaultNone>(GEMM_ARGUMENTS);
}
