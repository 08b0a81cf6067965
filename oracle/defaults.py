"""What a command takes where nothing is said; imports nothing, so that `--help` can tell it at once."""

from typing import Final

KERNELS: Final = ("cute", "triton")
"""Backends whose kernels are compiled here."""

CASES: Final = 640
"""Problems a selection family: over 18 families and b of 1 to 8 that is 51,840 rows."""

SCHEDULE_EVERY: Final = 8
"""One chunk of so many runs again in another order of threads: about a tenth of the time."""

SEARCH_SECONDS: Final = 30

EXPLAINED_FAMILY: Final = "permute-mixed"
EXPLAINED_BATCH: Final = 4
EXPLAINED_TILE: Final = 8
EXPLAINED_RANGE: Final = (0, 256)

BENCH_ON_CARD: Final = ("kernels", "host", "prepare")
BENCH_ANYWHERE: Final = ("verification", "compile")
BENCH_PARTS: Final = (*BENCH_ON_CARD, *BENCH_ANYWHERE)
