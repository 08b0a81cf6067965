import numpy as np
import pytest

from oracle import ptxsim

PTX = """
.version 9.0
.target sm_90a
.address_size 64
.visible .entry divide(.param .u64 a, .param .u64 b, .param .u64 c)
{
    .reg .f32 %f<4>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [b];
    ld.param.u64 %rd3, [c];
    ld.global.f32 %f1, [%rd1];
    ld.global.f32 %f2, [%rd2];
    div.rn.f32 %f3, %f1, %f2;
    st.global.f32 [%rd3], %f3;
    ret;
}
"""

# From IEEE 754: ties to even, gradual underflow, signed zeros and infinities; every NaN is 0x7fffffff.
CASES = {
    "one third is rounded up": (0x3F800000, 0x40400000, 0x3EAAAAAB),
    "five thirds is rounded down": (0x40A00000, 0x40400000, 0x3FD55555),
    "an exact quotient is kept": (0x40C00000, 0xC0000000, 0xC0400000),
    "the smallest normal halves to a subnormal": (0x00800000, 0x40000000, 0x00400000),
    "half of the smallest subnormal is a tie and goes to zero": (0x00000001, 0x40000000, 0x00000000),
    "three halves of the smallest subnormal is a tie and goes to two": (0x00000003, 0x40000000, 0x00000002),
    "a subnormal by a subnormal is one": (0x00000005, 0x00000005, 0x3F800000),
    "what is too large is infinite": (0x7F7FFFFF, 0x3F000000, 0x7F800000),
    "minus one by zero is minus infinity": (0xBF800000, 0x00000000, 0xFF800000),
    "one by minus infinity is minus zero": (0x3F800000, 0xFF800000, 0x80000000),
    "zero by zero is no number": (0x00000000, 0x80000000, 0x7FFFFFFF),
    "infinity by infinity is no number": (0xFF800000, 0x7F800000, 0x7FFFFFFF),
    "any NaN becomes the one NaN": (0xFFA5A5A5, 0x3F800000, 0x7FFFFFFF),
}


@pytest.mark.parametrize(("a", "b", "right"), CASES.values(), ids=CASES)
def test_div_rn_divides_as_ieee_754_says(a: int, b: int, right: int):
    program = ptxsim.parse(PTX, "divide")
    memory = ptxsim.Memory(launches=1)
    result = np.zeros((1, 1), np.uint32)
    words = [np.array([[word]], np.uint32) for word in (a, b)]
    inputs = [memory.add(f"input{place}", word) for place, word in enumerate(words)]
    output = memory.add("output", result, writable=True)
    ptxsim.launch(program, memory, [buffer.address for buffer in (*inputs, output)], block=1)
    assert f"{result[0, 0]:#010x}" == f"{right:#010x}"
