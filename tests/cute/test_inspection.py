"""Tests of the readers: each must find the fault that is planted in otherwise clean text."""

import pytest

from oracle import inspection

PTX = """
.version 8.8
.target sm_90a
.visible .entry kernel(
	.param .u64 .ptr .global .align 1 kernel_param_0,
	.param .u32 kernel_param_1,
	.param .u64 kernel_param_2
)
.reqntid 256, 1, 1
{
	.reg .pred %p<2>;
	.reg .b64 %rd<9>;
	ld.param.b64 	%rd1, [kernel_param_0];
	ld.param.b64 	%rd2, [kernel_param_2];
	mov.u32 	%r1, %tid.x;
	mul.wide.u32 	%rd3, %r1, 16;
	add.s64 	%rd4, %rd1, %rd3;
	// begin inline asm
	ld.global.v4.f32 {%r2, %r3, %r4, %r5}, [%rd4];
	// end inline asm
	griddepcontrol.wait;
	setp.ge.s32 	%p1, %r1, 8;
	@%p1 bra 	$L__BB0_2;
$L__BB0_1:
	add.s64 	%rd5, %rd2, 4;
	ld.global.b32 	%r6, [%rd5+8];
	{ .reg .b32 t; add.rn.f32 t, %r6, %r2; mul.rn.f32 %r7, t, t; }
	st.shared.b32 	[%r8], %r7;
	st.global.b32 	[%rd5], %r7;
	setp.ne.s32 	%p1, %r6, 0;
	@%p1 bra 	$L__BB0_1;
$L__BB0_2:
	ret;
}
"""

SASS = """
.text.kernel:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   LDC.64 R4, c[0x0][0x210] ;
        /*0020*/                   ULDC.64 UR6, c[0x0][0x220] ;
        /*0030*/                   IMAD.WIDE.U32 R4, R2, 0x10, R4 ;
        /*0040*/                   LDG.E.128 R8, desc[UR4][R4.64] ;
        /*0050*/                   ACQBULK ;
        /*0060*/               @P0 BRA `(.L_x_0) ;
.L_x_1:
        /*0070*/                   IADD3 R6, P1, R3.reuse, UR6, RZ ;
        /*0080*/                   LDG.E R7, desc[UR4][R6.64+0x8] ;
        /*0090*/                   FADD R7, R7, R8 ;
        /*00a0*/                   STG.E desc[UR4][R6.64], R7 ;
        /*00b0*/               @P1 BRA `(.L_x_1) ;
.L_x_0:
        /*00c0*/                   EXIT ;
.L_x_2:
        /*00d0*/                   BRA `(.L_x_2);
"""


def ptx_accesses(text=PTX):
    return inspection.ptx_accesses(inspection.ptx_listing(text, "kernel"), text, "kernel")


def sass_accesses(text=SASS):
    parameters = inspection.ptx_parameters(PTX, "kernel")
    return inspection.sass_accesses(inspection.sass_listing(text), parameters, "sm_90a")


def test_parameters_have_the_offsets_of_their_natural_alignment():
    assert inspection.ptx_parameters(PTX, "kernel") == [(0, 8), (8, 4), (16, 8)]


@pytest.mark.parametrize("read", [ptx_accesses, sass_accesses], ids=["ptx", "sass"])
def test_accesses_have_their_parameter_and_their_side_of_the_wait(read):
    assert [(a.kind, a.origins, a.before, a.after) for a in read()] == [
        ("load", {0}, True, False),
        ("load", {2}, False, True),
        ("store", {2}, False, True),
    ]


def test_an_access_that_a_path_around_the_wait_reaches_is_seen_in_ptx():
    wait = "\tgriddepcontrol.wait;\n"
    text = PTX.replace(wait, f"\t@%p1 bra \t$L__BB0_1;\n{wait}")
    assert [(a.kind, a.before, a.after) for a in ptx_accesses(text)] == [
        ("load", True, False),
        ("load", True, True),
        ("store", True, True),
    ]


def test_an_access_that_a_path_around_the_wait_reaches_is_seen_in_sass():
    wait = "        /*0050*/                   ACQBULK ;\n"
    text = SASS.replace(wait, f"        /*0048*/               @P2 BRA `(.L_x_1) ;\n{wait}")
    assert [a.before for a in sass_accesses(text)] == [True, True, True]


def test_a_guarded_move_adds_an_origin_and_a_plain_one_replaces_it():
    move = "        /*0038*/               @P3 MOV R4, c[0x0][0x220] ;\n"
    place = "        /*0040*/"
    for text, origins in ((move, {0, 2}), (move.replace("@P3", "   "), {2})):
        assert sass_accesses(SASS.replace(place, text + place))[0].origins == origins


