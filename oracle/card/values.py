"""Operands for the kernels of `snippets`: by role, half of them aimed at borders, half random."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from oracle.card.snippets import SLOT, THREADS, Snippet

U64 = npt.NDArray[np.uint64]
WARP: Final = 32
_F32: Final = (
    0, 1, 0x7FFFFF, 0x800000, 0x3F800000, 0x3F800001, 0x3F7FFFFF, 0x3F000000, 0x40000000,
    0x42FE0000, 0x43000000, 0x4B000000, 0x4B7FFFFF, 0x4F000000, 0x4EFFFFFF, 0x4F800000, 0x5F000000,
    0x5F800000, 0x7E800000, 0x7E800001, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF,
    0x3FC00000, 0x40200000, 0x00800001, 0x42FC0000,
)  # fmt: skip
_F64: Final = (
    0, 1, 0x10000000000000, 0x3FF0000000000000, 0x3FF0000000000001, 0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000,
    0x7FF0000000000001, 0x7FF8000000000000, 0x7FFFFFFFFFFFFFFF, 0x4330000000000000,
)  # fmt: skip
_CLAMPS: Final = (0x1F, 0x00, 0x181F, 0x1800, 0x101F, 0x1C03, 0x0C1F)


def make(snippet: Snippet, launches: int, seed: int) -> npt.NDArray[np.uint8]:
    """Return the operand slots of a kernel, uint8 ``[launches, roles * THREADS * SLOT]``."""
    random: Any = np.random.Generator(np.random.Philox(key=[seed, len(snippet.roles)]))
    shape = (launches, max(len(snippet.roles), 1), THREADS, SLOT // 8)
    slots = random.integers(0, 1 << 64, shape, np.uint64)
    for number, role in enumerate(snippet.roles):
        slots[:, number, :, 0] = _words(role, random, slots[:, 0, :, 0])
    return np.asarray(slots.reshape(launches, -1).view(np.uint8))


def _words(role: str, random: Any, first: U64) -> U64:
    """Return one operand of each thread, in the low bits of 64, uint64 ``[launches, THREADS]``."""
    shape = first.shape
    head, _, kind = role.rpartition("-")
    if head == "like-0":  # an atomic's operand: often the word that is already there
        other = _integers(int(kind[1:]), random, shape)
        return np.where(random.random(shape) < 0.5, first, other)
    if head == "nonzero":
        words = _integers(int(kind[1:]), random, shape)
        low = words & np.uint64((1 << int(kind[1:])) - 1)
        return np.where(low == 0, np.uint64(3), words)
    if head == "few":
        return np.asarray(random.integers(0, 3, shape, np.uint64) * 0x100000001, np.uint64)
    if head == "warp":
        return _per_warp(role, random, shape)
    return _by_role(role, random, shape)


def _per_warp(role: str, random: Any, shape: tuple[int, ...]) -> U64:
    """One word for all lanes of a warp, which differs in one lane of every third warp."""
    words = np.repeat(random.integers(0, 1 << 64, (shape[0], shape[1] // WARP), np.uint64), WARP, axis=1)
    lane = np.arange(shape[1])
    odd = (lane // WARP % 3 == 1) & (lane % WARP == 17)
    return np.where(odd, ~words, words)


def _by_role(role: str, random: Any, shape: tuple[int, ...]) -> U64:
    lane = np.arange(shape[1], dtype=np.uint64) % WARP
    match role:
        case "pred":
            return np.asarray(random.integers(0, 2, shape, np.uint64))
        case "f32":
            return _floats(_F32, 32, random, shape)
        case "f64":
            return _floats(_F64, 64, random, shape)
        case "shift":
            near = random.integers(0, 70, shape, np.uint64)
            return np.where(random.random(shape) < 0.9, near, _integers(32, random, shape))
        case "field":
            near = random.integers(0, 70, shape, np.uint64)
            return np.where(random.random(shape) < 0.8, near, _integers(32, random, shape))
        case "lane":
            near = random.integers(0, 33, shape, np.uint64)
            return np.where(random.random(shape) < 0.9, near, _integers(32, random, shape))
        case "clamp":
            return np.asarray(random.choice(np.array(_CLAMPS, np.uint64), shape))
        case "trips":
            return np.asarray(random.integers(1, 12, shape, np.uint64))
        case "row":
            return np.asarray(random.integers(0, 64, shape, np.uint64))
        case "own-row":
            return np.broadcast_to(lane * np.uint64(5) % np.uint64(32), shape)
        case _:
            return _integers(64 if role == "bf16" else int(role[1:]), random, shape)


def _floats(special: tuple[int, ...], bits: int, random: Any, shape: tuple[int, ...]) -> U64:
    """Raw bits, borders of either sign, and ordinary magnitudes, a third each."""
    raw = random.integers(0, 1 << 64, shape, np.uint64)
    border = random.choice(np.array(special, np.uint64), shape) | (raw & np.uint64(1 << (bits - 1)))
    normal = random.standard_normal(shape) * np.exp2(random.integers(-20, 40, shape))
    ordinary = normal.astype(np.float32).view(np.uint32) if bits == 32 else normal.view(np.uint64)
    which = random.integers(0, 3, shape)
    return np.asarray(np.choose(which, [raw, border, ordinary.astype(np.uint64)]))


def _integers(bits: int, random: Any, shape: tuple[int, ...]) -> U64:
    """Raw bits, borders, small magnitudes of either sign, single bits and their neighbours."""
    raw = random.integers(0, 1 << 64, shape, np.uint64)
    one = np.uint64(1) << random.integers(0, bits, shape, np.uint64)
    small = random.integers(-9, 10, shape).astype(np.uint64)
    border = np.where(raw & np.uint64(1), one - np.uint64(1), ~one)
    which = random.integers(0, 5, shape)
    return np.asarray(np.choose(which, [raw, one, small, border, ~raw >> np.uint64(bits // 2)]))
