"""``python -m oracle.matrix``: all supported versions of both compilers; exits 1 where one gives other bits.

Without arguments it leaves its record in ``evidence/``, from which ``python -m oracle.evidence`` makes the
README's table.
"""

import json
import os
import sys
from pathlib import Path

from oracle import evidence
from oracle.commands.base import FILE, Parser, checked
from oracle.commands.values import number
from oracle.exits import MISMATCH, PASS, ended
from oracle.files import write_whole
from oracle.matrix import cells, run, table
from oracle.progress import Progress
from spec.folders import cache_folder

PROGRAM = "python -m oracle.matrix"


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code, one of `oracle.exits.MEANING`."""
    return ended(PROGRAM, lambda: _run(sys.argv[1:] if arguments is None else arguments))


def _parser() -> Parser:
    parser = Parser(
        prog=PROGRAM,
        description="Put every supported version of both compilers into an environment of its own: compile "
        "every variant, run a sample in the simulator, compare every bit.",
        examples=[
            (PROGRAM, "all that pip finds; writes the record"),
            (f"{PROGRAM} triton==3.10.0", "a version that is not supported yet"),
            (f"{PROGRAM} triton==3.6.0,numpy==1.26", "with a certain version of another package"),
        ],
    )
    parser.add_argument(
        "cell",
        nargs="*",
        type=checked(cells.parse),
        metavar="NAME==VERSION",
        help="these alone, and no record",
    )
    parser.add_argument(
        "--jobs",
        type=checked(number(1, 1024)),
        metavar="N",
        help="environments at a time, default one a core",
    )
    parser.take(
        "--folder",
        FILE,
        type=Path,
        metavar="DIR",
        help="where the environments lie, up to half a gigabyte each, used again; default: "
        "matrix in the cache of compiled kernels",
    )
    parser.take("--json", FILE, type=Path, metavar="FILE", help="also write the record there")
    return parser


def _run(words: list[str]) -> int:
    options = _parser().parse(words)
    if options.json is not None and not options.json.parent.is_dir():
        options.parser.error(f"--json: no folder {options.json.parent}")
    chosen = options.cell or cells.every()
    jobs = options.jobs or len(os.sched_getaffinity(0))
    folder = (options.folder or cache_folder() / "matrix").absolute()
    progress = Progress(unit="environments")
    with progress.over(len(chosen)):
        found = run.run(chosen, folder, jobs, progress)
    record = found.record
    print(table.text(record), table.verdict(record), sep="\n", flush=True)
    if options.json is not None:
        write_whole(options.json, (json.dumps(record, indent=1) + "\n").encode())
    if not options.cell:
        print(f"evidence: {evidence.write('matrix', record)}")
    return MISMATCH if found.failed else PASS


if __name__ == "__main__":
    sys.exit(main())
