"""What needs a card: its arithmetic, every point of the metadata's domain, the sanitizer.

`ci/gpu` runs the commands: `oracle.card.calibrate`, `oracle.card.sweep`, `oracle.card.sanitize`. The CUDA C++
beside them is compiled on the spot; the same sources compile for the host, where the tests hold them against
the specification without a card.
"""
