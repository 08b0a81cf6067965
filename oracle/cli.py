"""The command: `check`, `mutants`, `bench`, `search`, `replay`, `backends`, and their exit codes.

0: every bit as specified; 1: a mismatch; 2: bad arguments, or an unreadable replay file; 3: it could not run;
130: interrupted.
"""

import argparse
import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from oracle import backends, cases, check, fast, reordered, replay, report
from oracle.bench import command as bench
from oracle.compare import PERMITTED, compare, expect, explain
from oracle.errors import CannotRunError
from oracle.explain import command as shown
from oracle.files import UnwritableError, write_whole
from oracle.html_report.coverage import Coverage
from oracle.html_report.page import page
from oracle.mutants import command
from oracle.outcome import Finding
from oracle.plan import ALL_RANGES, DEFAULT_CASES, SAMPLE_RANGES, Plan, RangeChoice, Target, match_families
from oracle.search import command as search
from oracle.traffic import command as traffic
from spec.constants import MAX_TILE, MAX_TOKENS, NUM_EXPERTS

PASS: Final = 0
MISMATCH: Final = 1
BAD_ARGUMENTS: Final = 2
COULD_NOT_RUN: Final = 3
INTERRUPTED: Final = 130

REPLAYS: Final = Path("replays")
_KERNELS: Final = ("cute", "triton")

Value = TypeVar("Value")


