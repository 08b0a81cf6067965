"""Published kernels that the oracle compares with: where their files are, and how they are made ready.

Nothing of them is part of this project. `manifest` says what a folder of prepared files holds, `find` looks
for one, `build` makes one, `flashinfer` and `vllm` load what was found, `variations` states what may differ.
"""
