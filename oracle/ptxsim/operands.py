"""Takes lists of operands apart, and reads the constants among them."""

import re
import struct

from oracle.ptxsim.syntax import Immediate

WIDTHS = {f"{kind}{bits}": bits // 8 for kind in "busf" for bits in (8, 16, 32, 64)} | {
    "f16x2": 4,
    "bf16": 2,
    "b128": 16,
}
"""Bytes of each PTX data type."""

_FLOAT_BITS = re.compile(r"0[fF]([0-9a-fA-F]{8})$|0[dD]([0-9a-fA-F]{16})$")
_INTEGER = re.compile(r"[-+~]?\s*(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?$")
_DECIMAL = re.compile(r"[-+]?\d*\.\d*(?:[eE][-+]?\d+)?$|[-+]?\d+[eE][-+]?\d+$")


def split_operands(text: str) -> list[str]:
    """Split at the commas that are outside brackets and braces."""
    pieces, depth, start = [], 0, 0
    for i, character in enumerate(text):
        if character in "[{(":
            depth += 1
        elif character in "]})":
            depth -= 1
        elif character == "," and depth == 0:
            pieces.append(text[start:i].strip())
            start = i + 1
    pieces.append(text[start:].strip())
    return pieces


def split_offset(text: str) -> tuple[str, int]:
    """Split ``name+8`` or ``name+-8`` into the name and the integer."""
    match = re.match(r"(.+?)\s*\+?\s*((?<=[\s+])?-?\s*(?:0[xX][0-9a-fA-F]+|\d+))$", text)
    if match and re.search(r"[+-]\s*" + re.escape(match[2].lstrip("- ")) + "$", text):
        immediate = parse_immediate(match[2].replace(" ", ""))
        if immediate is not None:
            return match[1].strip(), immediate.bits
    return text, 0


def parse_immediate(text: str) -> Immediate | None:
    """Parse an integer, ``0f``/``0d`` bits or a decimal float; ``None`` for anything else."""
    if match := _FLOAT_BITS.match(text):
        return Immediate(int(match[1], 16), "f32") if match[1] else Immediate(int(match[2], 16), "f64")
    if match := _INTEGER.match(text):
        digits = match[1]
        octal = len(digits) > 1 and digits.isdigit() and digits.startswith("0")
        value = int(digits, 8) if octal else int(digits, 0)
        return Immediate(-value if text.startswith("-") else ~value if text.startswith("~") else value)
    if _DECIMAL.match(text) and any(c.isdigit() for c in text):
        return Immediate(int(struct.unpack("<Q", struct.pack("<d", float(text)))[0]), "f64")
    return None