class _Parser(argparse.ArgumentParser):
    """One line on a bad argument, where argparse prints its usage first."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_ARGUMENTS, f"{self.prog}: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    words = sys.argv[1:] if arguments is None else [*arguments]
    options = _parser().parse_args(words)
    options.words = words
    chosen: Callable[[argparse.Namespace], int] = options.command
    try:
        return chosen(options)
    except CannotRunError as error:
        print(f"could not run: {error}", file=sys.stderr)
        return COULD_NOT_RUN
    except UnwritableError as error:
        print(f"{_parser().prog}: {error}", file=sys.stderr)
        return COULD_NOT_RUN
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone; what Python flushes at exit must not raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return COULD_NOT_RUN


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m oracle", description="Compare routing kernels with the specification, bit for bit."
    )
    commands = parser.add_subparsers(
        required=True, metavar="check|mutants|bench|search|explain|replay|backends"
    )

    one = commands.add_parser("check", help="run the case families and compare every output bit")

    def option(name: str, metavar: str, default: object, parse: Callable[[str], object], text: str) -> None:
        one.add_argument(name, type=_checked(parse), default=default, metavar=metavar, help=text)

    known = ", ".join(backends.names())
    every_b, every_tile = tuple(range(1, MAX_TOKENS + 1)), tuple(range(1, MAX_TILE + 1))
    option("--backend", "NAME,...", ("cute", "triton"), _backends, f"of {known}; default cute,triton")
    one.add_argument(
        "--device", choices=("sim", "cuda", "cpu"), help="default: sim for the kernels, cpu for others"
    )
    option(
        "--batch", "LIST", every_b, partial(_numbers, low=1, high=MAX_TOKENS), "values of b: 1-8, or 1,3,8"
    )
    option(
        "--tile", "LIST", every_tile, partial(_numbers, low=1, high=MAX_TILE), "tiles: 1-256, or 1,8,64-128"
    )
    option(
        "--range", "LIST", SAMPLE_RANGES, _ranges, "expert ranges: sample (default), all, or OFFSET:COUNT,..."
    )
    option("--family", "NAME,...", tuple(cases.FAMILIES), _families, "case families, * allowed; default all")
    per_family = f"problems of a selection family, default {DEFAULT_CASES}"
    option("--cases", "N", DEFAULT_CASES, partial(_number, low=1, high=10**9), per_family)
    option("--seed", "S", 0, partial(_number, low=0, high=2**64 - 1), "of all random problems, default 0")
    option(
        "--jobs",
        "N",
        None,
        partial(_number, low=1, high=1024),
        "worker processes, default one a core; 1 on cuda",
    )
    one.add_argument(
        "--schedules",
        choices=("sample", "all"),
        default="sample",
        help="what runs again with its threads in another order, in the simulator: every "
        f"{reordered.SAMPLE}th chunk (default), or all",
    )
    one.add_argument("--json", type=Path, metavar="FILE", help="write verdict, versions and table there")
    one.add_argument("--html", type=Path, metavar="FILE", help="write a report for a browser there")
    one.add_argument(
        "--fast", action="store_true", help="after an edit of a kernel: its own small choice, in seconds"
    )
    one.add_argument("--watch", action="store_true", help="--fast now and on every save, until Ctrl-C")
    one.set_defaults(command=_check, chosen={name: one.get_default(name) for name in fast.CHOSEN})

    _mutants_parser(commands)
    _search_parser(commands)
    bench.add_parser(commands)

    _replay_parser(commands)
    _explain_parser(commands)

    three = commands.add_parser("backends", help="what can run here, and why the others cannot")
    three.set_defaults(command=_list)
    return parser


def _mutants_parser(commands: Any) -> None:
    made = commands.add_parser(
        "mutants", help="change both kernels, their hosts and the contract: all must be caught"
    )
    made.add_argument(
        "--backend",
        type=_checked(_kernels),
        default=_KERNELS,
        metavar="NAME,...",
        help="of cute, triton; default both",
    )
    made.add_argument("--only", metavar="ID", help="mutants of that id, * allowed")
    number = _checked(partial(_number, low=1, high=10**6))
    made.add_argument("--sample", type=number, metavar="N", help="a fixed choice of N; default all")
    made.add_argument("--list", action="store_true", help="print the mutants and judge none")
    made.add_argument("--fast", action="store_true", help="the score of check --fast: survivors get no more")
    made.add_argument("--jobs", type=number, metavar="N", help="processes, default one a core")
    made.add_argument(
        "--json", type=Path, metavar="FILE", help="write verdict, versions and every mutant there"
    )
    made.set_defaults(command=command.execute)


def _replay_parser(commands: Any) -> None:
    made = commands.add_parser("replay", help="run a failing input again, or recorded calls")
    made.add_argument(
        "file", type=Path, help="a file that check saved, or a folder or file of recorded calls (README)"
    )
    made.add_argument("--backend", type=_checked(_backends), metavar="NAME,...", help="default: all")
    made.add_argument("--device", choices=("sim", "cuda", "cpu"), help="default: all that can run here")
    number = _checked(partial(_number, low=0, high=10**12))
    made.add_argument("--call", type=number, metavar="N", help="that call alone, counted from 0")
    number = _checked(partial(_number, low=1, high=1024))
    made.add_argument("--jobs", type=number, metavar="N", help="worker processes, default one a core")
    made.set_defaults(command=_replay)


def _explain_parser(commands: Any) -> None:
    made = commands.add_parser("explain", help="show one call: every pick, and the metadata as a picture")
    made.add_argument(
        "file", type=Path, nargs="?", help="as for replay; without one the call is made from these options"
    )

    def option(name: str, metavar: str, parse: Callable[[str], object], text: str) -> None:
        made.add_argument(name, type=_checked(parse), metavar=metavar, help=text)

    option("--call", "N", partial(_number, low=0, high=10**12), "which call, counted from 0; default 0")
    option("--seed", "S", partial(_number, low=0, high=2**64 - 1), "default 0")
    option("--batch", "B", partial(_number, low=1, high=MAX_TOKENS), f"b, default {shown.DEFAULT_BATCH}")
    option("--tile", "T", partial(_number, low=1, high=MAX_TILE), f"default {shown.DEFAULT_TILE}")
    option("--range", "OFFSET:COUNT", _range, "the rank's experts, default 0:256")
    option("--family", "NAME", _family, f"default {shown.DEFAULT_FAMILY}")
    made.add_argument(
        "--no-renormalize",
        dest="renormalize",
        action="store_const",
        const=False,
        help="weights by the scale alone",
    )
    option(
        "--backend", "NAME,...", _backends, "also show where these differ; default for a file: whose it is"
    )
    made.add_argument("--device", choices=("sim", "cuda", "cpu"), help="of the backends; default as in check")
    made.add_argument("--svg", type=Path, metavar="FILE", help="also write the picture of the metadata there")
    made.set_defaults(command=shown.execute)


def _search_parser(commands: Any) -> None:
    made = commands.add_parser("search", help="draw problems by structure, and shrink one that fails")
    names = ", ".join(backends.names())
    made.add_argument(
        "--backend",
        type=_checked(_backends),
        default=_KERNELS,
        metavar="NAME,...",
        help=f"of {names}; default cute,triton",
    )
    made.add_argument("--device", choices=("sim", "cuda", "cpu"), help="as for check")
    number = _checked(partial(_number, low=1, high=10**9))
    long = made.add_mutually_exclusive_group()
    long.add_argument("--seconds", type=number, metavar="N", help=f"how long, default {search.SECONDS}")
    long.add_argument("--examples", type=number, metavar="N", help="batches for every backend, instead")
    seed = _checked(partial(_number, low=0, high=2**64 - 1))
    made.add_argument("--seed", type=seed, default=0, metavar="S", help="of all that is drawn, default 0")
    made.add_argument("--jobs", type=number, metavar="N", help="worker processes, as for check")
    made.add_argument("--keep", metavar="NAME", help="add the first problem found to the known cases")
    made.set_defaults(command=partial(search.execute, replays=REPLAYS))


def _kernels(text: str) -> tuple[str, ...]:
    chosen = tuple(dict.fromkeys(text.split(",")))
    for name in chosen:
        if name not in _KERNELS:
            raise ValueError(f"no kernel {name!r}: there are {', '.join(_KERNELS)}")
    return chosen


def _checked(parse: Callable[[str], Value]) -> Callable[[str], Value]:
    """Let argparse print the message of a ValueError, which it otherwise replaces by its own."""

    def checked(text: str) -> Value:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return checked


def _number(text: str, low: int, high: int) -> int:
    if not re.fullmatch(r"[0-9]+", text) or not low <= int(text) <= high:
        raise ValueError(f"must be a number in {low}..{high}, not {text!r}")
    return int(text)


def _numbers(text: str, low: int, high: int) -> tuple[int, ...]:
    """Numbers of a list as ``1,3,5-8``, in order, each once."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        start = _number(first, low, high)
        end = _number(last, low, high) if dash else start
        if end < start:
            raise ValueError(f"{part!r} runs backwards")
        found.update(range(start, end + 1))
    return tuple(sorted(found))


