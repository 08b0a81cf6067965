// FlashInfer's routingIndicesDynBlockKernel behind a plain C interface, for ctypes: one instance of the kernel, for
// 256 experts, 8 picks, float32 logits and weights, sigmoid + bias selection.
//
// Arguments cross as one struct a launch; `oracle.peers.flashinfer.CALL` is the same struct in NumPy, and the size
// that `musespark_call_size` returns is checked against it.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <string>

#define FLASHINFER_ROUTING_CUSTOM_BLOCK_GROUP
#include "flashinfer/trtllm/fused_moe/RoutingCustomPolicy.cuh"

// Upstream's dispatch instantiates a hundred kernels. The two launchers that the file below compiles call it with the
// kernel's name, so the name picks: one instance of the kernel for any number of tokens, and nothing of the other.
#undef LAUNCH_ROUTING_CUSTOM
#define LAUNCH_ROUTING_CUSTOM(data, cooperative, kernel, blocks, threads, shared, stream) \
  MUSESPARK_LAUNCH_##kernel(data, cooperative, kernel, blocks, threads, shared, stream)
#define MUSESPARK_LAUNCH_routingIndicesBlockKernel(...) static_cast<void>(0)
#define MUSESPARK_LAUNCH_routingIndicesDynBlockKernel(data, cooperative, kernel, blocks, threads, shared, stream) \
  LAUNCH_PDL_ROUTING(data, cooperative,                                                                           \
                     LAUNCH_ESC(float, float, 256, 8,                                                             \
                                TopKExpertSelect<SigmoidBiasPreprocess, ScaledSumNormalizePostprocess>),          \
                     kernel, blocks, threads, shared, stream)

#include "fused_moe/trtllm_backend/trtllm_fused_moe_routing_custom.cuh"

namespace routing = moe::dev::routing;
namespace custom = moe::dev::routing::routingCustom;

using Policy = routing::TopKExpertSelect<routing::SigmoidBiasPreprocess, routing::ScaledSumNormalizePostprocess>;
using Parameters = custom::KernelParams<float, float, 256, 8, Policy>;

// Device addresses are 64-bit integers; 0 means absent. `ids` present: they are the input, and `logits`, `bias`,
// `weights` and `replay` go unused.
struct Call {
  std::uint64_t ids;
  std::uint64_t logits;
  std::uint64_t bias;
  std::uint64_t weights;
  std::uint64_t replay;
  std::uint64_t padded_tokens;
  std::uint64_t num_ctas;
  std::uint64_t cta_batch;
  std::uint64_t cta_limit;
  std::uint64_t expanded_to_permuted;
  std::uint64_t permuted_to_token;
  std::int32_t tokens;
  std::int32_t tile;
  std::int32_t offset;
  std::int32_t count;
  float scale;
  float epsilon;
};

namespace {

template <typename T>
T* pointer(std::uint64_t address) {
  return reinterpret_cast<T*>(static_cast<std::uintptr_t>(address));
}

std::int32_t exact_log2(std::int32_t tile) {
  for (std::int32_t power = 0; power < 31; ++power) {
    if (tile == (1 << power)) return power;
  }
  return -1;
}

custom::Data describe(Call const& call) {
  custom::Data data;
  data.mUsePdl = true;
  data.mPtrTopKIds = pointer<std::int32_t>(call.ids);
  data.mPtrScores = pointer<void>(call.logits);
  data.mPtrRoutingBias = pointer<void>(call.bias);
  data.mPtrTopKWeights = pointer<void>(call.weights);
  data.mPtrRoutingReplayOut = pointer<std::int16_t>(call.replay);
  data.mPtrPermutedIdxSize = pointer<std::int32_t>(call.padded_tokens);
  data.mPtrNumNonExitingCtas = pointer<std::int32_t>(call.num_ctas);
  data.mPtrCtaIdxXyToBatchIdx = pointer<std::int32_t>(call.cta_batch);
  data.mPtrCtaIdxXyToMnLimit = pointer<std::int32_t>(call.cta_limit);
  data.mPtrExpandedIdxToPermutedIdx = pointer<std::int32_t>(call.expanded_to_permuted);
  data.mPtrPermutedIdxToTokenIdx = pointer<std::int32_t>(call.permuted_to_token);
  data.mDtypeInput = routing::tg::Dtype::Fp32;
  data.mDtypeOutput = routing::tg::Dtype::Fp32;
  data.mDtypeBias = routing::tg::Dtype::Fp32;
  data.mPreprocessType = routing::RoutingPreprocessType::SigmoidBias;
  data.mPostprocessType = routing::RoutingPostprocessType::ScaledSumNormalize;
  data.mNumTokens = call.tokens;
  data.mNumExperts = 256;
  data.mTopK = 8;
  data.mTileTokensDim = call.tile;
  data.mPaddingLog2 = exact_log2(call.tile);
  data.mLocalExpertsStartIdx = call.offset;
  data.mLocalExpertsStrideLog2 = 0;
  data.mNumLocalExperts = call.count;
  data.mRouteScale = call.scale;
  data.mSumEpsilon = call.epsilon;
  return data;
}

thread_local std::string failure;

}  // namespace

// Everything else of the library is hidden, so that the linker can drop what is not used.
#define MUSESPARK_EXPORT __attribute__((visibility("default")))

extern "C" {

MUSESPARK_EXPORT std::size_t musespark_call_size() { return sizeof(Call); }

MUSESPARK_EXPORT std::size_t musespark_parameters_size() { return sizeof(Parameters); }

// The kernel's parameter bytes for each of `count` calls, one after the other, for who launches the PTX itself.
MUSESPARK_EXPORT void musespark_pack(Call const* calls, std::int64_t count, std::uint8_t* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    Parameters const parameters = Parameters::setKernelParams(describe(calls[i]));
    std::memcpy(out + i * sizeof(Parameters), &parameters, sizeof(Parameters));
  }
}

// Launches `count` calls in order on the current device. Returns null, or what went wrong.
MUSESPARK_EXPORT char const* musespark_launch(Call const* calls, std::int64_t count, void* stream) {
  try {
    for (std::int64_t i = 0; i < count; ++i) {
      custom::launchDynBlockKernel(describe(calls[i]), 256, stream);
    }
    cudaError_t const status = cudaGetLastError();
    if (status == cudaSuccess) return nullptr;
    failure = cudaGetErrorString(status);
  } catch (std::exception const& error) {
    failure = error.what();
  }
  return failure.c_str();
}

}  // extern "C"
