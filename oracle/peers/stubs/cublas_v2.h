// cudaUtils.h includes cuBLAS for the two number formats that it brings along; nothing of cuBLAS is used.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