def _ranges(text: str) -> RangeChoice:
    fixed: dict[tuple[int, int], None] = {}
    drawn = False
    for part in text.split(","):
        if part in ("sample", "all"):
            choice = SAMPLE_RANGES if part == "sample" else ALL_RANGES
            fixed.update(dict.fromkeys(choice.fixed))
            drawn = drawn or choice.drawn
            continue
        match = re.fullmatch(r"([0-9]+):([0-9]+)", part)
        if match is None:
            raise ValueError(f"must be sample, all or OFFSET:COUNT, not {part!r}")
        offset, count = int(match[1]), int(match[2])
        if count < 1 or offset + count > NUM_EXPERTS:
            raise ValueError(f"{part!r} must hold at least one expert and end by {NUM_EXPERTS}")
        fixed[offset, count] = None
    return RangeChoice(tuple(fixed), drawn)


def _range(text: str) -> tuple[int, int]:
    if text in ("sample", "all"):
        raise ValueError(f"must be OFFSET:COUNT, not {text!r}")
    return _ranges(text).fixed[0]


def _family(text: str) -> str:
    return _families(text)[0]


def _backends(text: str) -> tuple[str, ...]:
    chosen = tuple(dict.fromkeys(text.split(",")))
    for name in chosen:
        if name not in backends.names():
            raise ValueError(f"no backend {name!r}: there are {', '.join(backends.names())}")
    return chosen


def _families(text: str) -> tuple[str, ...]:
    return match_families(text.split(","))


def _check(options: argparse.Namespace) -> int:
    if options.fast or options.watch:
        return fast.execute(options, REPLAYS)
    targets = tuple(Target(name, options.device or backends.get(name).devices[0]) for name in options.backend)
    plan = Plan(
        targets, options.family, options.batch, options.tile, options.range, options.cases, options.seed
    )
    if not any(plan.chunks()):
        print("python -m oracle check: these options leave nothing to run", file=sys.stderr)
        return BAD_ARGUMENTS
    for option, path in (("--json", options.json), ("--html", options.html)):
        if path is not None and not path.parent.is_dir():
            print(f"python -m oracle check: {option}: no folder {path.parent}", file=sys.stderr)
            return BAD_ARGUMENTS
    on_card = any(target.device == "cuda" for target in targets)
    jobs = options.jobs or (1 if on_card else len(os.sched_getaffinity(0)))
    coverage = Coverage()
    every = 1 if options.schedules == "all" else reordered.SAMPLE
    result = check.run(plan, jobs, report.Reporter(), REPLAYS, coverage.add, every)
    print(report.table(result), report.LEGEND, report.verdict(result), sep="\n", flush=True)
    if options.json is not None:
        write_whole(options.json, report.as_json(result).encode())
    if options.html is not None:
        write_whole(options.html, page(result, coverage, options.words).encode())
    return PASS if result.passed else MISMATCH


def _replay(options: argparse.Namespace) -> int:
    if traffic.concerns(options):
        return traffic.execute(options, REPLAYS)
    try:
        target, batch, expected = replay.load(options.file)
        known = target.backend in backends.names()
        reason = backends.unavailable(target.backend, target.device) if known else None
    except replay.ReplayFileError as error:
        print(f"python -m oracle replay: {error}", file=sys.stderr)
        return BAD_ARGUMENTS
    if not known:
        print(
            f"python -m oracle replay: {options.file} is for the unknown backend {target.backend!r}",
            file=sys.stderr,
        )
        return BAD_ARGUMENTS
    if reason is not None:
        raise CannotRunError(f"{target}: {reason}")
    if compare(expect(batch, expected), expected).any():
        print(f"note: the specification has changed since {options.file} was saved; compared with the file")
    given = check.answer(target, batch, expected, reordered.SCHEDULES)
    failure = given.failures.get(0)
    right = PERMITTED[target.backend].right(batch, expected, given.outputs)
    if failure is None and not compare(right, given.outputs).any():
        print(f"MATCH {target}: every bit is as expected now\n  problem: {report.problem(batch)}")
        return PASS
    difference = None if failure is not None else explain(batch, right, given.outputs)
    print(report.failure(Finding(target, batch, expected, difference, failure)))
    return MISMATCH


def _list(options: argparse.Namespace) -> int:
    for name in backends.names():
        for device in backends.get(name).devices:
            reason = backends.unavailable(name, device)
            print(f"{name:17} {device:5} {'ready' if reason is None else f'cannot run: {reason}'}")
    return PASS
