// kernelgate: target sm_75, isa 8.1
//
// Planted wrong GEMMs: the small kernel of gemm_simt.cu with one wrong line each
// (see `Fault` in gemm_simt.cuh). Each is compiled as a kernel of its own, so
// that what is judged is code that ran, not an edited result.
//
// Deliberate bugs, all of them, except `truncatedPromoted`: the correct twin of
// `truncated`, a tensor core that cuts its sums and promotes them in time.

#include "gemm_simt.cuh"

#define PLANTED(name, fp4, fault)                                       \
  extern "C" __global__ void __launch_bounds__(64) name(GEMM_PARAMETERS) { \
    simtGemm<32, 32, 32, 4, 4, 1, false, fp4, fault>(GEMM_ARGUMENTS);          \
  }

PLANTED(dropLastK, false, kFaultDropLastK)
PLANTED(dropRaggedTail, false, kFaultDropRaggedTail)
PLANTED(repeatTail, false, kFaultRepeatTail)
PLANTED(neighbourBScale, false, kFaultNeighbourBScale)
PLANTED(frozenAScale, false, kFaultFrozenAScale)
PLANTED(invertedScale, false, kFaultInvertedScale)
PLANTED(scaleOff, false, kFaultScaleOff)
PLANTED(oneBlockScale, false, kFaultOneBlockScale)
PLANTED(roundedScale, false, kFaultRoundedScale)
PLANTED(flushedScale, false, kFaultFlushedScale)
PLANTED(scaleStride, false, kFaultScaleStride)
PLANTED(wildElement, false, kFaultWildElement)
PLANTED(zeroTile, false, kFaultZeroTile)
PLANTED(rowsUnwritten, false, kFaultRowsUnwritten)
PLANTED(sparseZeros, false, kFaultSparseZeros)
PLANTED(truncated, false, kFaultTruncated)
PLANTED(truncatedPromoted, false, kFaultTruncatedPromoted)
PLANTED(bf16Accumulate, false, kFaultBf16Accumulate)
PLANTED(storePastN, false, kFaultStorePastN)
PLANTED(oneNan, false, kFaultOneNan)
PLANTED(alwaysAccumulate, false, kFaultAlwaysAccumulate)
PLANTED(neverAccumulate, false, kFaultNeverAccumulate)
PLANTED(missingBarrier, false, kFaultMissingBarrier)
PLANTED(arrivalOrder, false, kFaultArrivalOrder)
PLANTED(maskIgnored, false, kFaultMaskIgnored)
PLANTED(nibblesSwapped, true, kFaultNibblesSwapped)
PLANTED(coarseFp4Scale, true, kFaultCoarseFp4Scale)
PLANTED(tiesUp, false, kFaultTiesUp)
PLANTED(truncatedOutput, false, kFaultTruncatedOutput)
PLANTED(subnormalCodes, false, kFaultSubnormalCodes)
PLANTED(swappedColumns, false, kFaultSwappedColumns)
