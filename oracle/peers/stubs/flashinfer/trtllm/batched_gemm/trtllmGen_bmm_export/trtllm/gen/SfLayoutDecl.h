// The scale-factor layouts that a header of the routing kernel names in a struct and never uses.
#pragma once
#include <cstdint>

namespace batchedGemm {
namespace trtllm {
namespace gen {

enum class SfLayout : std::uint32_t { Linear };

}  // namespace gen
}  // namespace trtllm
}  // namespace batchedGemm
