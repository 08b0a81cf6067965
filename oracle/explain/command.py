"""The command `explain`: which call, by whom, shown how."""

import argparse
import sys
from pathlib import Path

import numpy as np

from oracle import backends, cases, check, defaults, replay, streams
from oracle.cases import known
from oracle.cases.permuting import Points
from oracle.compare import PERMITTED, expect
from oracle.errors import CannotRunError
from oracle.explain import scene, svg, terminal
from oracle.files import write_whole
from oracle.plan import Target
from oracle.problem import Batch, Outputs
from oracle.traffic.files import TrafficError
from oracle.traffic.run import RECORD, Source


class _OptionError(ValueError):
    """An option that does not go with another; the message is one line."""


def execute(options: argparse.Namespace) -> int:
    """Run the command and return its exit code.

    Parameters
    ----------
    options
        file, call, family, seed, batch, tile, range, renormalize, backend, device, svg: as the command line
        has them; None where nothing was said.

    Returns
    -------
    int
        0: whoever was asked is right; 1: somebody is not; 2: bad arguments, or a file that cannot be read.
    """
    try:
        shown = _scene(options)
        if options.svg is not None:
            _write(options.svg, shown)
    except (TrafficError, replay.ReplayFileError, _OptionError) as error:
        print(f"python -m oracle explain: {error}", file=sys.stderr)
        return 2
    print(terminal.text(shown, streams.colours(sys.stdout)), flush=True)
    return 0 if shown.agrees else 1


def _write(path: Path, shown: scene.Scene) -> None:
    if not path.parent.is_dir():
        raise _OptionError(f"--svg: no folder {path.parent}")
    if not shown.tile:
        raise _OptionError("--svg: there is no picture of a call without metadata")
    write_whole(path, svg.picture(shown).encode())


def _scene(options: argparse.Namespace) -> scene.Scene:
    views: list[scene.View] = []
    targets: list[Target] = []
    if options.file is None:
        batch = _made(options)
        right = expect(batch)
    else:
        for name in ("family", "seed", "batch", "tile", "range", "renormalize"):
            if getattr(options, name) is not None:
                raise _OptionError(f"--{name} is for a call that is made here, not for one of a file")
        if replay.is_saved(options.file):
            target, batch, right = replay.load(options.file)
            if options.backend is None and target.backend in backends.names():
                targets.append(target)
            right = expect(batch, right)
        else:
            calls, _ = next(Source(options.file, options.call or 0).each())
            batch = calls.batch
            right = expect(batch)
            if calls.given:
                tile = None if batch.ranges is None else batch.ranges.tile
                recorded = calls.given.against(right, tile)[0]
                views.append(scene.view(str(Target(calls.backend, RECORD)), batch, right, recorded))
    targets += [
        Target(name, options.device or backends.get(name).devices[0]) for name in options.backend or ()
    ]
    views += [_asked(target, batch, right) for target in targets]
    return scene.make(batch, right, views)


def _asked(target: Target, batch: Batch, specified: Outputs) -> scene.View:
    reason = backends.unavailable(target.backend, target.device)
    if reason is not None:
        raise CannotRunError(f"{target}: {reason}")
    answer = check.answer(target, batch, specified)
    right = PERMITTED[target.backend].right(batch, specified, answer.outputs)
    return scene.view(str(target), batch, right, answer.failures.get(0, answer.outputs))


def _made(options: argparse.Namespace) -> Batch:
    """Make the problem that `check` has at the same seed, family and point."""
    family = cases.FAMILIES[options.family or defaults.EXPLAINED_FAMILY]
    tokens = options.batch or defaults.EXPLAINED_BATCH
    seed = options.seed or 0
    renormalize = options.renormalize is not False
    if family is known.METADATA:
        raise _OptionError(f"--family: the calls of {family.name} lie at points of their own")
    if family.kind == "selection":
        if options.tile is not None or options.range is not None:
            raise _OptionError(
                f"--family: the calls of {family.name} have no metadata, so no tile and no range"
            )
        return cases.batch(family, seed, np.array([options.call or 0]), tokens, renormalize)
    if options.call is not None:
        raise _OptionError("--call is for a file, or for a family of calls without metadata")
    offset, count = options.range or defaults.EXPLAINED_RANGE
    numbers = (tokens, options.tile or defaults.EXPLAINED_TILE, offset, count)
    point = Points(*(np.array([number], np.int64) for number in numbers))
    return cases.batch(family, seed, point.index(), tokens, renormalize, point.ranges())
