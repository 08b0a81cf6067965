"""The parsers of `python -m oracle` and of each of its commands; what they run is imported when it runs."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from oracle import backends, defaults, exits
from oracle.commands import values
from oracle.commands.base import ENDING, FILE, Parser, Words, checked, later
from oracle.commands.examples import COMMANDS

PROGRAM: Final = "python -m oracle"
SHELLS: Final = ("bash", "zsh", "fish")
REPLAYS: Final = Path("replays")
_DEVICES: Final = ("sim", "cuda", "cpu")
_MANY: Final = 10**9
_SEED: Final = values.number(0, 2**64 - 1)
_BACKENDS: Final = Words(backends.names)


class _Version(argparse.Action):
    """Prints versions, which takes a look at what is installed: not before it is asked."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from oracle import versions

        print(versions.told())
        parser.exit(exits.PASS)


def parser() -> Parser:
    """Return the parser of everything; its ``parsers`` has those of the commands by name."""
    codes = "\n".join(f"  {code:3}  {meaning}" for code, meaning in exits.MEANING.items())
    made = Parser(
        prog=PROGRAM,
        description="Compare routing kernels with the specification, bit for bit, with or without a GPU.",
        examples=COMMANDS[""],
        ending=f"exit codes:\n{codes}\n\n`{PROGRAM} COMMAND --help` has more on each command.",
    )
    made.add_argument("--version", action=_Version, nargs=0, help="print versions: ours, compilers, NumPy")
    commands = made.add_subparsers(required=True, metavar="COMMAND", title="commands")
    for add in (_check, _mutants, _search, _bench, _replay, _explain, _backends, _completion):
        add(commands)
    return made


def _command(commands: Any, name: str, text: str, more: str, run: str, **options: Any) -> Parser:
    """Add a command: its line in the list, the paragraph of its own help, and the function that it calls."""
    made: Parser = commands.add_parser(
        name, help=text, description=more, examples=COMMANDS[name], ending=ENDING
    )
    made.set_defaults(command=later(run), **options)
    return made


def _backend(made: Parser, default: Sequence[str] | None, ending: str) -> None:
    known = ", ".join(backends.names())
    made.take(
        "--backend",
        _BACKENDS,
        type=checked(values.backend_names),
        default=default,
        metavar="NAME,...",
        help=f"of {known}; {ending}",
    )


def _jobs(made: Parser, text: str) -> None:
    made.add_argument("--jobs", type=checked(values.number(1, 1024)), metavar="N", help=text)


def _file(made: Parser, name: str, text: str) -> None:
    made.take(name, FILE, type=Path, metavar="FILE", help=text)


def _family_names() -> Sequence[str]:
    from oracle.cases import FAMILIES

    return tuple(FAMILIES)


def _check(commands: Any) -> None:
    made = _command(
        commands,
        "check",
        "run the case families and compare every output bit",
        "Put problems of every case family to the backends, and compare every output bit with the "
        "specification. A wrong problem is shown, and saved in replays/ with the line that runs it again.",
        "oracle.commands.check:execute",
        replays=REPLAYS,
    )
    _backend(made, defaults.KERNELS, f"default {','.join(defaults.KERNELS)}")
    made.add_argument("--device", choices=_DEVICES, help="default: sim for the kernels, cpu for others")
    made.add_argument(
        "--batch", type=checked(values.batches), metavar="LIST", help="values of b: 1-8 (default), or 1,3,8"
    )
    made.add_argument(
        "--tile", type=checked(values.tiles), metavar="LIST", help="tiles: 1-256 (default), or 1,8,64-128"
    )
    made.take(
        "--range",
        Words(lambda: ("sample", "all")),
        type=checked(values.ranges),
        metavar="LIST",
        help="expert ranges: sample (default), all, or OFFSET:COUNT,...",
    )
    made.take(
        "--family",
        Words(_family_names),
        type=checked(values.families),
        metavar="NAME,...",
        help="case families, * allowed, default all; a name that is none lists them",
    )
    made.add_argument(
        "--cases",
        type=checked(values.number(1, _MANY)),
        metavar="N",
        help=f"problems of a selection family, default {defaults.CASES}",
    )
    made.add_argument("--seed", type=checked(_SEED), metavar="S", help="of all random problems, default 0")
    _jobs(made, "worker processes, default one a core; 1 on cuda")
    made.add_argument(
        "--schedules",
        choices=("sample", "all"),
        default="sample",
        help="what runs again with its threads in another order, in the simulator: every "
        f"{defaults.SCHEDULE_EVERY}th chunk (default), or all",
    )
    _file(made, "--json", "write verdict, versions and table there")
    _file(made, "--html", "write a report for a browser there")
    made.add_argument(
        "--fast", action="store_true", help="after an edit of a kernel: its own small choice, in seconds"
    )
    made.add_argument("--watch", action="store_true", help="--fast now and on every save, until Ctrl-C")


def _mutants(commands: Any) -> None:
    made = _command(
        commands,
        "mutants",
        "change both kernels, their hosts and the contract: all must be caught",
        "Change the kernels, their hosts and the contract in one place at a time, by rule, and judge each "
        "change: every one that changes anything must be caught. All of them take about a quarter of an hour "
        "on two cores. Needs torch.",
        "oracle.mutants.command:execute",
    )
    made.take(
        "--backend",
        Words(lambda: defaults.KERNELS),
        type=checked(values.kernels),
        default=defaults.KERNELS,
        metavar="NAME,...",
        help=f"of {', '.join(defaults.KERNELS)}; default both",
    )
    made.add_argument("--only", metavar="ID", help="mutants of that id, * allowed")
    number = checked(values.number(1, 10**6))
    made.add_argument("--sample", type=number, metavar="N", help="a fixed choice of N; default all")
    made.add_argument("--list", action="store_true", help="print the mutants and judge none")
    made.add_argument("--fast", action="store_true", help="the score of check --fast: survivors get no more")
    _jobs(made, "processes, default one a core")
    _file(made, "--json", "write verdict, versions and every mutant there")


