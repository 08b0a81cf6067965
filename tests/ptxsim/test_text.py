"""What is read of a PTX module (scopes, labels, vectors, numbers, debug lines), and what is refused."""

import numpy as np
import pytest
from ptxsim_tests_planted import HEADER

from oracle import ptxsim


def kernel(body, params=""):
    registers = ".reg .b32 %r<9>; .reg .pred %p<4>; .reg .b64 %rd<9>;"
    return f"{HEADER}.visible .entry kernel({params})\n{{\n{registers}\n{body}\nret;\n}}"


@pytest.mark.parametrize(
    "statement",
    [
        "add.s32.frob %r1, %r2, %r3",
        "frobnicate.b32 %r1, %r2",
        "ld.global.frob.b32 %r1, [%rd1]",
        "add.rz.f32 %r1, %r2, %r3",
        "mul.rn.ftz.f32 %r1, %r2, %r3",
        "bar.red.popc.u32 %r1, 0, %p1",
        "shfl.up.b32 %r1, %r2, 1, 0",
        "ld.volatile.shared.b32 %r1, [%r2]",
        "setp.lo.s32 %p1, %r1, %r2",
        "add.s32.L1::evict_last %r1, %r2, %r3",
        "cp.async.bulk.wait_all",
        "mbarrier.arrive.noComplete.shared.b64 %rd1, [%r1], 1",
        "mapa.u32 %r1, %r2, 1",
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b64 [%r1], {%rd1, %rd1, %rd1, %rd1}, [%r2]",
        "add.s128 %r1, %r2, %r3",
    ],
)
def test_unknown_opcode_or_modifier(statement):
    with pytest.raises(ptxsim.PtxError) as caught:
        ptxsim.parse(kernel(f"\n{statement};"))
    assert caught.value.line == 8
    assert caught.value.text == statement
    assert statement.split()[0] in str(caught.value)
    assert "unknown instruction" in str(caught.value)


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("add.s32 %r1, %r2", "takes 3 operands"),
        ("add.s32 %rd1, %r2, %r3", "is .b64"),
        ("add.s64 %rd1, %r2, %rd3", "is .b32"),
        ("add.s32 %r1, %r2, %r9", "unknown register"),
        ("add.s32 7, %r2, %r3", "cannot take"),
        ("add.s32 %r1, %p1, %r3", "is .pred"),
        ("@%r1 add.s32 %r1, %r2, %r3", "no predicate"),
        ("bra NOWHERE", "unknown label"),
        ("mov.b32 %r1, nowhere", "unknown name"),
        ("mov.b32 %r1, %clock", "unknown register"),
        ("ld.global.b32 %r1, [%r2]", "is .b32"),
        ("ld.global.v2.b32 {%r1, %r2, %r3}, [%rd1]", "cannot take"),
        ("mov.b64 %rd1, {%r1, %r2, %r3}", "unknown instruction"),
        ("lop3.b32 %r1, %r2, %r3, %r4, %r5", "constant table"),
    ],
)
def test_operands_that_do_not_fit(statement, problem):
    with pytest.raises(ptxsim.PtxError, match=problem) as caught:
        ptxsim.parse(kernel(f"{statement};"))
    assert caught.value.line == 7


@pytest.mark.parametrize(
    "body", [".reg .b33 %x;", ".shared .align 4 .q8 x[4];", "add.s32 %r1, %r2, %r3", "L: L: ret;"]
)
def test_malformed_declarations_and_statements(body):
    with pytest.raises(ptxsim.PtxError):
        ptxsim.parse(kernel(body))


def test_unclosed_block():
    with pytest.raises(ptxsim.PtxError, match="not closed"):
        ptxsim.parse(f"{HEADER}.visible .entry kernel() {{ ret;")


def test_missing_entry_lists_those_there_are():
    with pytest.raises(ptxsim.PtxError, match=r"no entry 'other' among \['kernel'\]"):
        ptxsim.parse(kernel(""), "other")


def test_parameters_have_name_size_and_alignment():
    program = ptxsim.parse(
        kernel(
            "",
            ".param .u64 .ptr .global .align 1 a, .param .u32 b, .param .align 8 .b8 c[24],\n .param .f32 d",
        )
    )
    assert program.params == (
        ptxsim.Param("a", 8, 8),
        ptxsim.Param("b", 4, 4),
        ptxsim.Param("c", 24, 8),
        ptxsim.Param("d", 4, 4),
    )


def test_the_same_text_is_read_once():
    assert ptxsim.parse(kernel("")) is ptxsim.parse(kernel(""))


def test_inner_scopes_hide_registers_and_end(run):
    body = """.reg .b32 %x<2>, y; mov.b32 %x1, 1; mov.b32 y, 10;
    { .reg .b32 %x<2>; .reg .b32 y; mov.b32 %x1, 100; { .reg .b32 y; mov.b32 y, 5; } mov.b32 y, 1000; }
    { .reg .pred y; setp.eq.b32 y, %x1, 1; @!y trap; }
    add.s32 y, y, %x1; cvt.u64.u32 %out0, y;"""
    assert (run(body)[0] == 11).all()


