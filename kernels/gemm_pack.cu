// kernelgate: target sm_75, isa 8.0
//
// Brings operands into the layout that a vendor library demands. The one idea:
// a thread owns an element of the padded result and fetches it, or zero.
//
// Contract
//   packScales  to is toRows x toCols; element (r, c) is from[r][c], or from[c][r]
//               where transposed, and 0 outside the rows x cols of from
//   padBytes    the first `bytes` of from, then zeros up to `total`
//   launch      1-D, one thread an element of the result

using Byte = unsigned char;
using Word = unsigned int;
using Long = unsigned long long;

extern "C" __global__ void packScales(const float* from, float* to, Word rows,
                                      Word cols, Word toRows, Word toCols,
                                      Word transposed) {
  const Long i = blockIdx.x * static_cast<Long>(blockDim.x) + threadIdx.x;
  if (i >= static_cast<Long>(toRows) * toCols) return;
  const Word r = static_cast<Word>(i / toCols);
  const Word c = static_cast<Word>(i % toCols);
  const Word fromRow = transposed ? c : r;
  const Word fromCol = transposed ? r : c;
  to[i] = fromRow < rows && fromCol < cols
              ? from[static_cast<Long>(fromRow) * cols + fromCol]
              : 0.0f;
}

extern "C" __global__ void padBytes(const Byte* from, Byte* to, Long bytes,
                                    Long total) {
  const Long i = blockIdx.x * static_cast<Long>(blockDim.x) + threadIdx.x;
  if (i < total) to[i] = i < bytes ? from[i] : 0;
}
