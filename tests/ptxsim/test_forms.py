"""Every instruction form gives what the PTX ISA says, on edges and random operands."""

import numpy as np

from oracle import ptxsim


def test_form(form_case, run):
    found = run(
        form_case.body,
        [np.array(column, np.uint64) for column in form_case.inputs],
        len(form_case.expected),
        threads=form_case.threads,
        module=form_case.module,
        **form_case.keywords,
    )
    for k, column in enumerate(form_case.expected):
        expected = np.array(column, np.uint64)
        wrong = np.flatnonzero(found[k][0] != expected)
        assert not len(wrong), (
            f"{form_case.form}: output {k} of thread {wrong[0]}: {int(found[k][0][wrong[0]]):#x}, not "
            f"{int(expected[wrong[0]]):#x}, for {[hex(c[wrong[0]]) for c in form_case.inputs]}"
        )


def test_every_form_has_a_case(all_cases):
    assert {case.form for case in all_cases} == set(ptxsim.forms())
