"""Read a caller's numbers exactly, and word what was wrong with them."""

import numbers
import operator
import struct
from fractions import Fraction
from math import copysign, inf, isfinite, nextafter
from typing import Any, Final

_SINGLE: Final = struct.Struct("f")
_SHOWN_CHARACTERS: Final = 100


def as_integer(name: str, value: Any) -> int:
    """Return ``value`` as an int, or raise a ValueError that names it; a bool is no integer."""
    if type(value) is int:
        return value
    try:
        if not isinstance(value, bool) and not str(getattr(value, "dtype", "")).endswith("bool"):
            return operator.index(value)
    except TypeError:
        pass
    raise ValueError(f"{name} must be an integer (not bool), not {shown(value)}")


def round_scale(scale: Any) -> float:
    """Return ``scale`` rounded once to float32, to nearest even, as a Python float.

    Parameters
    ----------
    scale
        Any `numbers.Real` except bool; beyond float32's range it becomes infinity.

    Raises
    ------
    ValueError
        It is no real number.
    """
    if type(scale) is not float:
        scale = _to_double(scale)
    try:
        single: float = _SINGLE.unpack(_SINGLE.pack(scale))[0]
    except OverflowError:
        return copysign(inf, scale)
    return single


def shown(value: object) -> str:
    """Return the text of ``value`` for a message: shortened, and also where its ``repr`` fails."""
    try:
        text = repr(value)
    except Exception:  # an int of too many digits, or an object of someone else's making
        return f"<{type(value).__name__}>"
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."


def _to_double(scale: Any) -> float:
    """Return a float that rounds to float32 as ``scale`` itself does."""
    if isinstance(scale, bool) or not isinstance(scale, numbers.Real):
        raise ValueError(f"scale must be a real number (not bool), not {shown(scale)}")
    real: Any = scale
    try:
        double = float(real)
    except OverflowError:
        return inf if real > 0 else -inf
    except Exception as error:  # a Real of someone else's making may fail in any way
        raise ValueError(f"scale must convert to float, not {shown(scale)}: {error}") from error
    if not isfinite(double):
        return double
    # Rounding twice can differ from rounding once; an inexact double made odd is no tie of float32.
    if isinstance(real, numbers.Rational):
        exact = Fraction(int(real.numerator), int(real.denominator))
    elif hasattr(real, "as_integer_ratio"):
        exact = Fraction(*real.as_integer_ratio())
    else:
        return double
    lost = exact - Fraction(double)
    if lost and not struct.unpack("q", struct.pack("d", double))[0] & 1:
        double = nextafter(double, inf if lost > 0 else -inf)
    return double