def test_comments_directives_and_line_breaks_are_skipped(run):
    body = """// mov.b64 %out0, 1;
    /* mov.b64 %out0, 2; { */ .pragma "nounroll"; .loc 1 2 3
    .loc	1 90 25, function_name $L__info_string0, inlined_at 1 90 25 // x.py:1
$L__tmp0: mov.b64
       %out0 ,
       3 ; $L__tmp1:
    // begin inline asm
    { }"""
    assert (run(body)[0] == 3).all()


def test_a_branch_back_to_a_label_in_a_scope(run):
    body = """.reg .b32 %n; .reg .pred %p; mov.b32 %n, 0;
    { LOOP: add.s32 %n, %n, 2; setp.lt.u32 %p, %n, %thread; @%p bra.uni LOOP; }
    cvt.u64.u32 %out0, %n;"""
    assert (run(body)[0][0] == [max(2, t + t % 2) for t in range(32)]).all()


def test_labels_of_scopes_are_each_their_own(run):
    wait = "{ AGAIN: add.u32 %n, %n, 3; setp.lt.u32 %p, %n, STOP; @%p bra AGAIN; bra DONE; DONE: }"
    body = ".reg .b32 %n; .reg .pred %p; mov.u32 %n, %thread; bra DONE; AGAIN: trap; DONE:"
    body += wait.replace("STOP", "40") + wait.replace("STOP", "90") + "cvt.u64.u32 %out0, %n;"
    expected = [t + 3 * -(-(90 - t) // 3) for t in range(32)]
    assert (run(body)[0][0] == expected).all()


def test_a_label_of_a_scope_is_unknown_outside_and_is_defined_once():
    with pytest.raises(ptxsim.PtxError, match="unknown label INNER"):
        ptxsim.parse(kernel("{ INNER: } bra INNER;"))
    with pytest.raises(ptxsim.PtxError, match="a label is defined twice"):
        ptxsim.parse(kernel("{ INNER: add.s32 %r1, %r1, 1; INNER: }"))


def test_offsets_may_be_written_with_plus_minus_and_spaces(run):
    body = """.shared .align 8 .b8 room[512]; .reg .b32 %a; mov.b32 %a, room; mad.lo.u32 %a, %thread, 16, %a;
    add.s32 %a, %a, 8; st.shared.b64 [ %a + -8 ], 1; st.shared.b64 [%a+0], 2; ld.shared.b64 %out0, [%a-8];"""
    assert (run(body)[0] == 1).all()


def test_addresses_of_variables_keep_their_alignment(run):
    body = """.shared .align 4 .b8 one[3]; .shared .align 64 .b8 two[4]; .reg .b32 %a; mov.b32 %a, two;
    cvt.u64.u32 %out0, %a; mov.b32 %a, one; cvt.u64.u32 %out1, %a; mov.b32 %a, two+3;
    cvt.u64.u32 %out2, %a;"""
    two, one, three = (column[0, 0] for column in run(body, [], 3))
    assert two % 64 == 0
    assert two >= one + 3
    assert three == two + 3


@pytest.mark.parametrize("hint", ptxsim.HINTS)
def test_cache_hints_change_nothing(hint, run):
    body = f"""ld.param.u64 %where, [in0]; add.s64 %where, %where, %at; ld.global{hint}.b64 %out0, [%where];
    ld.param.u64 %where, [out0]; add.s64 %where, %where, %at; st.global{hint}.b64 [%where], %out0;"""
    values = np.arange(32, dtype=np.uint64)
    assert (run(body, [values])[0][0] == values).all()


@pytest.mark.parametrize(
    ("special", "expected"),
    [
        ("%tid.x", lambda t: t % 12),
        ("%tid.y", lambda t: t // 12 % 3),
        ("%tid.z", lambda t: t // 36),
        ("%ntid.x", lambda t: 12),
        ("%ntid.y", lambda t: 3),
        ("%ntid.z", lambda t: 2),
        ("%laneid", lambda t: t % 32),
        ("%warpid", lambda t: t // 32),
        ("%nwarpid", lambda t: 3),
        ("%lanemask_eq", lambda t: 1 << t % 32),
        ("%lanemask_lt", lambda t: (1 << t % 32) - 1),
        ("%lanemask_le", lambda t: (2 << t % 32) - 1),
        ("%lanemask_gt", lambda t: 0xFFFFFFFF & -(2 << t % 32)),
        ("%lanemask_ge", lambda t: 0xFFFFFFFF & -(1 << t % 32)),
        ("%ctaid.x", lambda t: 0),
        ("%nctaid.x", lambda t: 1),
    ],
)
def test_special_registers_of_a_three_dimensional_block(special, expected):
    text = kernel(
        f"""mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z; mad.lo.u32 %r1, %r2, 12, %r1;
    mad.lo.u32 %r1, %r3, 36, %r1; mul.wide.u32 %rd1, %r1, 4; ld.param.u64 %rd2, [out];
    add.s64 %rd1, %rd1, %rd2;
    mov.u32 %r4, {special}; st.global.b32 [%rd1], %r4;""",
        ".param .u64 out",
    )
    memory, out = ptxsim.Memory(2), np.zeros((2, 72), np.uint32)
    ptxsim.launch(ptxsim.parse(text), memory, [memory.add("out", out, writable=True).address], (12, 3, 2))
    assert (out == [expected(t) for t in range(72)]).all()
