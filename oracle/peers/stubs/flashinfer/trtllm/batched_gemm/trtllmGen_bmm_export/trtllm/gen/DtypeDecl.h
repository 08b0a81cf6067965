// The element types that the routing headers name. Upstream generates this header for its batched GEMMs; the numbers
// mean nothing outside one compilation.
#pragma once
#include <cstdint>

namespace batchedGemm {
namespace trtllm {
namespace gen {

enum class Dtype : std::uint32_t { Void, Bfloat16, E4m3, Fp16, Fp32 };

}  // namespace gen
}  // namespace trtllm
}  // namespace batchedGemm