@pytest.mark.parametrize(
    ("planted", "found"),
    [
        ("add.rn.f32 %r9, %r6, %r2", False),
        ("add.s32 %r9, %r6, %r2", False),
        ("add.f32 %r9, %r6, %r2", True),
        ("sub.ftz.f32 %r9, %r6, %r2", True),
        ("mul.f64 %rd9, %rd6, %rd2", True),
        ("fma.rn.f32 %r9, %r6, %r2, %r3", True),
        ("mad.lo.s32 %r9, %r6, %r2, %r3", False),
        ("fma.rn.f32x2 %rd9, %rd6, %rd2, %rd3", True),
        ("@%p1 add.f32 %r9, %r6, %r2", True),
    ],
)
def test_a_float_operation_that_may_be_contracted_is_found(planted, found):
    text = PTX.replace("\tret;", f"\t{planted};\n\tret;")
    assert inspection.contractible(inspection.ptx_listing(text, "kernel")) == [planted] * found


def test_a_fused_multiply_add_is_found_in_sass():
    assert inspection.fused(inspection.sass_listing(SASS)) == []
    text = SASS.replace("FADD R7, R7, R8", "FFMA.FTZ R7, R7, R8, R9")
    assert inspection.fused(inspection.sass_listing(text)) == ["FFMA.FTZ R7, R7, R8, R9"]


def test_an_early_launch_of_dependents_is_found():
    ptx = PTX.replace("\tret;", "\tgriddepcontrol.launch_dependents;\n\tret;")
    sass = SASS.replace("FADD R7, R7, R8", "PREEXIT")
    for listing, early in (
        (inspection.ptx_listing(PTX, "kernel"), False),
        (inspection.ptx_listing(ptx, "kernel"), True),
        (inspection.sass_listing(SASS), False),
        (inspection.sass_listing(sass), True),
    ):
        assert inspection.launches_dependents(listing) == early


LAUNCH = "griddepcontrol.launch_dependents"


@pytest.mark.parametrize(
    ("lines", "first"),
    [
        (["ld.param.b32 %r1, [p]", "mov.u32 %r2, %tid.x", LAUNCH, "ld.global.b32 %r3, [%rd1]"], True),
        (["LDC R1, c[0x0][0x28]", "S2R R2, SR_TID.X", "PREEXIT", "LDG.E R3, [R4.64]", "ACQBULK"], True),
        (["mov.u32 %r2, %tid.x"], False),
        ([LAUNCH, "mov.u32 %r2, %tid.x", LAUNCH], False),
        ([f"@%p1 {LAUNCH}"], False),
        (["ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1]", LAUNCH], False),
        (["st.shared.b32 [%r1], %r2", LAUNCH], False),
        (["griddepcontrol.wait", LAUNCH], False),
        (["bar.sync 0", LAUNCH], False),
        (["@%p1 bra end", LAUNCH, "end:"], False),
        (["again:", LAUNCH, "@%p1 bra again"], False),
        (["LDG.E.128 R4, [R2.64]", "PREEXIT"], False),
        (["STS [R2], R3", "PREEXIT"], False),
        (["ACQBULK", "PREEXIT"], False),
        (["BAR.SYNC.DEFER_BLOCKING 0x0", "PREEXIT"], False),
    ],
)
def test_a_launch_of_dependents_counts_as_first_only_ahead_of_memory_order_and_branches(lines, first):
    code = "".join(f"{line}\n" if line.endswith(":") else f"{line};\n" for line in lines)
    if any(line.isupper() or "R" in line.split()[0] for line in lines):
        sass = "".join(f"/*{16 * i:04x}*/ {line} ;\n" for i, line in enumerate(lines))
        listing = inspection.sass_listing(sass + "/*0f00*/ EXIT ;\n")
    else:
        listing = inspection.ptx_listing(f".entry kernel(.param .b32 p)\n{{\n{code}ret;\n}}\n", "kernel")
    assert inspection.launches_dependents_first(listing) == first


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PTX.replace("kernel(", "other("), "no entry kernel"),
        (PTX.replace("bra \t$L__BB0_1", "bra \t$L__BB0_9"), "branch to no label"),
        (PTX.replace("\tret;", "\tcall.uni helper;\n\tret;"), "does not follow"),
    ],
    ids=["no-entry", "no-label", "a-call"],
)
def test_ptx_that_cannot_be_followed_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        inspection.ptx_listing(text, "kernel")


def test_a_parameter_that_is_no_scalar_is_refused():
    text = PTX.replace(".param .u32 kernel_param_1", ".param .b8 kernel_param_1[24]")
    with pytest.raises(ValueError, match="not a scalar"):
        inspection.ptx_parameters(text, "kernel")
