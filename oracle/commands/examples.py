"""The examples that help shows; the tests run every one of them, or the README does."""

from typing import Final

from oracle.commands.base import Example

TOOLS: Final[dict[str, tuple[Example, ...]]] = {
    "oracle.bench.budget": (
        ("python -m oracle.bench.budget --backend triton", "the counts of one kernel beside the budget"),
    ),
    "oracle.bench.document": (("python -m oracle.bench.document", "after a bench on a card; needs none"),),
    "oracle.card.calibrate": (("ci/gpu calibrate --shift 8", "a 256th of all inputs"),),
    "oracle.card.sanitize": (("ci/gpu sanitize --tool racecheck", "one tool"),),
    "oracle.card.sweep": (("ci/gpu sweep --shard 0/256", "a 256th of all points"),),
    "oracle.evidence": (("python -m oracle.evidence", "after a record was written; needs no card"),),
}

COMMANDS: Final[dict[str, tuple[Example, ...]]] = {
    "": (
        ("python -m oracle check --fast", "after an edit of a kernel: an answer in about ten seconds"),
        ("python -m oracle backends", "what can run on this machine"),
    ),
    "check": (
        ("python -m oracle check --fast", "after an edit of a kernel"),
        (
            "python -m oracle check --backend triton --batch 1,8 --tile 1,8,192 --cases 16",
            "one kernel, two batch sizes, three tiles, few random problems",
        ),
        (
            "python -m oracle check --family 'permute-*' --batch 8 --tile 1-16 --range 0:64,64:64",
            "the metadata of two ranks of 64 experts",
        ),
    ),
    "mutants": (
        (
            "python -m oracle mutants --list --only 'triton-*' --sample 20",
            "show twenty changes of one kernel",
        ),
    ),
    "search": (("python -m oracle search --seconds 5", "five seconds of both kernels"),),
    "bench": (),
    "replay": (("python -m oracle replay docs/recorded", "every recorded call of a folder, everywhere"),),
    "explain": (),
    "backends": (("python -m oracle backends", "needs no options"),),
    "completion": (
        ("python -m oracle completion bash", "in ~/.bashrc: source <(python -m oracle completion bash)"),
    ),
}
