"""The mbarrier objects of a tile: phases, pending arrivals and pending bytes.

An object is known by its key: the number of its place in a CTA's shared memory, and the CTA. All operations
take one key a lane and do what the PTX ISA says for the lanes one after the other.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from oracle.ptxsim.access import Fault

Array = npt.NDArray[Any]
Keys = npt.NDArray[np.intp]
I64 = npt.NDArray[np.int64]

BYTES: Final = 8
"""Size and alignment of an mbarrier object."""

MOST: Final = (1 << 20) - 1
"""The most arrivals, and the most bytes to come or come too early, that an object can count."""

_STATE_SHIFT: Final = 20


class Mbarriers:
    """The objects of all CTAs of a tile.

    Attributes
    ----------
    phase
        int64 per key: how many phases are complete.
    pending, tx
        int64 per key: arrivals, and bytes, that the phase lacks.
    made, maker, fenced
        By key: the stamp and the lane of whoever made the object, and whether a fence came after that.
    completions
        Phases completed so far, of all objects.
    finished
        The keys of those whose clocks still have to be told.
    """

    def __init__(self, ctas: int) -> None:
        self.ctas = ctas
        self.places: list[int] = []
        self.valid = np.zeros(0, np.bool_)
        self.seen = np.zeros(0, np.bool_)
        self.expected, self.pending, self.tx, self.phase = (np.zeros(0, np.int64) for _ in range(4))
        self.made, self.fenced = np.zeros(0, np.uint32), np.zeros(0, np.bool_)
        self.maker = np.zeros(0, np.intp)
        self.completions = 0
        self.finished: list[Keys] = []

    def keys(self, cta: Keys, place: Keys, fault: Fault) -> Keys:
        """Return the keys of objects that are initialised."""
        if len(self.places) == 1:
            keys, there = cta, place == self.places[0]
        else:
            numbers = np.full(len(cta), -1, np.intp)
            for number, known in enumerate(self.places):
                numbers[place == known] = number
            keys, there = numbers * self.ctas + cta, numbers >= 0
        if there.all():
            there = self.valid.take(keys)
        if not there.all():
            raise fault("mbarrier", "no mbarrier is initialised there", int(np.flatnonzero(~there)[0]))
        return keys

    def name(self, key: int) -> int:
        """Return the place of an object in its CTA's shared memory."""
        return self.places[key // self.ctas]

    def init(self, cta: Keys, place: Keys, count: I64, fault: Fault) -> Keys:
        """``mbarrier.init``; return the keys."""
        bad = (count < 1) | (count > MOST)
        if bad.any():
            position = int(np.flatnonzero(bad)[0])
            raise fault("mbarrier", f"a count of {count[position]}, not 1..{MOST}", position)
        for new in np.unique(place):
            if new not in self.places:
                self.places.append(int(new))
                self._grow()
        keys = np.array([self.places.index(one) for one in place], np.intp) * self.ctas + cta
        again = self.valid[keys]
        if again.any() or len(np.unique(keys)) < len(keys):
            position = int(np.flatnonzero(again)[0]) if again.any() else len(keys) - 1
            raise fault("mbarrier", "an mbarrier is initialised that is one already", position)
        self.valid[keys] = True
        self.seen[keys] = True
        self.expected[keys] = self.pending[keys] = count
        self.tx[keys] = self.phase[keys] = 0
        return keys

    def _grow(self) -> None:
        for name in ("valid", "seen", "expected", "pending", "tx", "phase", "made", "maker", "fenced"):
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros(self.ctas, old.dtype)]))

    def invalidate(self, keys: Keys) -> None:
        """``mbarrier.inval``."""
        self.valid[keys] = False

    def expect(self, keys: Keys, size: I64, fault: Fault) -> None:
        """Expect-tx: more bytes are to come in this phase."""
        self.tx += np.bincount(keys, size, len(self.tx)).astype(np.int64)
        self._in_range(keys, fault)

    def complete(self, keys: Keys, size: I64, fault: Fault) -> None:
        """Complete-tx: bytes have come."""
        self.tx -= np.bincount(keys, size, len(self.tx)).astype(np.int64)
        self._in_range(keys, fault)
        self._settle(keys, fault)

    def _in_range(self, keys: Keys, fault: Fault) -> None:
        bad = np.abs(self.tx[keys]) > MOST
        if bad.any():
            position = int(np.flatnonzero(bad)[0])
            raise fault("mbarrier", f"{self.tx[keys[position]]} bytes to come, more than {MOST}", position)

    def arrive(self, keys: Keys, count: I64, fault: Fault) -> npt.NDArray[np.uint64]:
        """Arrive-on; return each lane's state of the phase."""
        states = (self.phase[keys] << _STATE_SHIFT) | self.pending[keys]
        unseen = ~self.seen[keys]
        if unseen.any():
            position = int(np.flatnonzero(unseen)[0])
            phase = self.phase[keys[position]]
            raise fault(
                "mbarrier", f"an arrival in phase {phase}, and nobody has seen the last one end", position
            )
        bad = (count < 1) | (count > MOST)
        if bad.any():
            position = int(np.flatnonzero(bad)[0])
            raise fault("mbarrier", f"a count of {count[position]}, not 1..{MOST}", position)
        total = np.bincount(keys, count, len(self.pending)).astype(np.int64)
        over = total[keys] > self.pending[keys]
        if over.any():
            position = int(np.flatnonzero(over)[0])
            key = keys[position]
            raise fault("mbarrier", f"{total[key]} arrivals where {self.pending[key]} are pending", position)
        self.pending -= total
        self._settle(keys, fault)
        return states.astype(np.uint64)

    def _settle(self, keys: Keys, fault: Fault) -> None:
        """Complete the phases that lack nothing."""
        touched = np.zeros(len(self.tx), np.bool_)
        touched[keys] = True
        quiet = touched & (self.pending == 0)
        if not quiet.any():
            return
        early = quiet & (self.tx < 0)
        if early.any():
            position = int(np.flatnonzero(early[keys])[0])
            size = -self.tx[keys[position]]
            raise fault("mbarrier", f"{size} bytes more than the phase expects", position)
        done = np.flatnonzero(quiet & (self.tx == 0))
        self.phase[done] += 1
        self.pending[done] = self.expected[done]
        self.seen[done] = False
        self.completions += len(done)
        if len(done):
            self.finished.append(done)

    def test(self, keys: Keys, operand: Array, parity: bool, fault: Fault) -> npt.NDArray[np.bool_]:
        """Return for each lane whether its phase is complete."""
        phase = self.phase[keys]
        if parity:
            done = (phase & 1) != (operand.astype(np.int64) & 1)
        else:
            asked = operand.astype(np.int64) >> _STATE_SHIFT
            wrong = (asked > phase) | (asked < phase - 1)
            if wrong.any():
                position = int(np.flatnonzero(wrong)[0])
                raise fault("mbarrier", "the state of neither the present phase nor the last", position)
            done = phase > asked
        self.seen[keys[done]] = True
        return np.asarray(done)

    def unfinished(self, ctas: npt.NDArray[np.bool_]) -> int | None:
        """Return the key of an object of some CTAs for which bytes have still to come, or came too early."""
        keys = np.flatnonzero(self.valid & (self.tx != 0))
        keys = keys[ctas[keys % self.ctas]]
        return int(keys[0]) if len(keys) else None

    def lacks(self, key: int) -> str:
        """Say in words what the present phase of an object lacks."""
        size = int(self.tx[key])
        tx = f"lacks {size} bytes" if size >= 0 else f"has had {-size} bytes too many"
        return f"phase {self.phase[key]} lacks {self.pending[key]} of {self.expected[key]} arrivals and {tx}"
