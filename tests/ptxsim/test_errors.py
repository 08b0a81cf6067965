"""Every kind of fault is noticed where it happens, and the message says what, where and whose."""

import pytest
from ptxsim_tests_planted import AT, HEADER, INPUT, OUTPUT, SHARED, fault, start, words

from oracle import ptxsim


def test_read_past_the_end_of_a_buffer_names_the_first_thread_and_offset():
    error = fault(AT.format("table") + "ld.global.b32 %r1, [%rd0+16];", buffers=INPUT)
    assert (error.kind, error.launch, error.thread) == ("out of bounds", 0, 60)
    assert error.buffer == "table+0x100"
    assert error.address == (1 << 40) + 0x1010 + 256
    assert error.text == "ld.global.b32 %r1, [%rd0+16]"
    assert "4 bytes" in error.detail


def test_read_before_the_start_of_a_buffer():
    error = fault(AT.format("table") + "ld.global.b32 %r1, [%rd0+-4];", buffers=INPUT)
    assert (error.kind, error.thread, error.buffer) == ("out of bounds", 0, "table-0x4")


def test_read_at_an_address_in_no_buffer():
    error = fault("ld.global.b32 %r1, [%rd5];", buffers=INPUT)
    assert (error.kind, error.buffer, error.address) == ("out of bounds", None, 0)


def test_vector_that_ends_past_the_buffer():
    error = fault(
        AT.format("table") + "@%p1 ld.global.b32 %r1, [%rd0]; setp.eq.u32 %p1, %r0, 63;"
        "add.s64 %rd0, %rd0, 4; @%p1 ld.global.v2.b32 {%r1, %r2}, [%rd0];",
        buffers=INPUT,
    )
    assert (error.kind, error.thread) == ("out of bounds", 63)


def test_another_launch_s_memory_cannot_be_reached():
    error = fault(AT.format("table") + "ld.global.b32 %r1, [%rd0+256];", buffers=INPUT)
    assert error.kind == "out of bounds"


def test_only_the_launch_that_goes_wrong_is_named():
    table = words()
    table[2, 5] = 999
    body = (
        AT.format("table")
        + "ld.global.b32 %r1, [%rd0]; setp.eq.u32 %p1, %r1, 999; @!%p1 ret; mov.b64 %rd3, 7;"
    )
    error = fault(body + "ld.global.b8 %r2, [%rd3];", buffers=[("table", table, {})])
    assert (error.launch, error.thread) == (2, 5)


@pytest.mark.parametrize("width", [2, 4, 8])
def test_misaligned_global_access(width):
    error = fault(
        f"ld.param.u64 %rd0, [table]; ld.global.b{8 * width} %r{'d' if width == 8 else ''}2, [%rd0+1];"
        if width != 2
        else ".reg .b16 %s; ld.param.u64 %rd0, [table]; ld.global.b16 %s, [%rd0+1];",
        buffers=INPUT,
    )
    assert (error.kind, error.thread, error.buffer) == ("misaligned", 0, "table+0x1")


def test_vector_load_needs_the_vector_s_alignment():
    error = fault(
        "ld.param.u64 %rd0, [table]; ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd0+8];", buffers=INPUT
    )
    assert error.kind == "misaligned"
    assert "16 bytes" in error.detail


def test_base_is_aligned_to_16_bytes_and_no_more():
    error = fault(
        "ld.param.u64 %rd0, [table]; ld.global.v4.b64 {%rd1, %rd2, %rd3, %rd4}, [%rd0];", buffers=INPUT
    )
    assert error.kind == "misaligned"


def test_address_offset_misaligns_a_buffer():
    buffers = [("table", words(), {"address_offset": 4})]
    start("ld.param.u64 %rd0, [table]; ld.global.b32 %r1, [%rd0];", buffers=buffers)
    error = fault("ld.param.u64 %rd0, [table]; ld.global.v2.b32 {%r1, %r2}, [%rd0];", buffers=buffers)
    assert error.kind == "misaligned"


def test_write_to_an_input():
    error = fault(AT.format("table") + "st.global.b32 [%rd0], %r0;", buffers=INPUT)
    assert (error.kind, error.thread, error.buffer) == ("read-only", 0, "table+0x0")


def test_read_of_an_output_element_that_the_kernel_has_not_written():
    body = (
        AT.format("result")
        + "setp.ne.u32 %p1, %r0, 9; @%p1 st.global.b32 [%rd0], %r0; ld.global.b32 %r1, [%rd0];"
    )
    error = fault(body, buffers=OUTPUT)
    assert (error.kind, error.thread, error.buffer) == ("uninitialised", 9, "result+0x24")


def test_read_of_shared_memory_never_written():
    body = (
        SHARED + "mov.b32 %r1, room; mad.lo.u32 %r1, %r0, 4, %r1; setp.lt.u32 %p1, %r0, 60;"
        "@%p1 st.shared.b32 [%r1], 0; bar.sync 0; ld.shared.b32 %r2, [%r1];"
    )
    error = fault(body)
    assert (error.kind, error.thread, error.buffer) == ("uninitialised", 60, "room+0xf0")


def test_part_of_a_shared_word_never_written():
    body = (
        SHARED + ".reg .b16 %s; mov.b32 %r1, room; mad.lo.u32 %r1, %r0, 4, %r1; mov.b16 %s, 1;"
        "st.shared.b16 [%r1], %s; st.shared.b8 [%r1+2], %s; ld.shared.b32 %r2, [%r1];"
    )
    error = fault(body)
    assert (error.kind, error.buffer) == ("uninitialised", "room+0x3")


