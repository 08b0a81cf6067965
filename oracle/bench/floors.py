"""Kernels that do next to nothing: what any launch, and any kernel that depends on another, costs."""

from functools import cache
from typing import Any, Final

from oracle.card import device
from spec.constants import NUM_EXPERTS, TOP_K

WARP: Final = 32
_WORD: Final = 4
_ROW: Final = NUM_EXPERTS * _WORD
_PICKS: Final = TOP_K * _WORD

_HEADER: Final = ".version 8.0\n.target sm_90\n.address_size 64\n"

EMPTY: Final = f"{_HEADER}.visible .entry empty()\n{{\n ret;\n}}\n"

WAIT: Final = f"{_HEADER}.visible .entry wait()\n{{\n griddepcontrol.wait;\n ret;\n}}\n"

FLOOR: Final = f"""{_HEADER}
.visible .entry floor(.param .u64 floor_param_0, .param .u64 floor_param_1, .param .u64 floor_param_2)
{{
 .reg .pred %p<3>;
 .reg .b32 %r<16>;
 .reg .b64 %rd<10>;
 ld.param.u64 %rd1, [floor_param_0];
 ld.param.u64 %rd2, [floor_param_1];
 ld.param.u64 %rd3, [floor_param_2];
 mov.u32 %r1, %tid.x;
 and.b32 %r2, %r1, {WARP - 1};
 shr.u32 %r3, %r1, 5;
 mul.wide.u32 %rd4, %r3, {_ROW};
 mul.wide.u32 %rd5, %r2, 16;
 add.u64 %rd4, %rd4, %rd5;
 add.u64 %rd1, %rd1, %rd4;
 mul.wide.u32 %rd6, %r3, {_PICKS};
 mul.wide.u32 %rd7, %r2, {_WORD};
 add.u64 %rd6, %rd6, %rd7;
 add.u64 %rd2, %rd2, %rd6;
 add.u64 %rd3, %rd3, %rd6;
 sub.u64 %rd3, %rd3, {_PICKS};
 setp.lt.u32 %p1, %r2, {TOP_K};
 setp.lt.u32 %p2, %r2, {2 * TOP_K};
 selp.b64 %rd8, %rd2, %rd3, %p1;
 griddepcontrol.wait;
 ld.global.v4.u32 {{%r4, %r5, %r6, %r7}}, [%rd1];
 ld.global.v4.u32 {{%r8, %r9, %r10, %r11}}, [%rd1+{_ROW // 2}];
 max.s32 %r4, %r4, %r5;
 max.s32 %r6, %r6, %r7;
 max.s32 %r8, %r8, %r9;
 max.s32 %r10, %r10, %r11;
 max.s32 %r4, %r4, %r6;
 max.s32 %r8, %r8, %r10;
 max.s32 %r4, %r4, %r8;
 redux.sync.max.s32 %r4, %r4, 0xffffffff;
 @%p2 st.global.u32 [%rd8], %r4;
 ret;
}}
"""
"""A warp a row: wait, load the row, find the largest word, store it as eight ids and eight weights."""

HOLD: Final = f"""{_HEADER}
.visible .entry hold(.param .u64 hold_param_0)
{{
 .reg .pred %p1;
 .reg .b64 %rd<5>;
 ld.param.u64 %rd1, [hold_param_0];
 mov.u64 %rd2, %globaltimer;
again:
 mov.u64 %rd3, %globaltimer;
 sub.u64 %rd4, %rd3, %rd2;
 setp.lt.u64 %p1, %rd4, %rd1;
 @%p1 bra again;
 ret;
}}
"""
"""Keeps the stream busy for so many nanoseconds, while the host enqueues what is to run without a gap."""

TEXTS: Final = {"empty": EMPTY, "wait": WAIT, "floor": FLOOR, "hold": HOLD}


@cache
def function(name: str) -> Any:
    """Return the driver's function of one kernel of `TEXTS`, loaded into the current context once."""
    return device.load(TEXTS[name].encode(), name)


def enqueue(name: str, addresses: tuple[int, ...], threads: int, stream: int) -> None:
    """Launch one of the kernels as a programmatic dependent, with 64-bit parameters."""
    params = [address.to_bytes(8, "little") for address in addresses]
    device.launch(function(name), params, threads, stream=stream, dependent=name != "hold")