def _search(commands: Any) -> None:
    made = _command(
        commands,
        "search",
        "draw problems by structure, and shrink one that fails",
        "Look for what no case family holds: problems drawn by structure, many to a batch. One that fails is "
        "shrunk to the smallest that still does, and saved for replay. Needs Hypothesis (the extra `test`).",
        "oracle.search.command:execute",
        replays=REPLAYS,
    )
    _backend(made, defaults.KERNELS, f"default {','.join(defaults.KERNELS)}")
    made.add_argument("--device", choices=_DEVICES, help="as for check")
    number = checked(values.number(1, _MANY))
    long = made.add_mutually_exclusive_group()
    long.add_argument(
        "--seconds", type=number, metavar="N", help=f"how long, default {defaults.SEARCH_SECONDS}"
    )
    long.add_argument("--examples", type=number, metavar="N", help="batches for every backend, instead")
    made.add_argument(
        "--seed", type=checked(_SEED), default=0, metavar="S", help="of all that is drawn, default 0"
    )
    _jobs(made, "worker processes, as for check")
    made.add_argument("--keep", metavar="NAME", help="add the first problem found to the known cases")


def _bench(commands: Any) -> None:
    anywhere = ", ".join(defaults.BENCH_ANYWHERE)
    made = _command(
        commands,
        "bench",
        "how fast the kernels, the host, `prepare` and the simulator are",
        "Measure, everything twice: a figure whose two measurements differ is refused. Kernels, host and "
        f"prepare need a card; {anywhere} do not, and take about a minute.",
        "oracle.bench.command:execute",
    )
    made.take(
        "--part",
        Words(lambda: defaults.BENCH_PARTS),
        type=checked(values.bench_parts),
        metavar="NAME,...",
        help=f"of {', '.join(defaults.BENCH_PARTS)}; default: all with a card, {anywhere} without",
    )
    _file(made, "--json", "write every figure there, part by part")
    _file(made, "--plot", "draw time over b and tile there, as SVG")


def _replay(commands: Any) -> None:
    made = _command(
        commands,
        "replay",
        "run a failing input again, or recorded calls",
        "Run one problem that check saved on the backend that failed it, or recorded calls on every backend "
        "and device here; what the files say came out is judged too.",
        "oracle.commands.replay:execute",
        replays=REPLAYS,
    )
    made.take(
        "file",
        FILE,
        type=Path,
        help="a file that check saved, or a folder or file of recorded calls (README)",
    )
    _backend(made, None, "default all, or whose the file is")
    made.add_argument("--device", choices=_DEVICES, help="default: all that can run here")
    made.add_argument(
        "--call", type=checked(values.number(0, 10**12)), metavar="N", help="that call alone, counted from 0"
    )
    _jobs(made, "worker processes, default one a core")


def _explain(commands: Any) -> None:
    made = _command(
        commands,
        "explain",
        "show one call: every pick, and the metadata as a picture",
        "Show a call of `route` as the specification answers it: scores, keys, picks and weights of each "
        "token, and the metadata as a picture; with --backend also where others differ.",
        "oracle.explain.command:execute",
    )
    made.take(
        "file",
        FILE,
        type=Path,
        nargs="?",
        help="as for replay; without one the call is made from these options",
    )
    offset, count = defaults.EXPLAINED_RANGE
    call = checked(values.number(0, 10**12))
    made.add_argument("--call", type=call, metavar="N", help="which call, counted from 0; default 0")
    made.add_argument("--seed", type=checked(_SEED), metavar="S", help="of the call that is made; default 0")
    made.add_argument(
        "--batch",
        type=checked(values.batch),
        metavar="B",
        help=f"tokens, 1-8; default {defaults.EXPLAINED_BATCH}",
    )
    made.add_argument(
        "--tile", type=checked(values.tile), metavar="T", help=f"1-256; default {defaults.EXPLAINED_TILE}"
    )
    made.add_argument(
        "--range",
        type=checked(values.one_range),
        metavar="OFFSET:COUNT",
        help=f"the rank's experts, default {offset}:{count}",
    )
    made.take(
        "--family",
        Words(_family_names, many=False),
        type=checked(values.family),
        metavar="NAME",
        help=f"of check's, default {defaults.EXPLAINED_FAMILY}",
    )
    made.add_argument(
        "--no-renormalize",
        dest="renormalize",
        action="store_const",
        const=False,
        help="weights by the scale alone",
    )
    _backend(made, None, "whose answers are compared; default for a file: whose it is")
    made.add_argument("--device", choices=_DEVICES, help="of the backends; default as in check")
    _file(made, "--svg", "also write the picture of the metadata there")


def _backends(commands: Any) -> None:
    _command(
        commands,
        "backends",
        "what can run here, and why the others cannot",
        "List every backend on each of its devices: ready, or why it cannot run here.",
        "oracle.commands.listing:execute",
    )


def _completion(commands: Any) -> None:
    made = _command(
        commands,
        "completion",
        "print what lets a shell complete all this",
        "Print a script for the shell: it completes commands, options and their values after "
        "`python -m oracle`, musespark-routing, the tools, and the scripts in ci/.",
        "oracle.commands.completion:execute",
    )
    made.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"of {', '.join(SHELLS)}")
