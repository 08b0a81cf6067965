"""Where a kernel's parameters take the arguments of a launch: found by looking at what the adapters pack.

The adapters of `oracle.backends` own the order and form of the parameters. The sweep's compiled loop needs to
know which bytes to change from launch to launch, so it has an adapter pack several made-up argument sets and
looks for each argument's value in the bytes.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from oracle.errors import CannotRunError

FIELDS: Final = (
    "logits",
    "row_stride",
    "tokens",
    "bias",
    "ids",
    "weights",
    "metadata",
    "scale",
    "offset",
    "count",
    "tile",
)
"""The arguments of a launch, as unsigned integers: addresses, elements, and the bits of the float32 scale."""

_WIDE: Final = frozenset({"logits", "row_stride", "bias", "ids", "weights", "metadata"})
_DIVISORS: Final = (1, 2, 4, 8, 16)
_PARAM_PITCH: Final = 16
_PROBES: Final = 6

Pack = Callable[[Mapping[str, int]], Sequence[bytes]]
"""Takes the value of every field and returns the bytes of each parameter."""


class LayoutError(CannotRunError):
    """The bytes of a kernel's parameters are not plain copies of the arguments."""


@dataclass(frozen=True)
class Patch:
    """``size`` bytes at ``at`` of the image hold field number ``field`` over ``divisor``, little-endian."""

    field: int
    at: int
    size: int
    divisor: int


@dataclass(frozen=True)
class Layout:
    """A kernel's parameters in one image: where each starts, where arguments go, and all the other bytes."""

    image: bytes
    param_at: tuple[int, ...]
    patches: tuple[Patch, ...]

    def fill(self, values: Mapping[str, int]) -> bytes:
        """Return the image for one set of arguments, as sweep.cu makes it."""
        image = bytearray(self.image)
        for patch in self.patches:
            value = values[FIELDS[patch.field]] // patch.divisor
            image[patch.at : patch.at + patch.size] = (value % (1 << 8 * patch.size)).to_bytes(
                patch.size, "little"
            )
        return bytes(image)


def find(pack: Pack) -> Layout:
    """Return the layout of the parameters that ``pack`` makes.

    Raises
    ------
    LayoutError
        Some byte depends on the arguments in another way than as a copy, perhaps divided by a small power of
        two.
    """
    generator = random.Random(1)
    probes = [_probe(generator) for _ in range(_PROBES)]
    images = [_image(pack(probe)) for probe in probes]
    param_at = images[0][1]
    texts = [text for text, _ in images]
    if any(at != param_at for _, at in images):
        raise LayoutError("the sizes of the parameters depend on the arguments")
    patches: list[Patch] = []
    at = 0
    while at < len(texts[0]):
        patch = _patch_at(at, texts, probes)
        if patch is not None:
            patches.append(patch)
        at += 4 if patch is None else patch.size
    layout = Layout(texts[0], param_at, tuple(patches))
    for probe in [*probes, *(_probe(generator) for _ in range(_PROBES))]:
        if layout.fill(probe) != _image(pack(probe))[0]:
            raise LayoutError("a parameter depends on the arguments in another way than as a copy")
    return layout


def _probe(generator: random.Random) -> dict[str, int]:
    """Made-up arguments: inside the contract, and no two alike in any 32 bits."""
    values: dict[str, int] = {name: generator.getrandbits(47) & ~0xFFF for name in FIELDS if name in _WIDE}
    values["row_stride"] = generator.getrandbits(40) & ~0x3
    values["scale"] = 0x3F000000 | generator.getrandbits(23)
    small = generator.sample(range(9, 120), 3)
    values |= {"tokens": generator.randint(1, 8), "offset": small[0], "count": small[1], "tile": small[2]}
    return values


def _image(params: Sequence[bytes]) -> tuple[bytes, tuple[int, ...]]:
    image, starts = bytearray(), []
    for param in params:
        image += bytes(-len(image) % _PARAM_PITCH)
        starts.append(len(image))
        image += param
    image += bytes(-len(image) % _PARAM_PITCH)
    return bytes(image), tuple(starts)


def _patch_at(at: int, texts: Sequence[bytes], probes: Sequence[Mapping[str, int]]) -> Patch | None:
    for number, name in enumerate(FIELDS):
        size = 8 if name in _WIDE else 4
        words = [int.from_bytes(text[at : at + size], "little") for text in texts]
        if len(set(words)) == 1:
            continue
        for divisor in _DIVISORS:
            if words == [probe[name] // divisor for probe in probes]:
                return Patch(number, at, size, divisor)
    return None
