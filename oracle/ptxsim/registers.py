"""The registers of a tile: what the lanes that ran last have written stays with them until others ask."""

from typing import Any

import numpy.typing as npt

from oracle.ptxsim.lanes import Lanes

Array = npt.NDArray[Any]


class Registers:
    """The register file.

    A register is one array over all lanes and, newer than that, an array over one group of lanes: so code
    that the same group runs piece after piece copies nothing in between.

    Parameters
    ----------
    arrays
        What is in each register at the start, over all lanes.
    per_cta
        By number, those that never change and are the same for all lanes of a CTA: one value a CTA.
    """

    __slots__ = ("_fixed", "_newer", "_per_cta", "_whole")

    def __init__(self, arrays: list[Array], per_cta: dict[int, Array]) -> None:
        self._whole = arrays
        self._per_cta = per_cta
        self._newer: dict[int, tuple[Lanes, Array]] = {}
        self._fixed: dict[tuple[int, Lanes], Array] = {}

    def whole(self, register: int) -> Array:
        """Return a register of all lanes."""
        if register in self._newer:
            lanes, part = self._newer.pop(register)
            self._whole[register] = lanes.put(self._whole[register], part)
        return self._whole[register]

    def replace(self, register: int, values: Array) -> None:
        """Set a register of all lanes."""
        self._newer.pop(register, None)
        self._whole[register] = values

    def take(self, register: int, lanes: Lanes) -> Array:
        """Return a register of some lanes."""
        newer = self._newer.get(register)
        if newer is not None:
            owner, part = newer
            if owner is lanes:
                return part
            if (found := lanes.part_of(owner, part)) is not None:
                return found
        if register in self._per_cta:
            return self.fixed(register, lanes)
        return lanes.take(self.whole(register))

    def put(self, register: int, lanes: Lanes, part: Array) -> None:
        """Set a register of some lanes."""
        newer = self._newer.get(register)
        if newer is not None and newer[0] is not lanes:
            self.whole(register)
        self._newer[register] = lanes, part

    def steady(self, register: int, lanes: Lanes) -> Array:
        """Return, for some lanes, a register that is the same in every tile of a shape."""
        return lanes.once(register, lambda: lanes.take(self._whole[register]))

    def fixed(self, register: int, lanes: Lanes) -> Array:
        """Return, for some lanes, a register that is the same for all lanes of a CTA and never changes."""
        found = self._fixed.get((register, lanes)) if lanes.kept is not None else None
        if found is None:
            found = self._per_cta[register].repeat(lanes.per_cta())
            if lanes.kept is not None:
                self._fixed[register, lanes] = found
        return found
