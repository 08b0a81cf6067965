"""FlashInfer's kernel fed logits and bias: a backend of its own, beside the one that is fed ids."""

from oracle.backends.flashinfer import FlashinferLogits

__all__ = ["FlashinferLogits"]
