"""What is asked of a version, with this environment's own compilers and a smaller sample."""

import json

import pytest

from oracle import artifacts
from oracle.backends.triton import Triton
from oracle.errors import CannotRunError
from oracle.matrix import inside
from oracle.mutants import code
from oracle.plan import Plan, RangeChoice, Target
from spec import compilers

SMALL = {"families": ("random-scales", "permute-mixed"), "batch": (3,), "tile": (2,), "count": 4}


def small(backend):
    return Plan((Target(backend, "sim"),), ranges=RangeChoice(((0, 64),)), **SMALL).chunks()


@pytest.fixture
def sample(monkeypatch):
    monkeypatch.setattr(inside, "chunks", small)
    monkeypatch.setattr(inside, "ARCHITECTURES", ("sm_90a", "sm_100a"))


@pytest.mark.parametrize("backend", compilers.COMPILERS)
def test_a_right_compiler_gives_the_specifications_digest(backend, sample):
    found = inside.answer(backend)
    assert "why" not in found, found
    assert found["digest"] == inside.expected_digest()
    assert (found["mismatches"], found["launches"]) == (0, sum(len(chunk) for chunk in small(backend)))
    for one in found["architectures"].values():
        assert len(one["instructions"]) == 8
        assert {name.removesuffix("-early") for name in one["instructions"]} == set(inside.VARIANTS)
    assert found["architectures"]["sm_90a"]["instructions"]["plain-raw"]["sass"] > 100


def test_every_family_batch_and_variant_is_in_the_sample():
    found = list(inside.chunks("cute"))
    assert {chunk.family for chunk in found} == set(inside.Plan(()).families)
    assert {(chunk.tokens, chunk.renormalize, chunk.ranges is None) for chunk in found} == {
        (tokens, renormalize, plain)
        for tokens in range(1, 9)
        for renormalize in (True, False)
        for plain in (True, False)
    }


def test_a_wrong_bit_changes_the_digest_and_is_told_as_check_tells_it(sample, monkeypatch):
    right = Triton.run

    def wrong(self, batch, outputs, device):
        right(self, batch, outputs, device)
        outputs.ids[-1, 0, 0] ^= 1

    monkeypatch.setattr(Triton, "run", wrong)
    found = inside.answer("triton")
    assert found["step"] == "run"
    assert found["why"].startswith("MISMATCH triton on sim: ")
    assert found["mismatches"] == len(list(small("triton")))
    assert found["digest"] != inside.expected_digest()


def test_an_architecture_that_does_not_compile_is_told_and_the_rest_is_still_asked(sample, monkeypatch):
    right = artifacts.artifact

    def artifact(backend, metadata, renormalize, arch="sm_90a", **options):
        if arch == "sm_100a":
            raise CannotRunError("compiling failed: what is sm_100a?")
        return right(backend, metadata, renormalize, arch, **options)

    monkeypatch.setattr(artifacts, "artifact", artifact)
    found = inside.answer("triton")
    assert (found["step"], found["why"]) == ("compile", "compiling failed: what is sm_100a?")
    assert found["digest"] == inside.expected_digest()


def test_a_compiler_that_makes_nothing_is_asked_no_more(sample, monkeypatch):
    def artifact(*arguments, **options):
        raise CannotRunError("compiling failed")

    monkeypatch.setattr(artifacts, "artifact", artifact)
    found = inside.answer("triton")
    assert (found["step"], found["why"]) == ("compile", "compiling failed")
    assert "launches" not in found


def test_code_that_is_wrong_whatever_the_inputs_are_is_told(sample, monkeypatch):
    def fault(backend, compiled, arch="sm_90a", early_dependents=False):
        return "4 threads" if arch == "sm_100a" and early_dependents else None

    monkeypatch.setattr(code, "fault", fault)
    found = inside.answer("triton")
    assert (found["step"], found["why"]) == ("code", "plain-raw-early for sm_100a: 4 threads")


def test_a_cell_may_have_any_version_and_writes_its_answer(monkeypatch, tmp_path):
    monkeypatch.setattr(
        inside, "answer", lambda backend: {"supported": inside.COMPILERS[backend].complaint()}
    )
    monkeypatch.setattr(inside, "COMPILERS", dict(compilers.COMPILERS))
    monkeypatch.setattr(compilers.Compiler, "installed", lambda self: "0.0.1")
    assert inside.main(["triton", str(tmp_path / "found.json")]) == 0
    assert json.loads((tmp_path / "found.json").read_text()) == {"supported": None}