def test_shared_access_out_of_bounds():
    error = fault(SHARED + "mov.b32 %r1, room; mad.lo.u32 %r1, %r0, 8, %r1; st.shared.b32 [%r1], 1;")
    assert (error.kind, error.thread, error.buffer) == ("out of bounds", 32, "room+0x100")
    assert "256 bytes" in error.detail


def test_shared_access_below_the_first_variable():
    assert fault(SHARED + "mov.b32 %r1, room; st.shared.b32 [%r1+-4], 1;").kind == "out of bounds"


def test_shared_access_between_two_variables():
    rooms = (
        ".shared .align 16 .b8 one[28]; .shared .align 16 .b8 two[32]; mov.b32 %r1, one; mov.b32 %r2, two;"
    )
    for access, place in (("[%r1+28]", "one+0x1c"), ("[%r2+-4]", "one+0x1c")):
        error = fault(f"{rooms} st.shared.b32 {access}, 1;")
        assert (error.kind, error.buffer) == ("out of bounds", place)


@pytest.mark.parametrize("align", [4, 8])
def test_shared_variables_are_aligned_no_better_than_they_ask_for(align):
    room = f".shared .align {align} .b8 room[64]; mov.b32 %r1, room; mov.b32 %r2, 0;"
    error = fault(room + "st.shared.v4.b32 [%r1], {%r2, %r2, %r2, %r2};")
    assert (error.kind, error.buffer) == ("misaligned", "room+0x0")


def test_dynamic_shared_memory_is_as_large_as_the_launch_says():
    text = (
        f"{HEADER}.extern .shared .align 16 .b8 pool[];\n.visible .entry kernel()\n{{ .reg .b32 %r<3>;"
        "mov.b32 %r1, pool; st.shared.b32 [%r1+124], 5; ret; }"
    )
    program = ptxsim.parse(text)
    ptxsim.launch(program, ptxsim.Memory(1), [], 1, dynamic_shared=128)
    with pytest.raises(ptxsim.SimulationError, match=r"out of bounds.*pool\+0x7c"):
        ptxsim.launch(program, ptxsim.Memory(1), [], 1, dynamic_shared=127)


def test_shared_access_misaligned():
    error = fault(SHARED + "mov.b32 %r1, room; add.s32 %r1, %r1, 2; st.shared.b32 [%r1], 1;")
    assert (error.kind, error.buffer) == ("misaligned", "room+0x2")


def test_local_memory_is_checked_too():
    local = ".local .align 8 .b8 depot[16];\nmov.b64 %rd1, depot;"
    assert fault(local + "ld.local.b32 %r1, [%rd1+8];").kind == "uninitialised"
    assert fault(local + "st.local.b32 [%rd1+16], 1;").kind == "out of bounds"
    assert fault(local + "st.local.b32 [%rd1+2], 1;").kind == "misaligned"


def test_parameter_bytes_past_the_end():
    assert fault("cvt.u64.u32 %rd1, %r0; ld.param.b64 %rd2, [%rd1];", buffers=INPUT).kind == "out of bounds"


DEPENDENT = [("logits", words(), {"dependent": True}), ("result", words(), {"writable": True})]


def test_read_of_a_dependent_buffer_before_the_wait():
    error = fault(AT.format("logits") + "ld.global.b32 %r1, [%rd0]; griddepcontrol.wait;", buffers=DEPENDENT)
    assert (error.kind, error.buffer) == ("before the wait", "logits+0x0")


def test_global_store_before_the_wait():
    error = fault(AT.format("result") + "st.global.b32 [%rd0], %r0; griddepcontrol.wait;", buffers=DEPENDENT)
    assert error.kind == "before the wait"
    assert "store" in error.detail


def test_threads_that_did_not_wait_themselves():
    body = (
        AT.format("logits") + "setp.lt.u32 %p1, %r0, 40; @%p1 griddepcontrol.wait; ld.global.b32 %r1, [%rd0];"
    )
    assert fault(body, buffers=DEPENDENT).thread == 40


def test_everything_is_allowed_after_the_wait_and_shared_stores_before():
    body = (
        SHARED
        + "mov.b32 %r1, room; mad.lo.u32 %r1, %r0, 4, %r1; st.shared.b32 [%r1], 7; griddepcontrol.wait;"
    )
    start(
        body
        + AT.format("logits")
        + "ld.global.b32 %r1, [%rd0];"
        + AT.format("result")
        + "st.global.b32 [%rd0], %r1;",
        buffers=DEPENDENT,
    )


@pytest.mark.parametrize("opcode", ["div.s32", "div.u32", "rem.s32", "rem.u32"])
def test_division_by_zero(opcode):
    error = fault(f"sub.s32 %r1, %r0, 12; {opcode} %r2, %r0, %r1;")
    assert (error.kind, error.thread) == ("division by zero", 12)


def test_guarded_division_counts_only_where_the_guard_holds():
    start("sub.s32 %r1, %r0, 12; setp.ne.s32 %p1, %r1, 0; @%p1 div.s32 %r2, %r0, %r1;")


def test_endless_loop_runs_out_of_its_budget():
    error = fault("LOOP: add.s32 %r1, %r1, 1; bra LOOP;", instruction_budget=5000)
    assert error.kind == "instruction budget"
    assert "5000" in error.detail


def test_trap():
    error = fault("setp.eq.u32 %p1, %r0, 33; @%p1 trap;")
    assert (error.kind, error.thread) == ("trap", 33)


def test_source_line_is_named_when_the_text_has_line_information():
    text = f'{HEADER}.visible .entry kernel()\n{{\n.loc 1 42 7\ntrap;\nret;\n}}\n.file 1 "/some/kernel.py"'
    with pytest.raises(ptxsim.SimulationError, match=r"kernel\.py:42"):
        ptxsim.launch(ptxsim.parse(text), ptxsim.Memory(1), [], 1)
