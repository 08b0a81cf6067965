"""Judges the functions of the door on a pretended machine: every rule on arguments, every recorded launch."""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, Final

from oracle.mutants import repeats
from oracle.mutants.calls import TILE, arguments, right_calls, wrong_calls
from oracle.mutants.judging import NoticedError, call, check_launch, check_scratch, device, must, refused
from oracle.mutants.pretended import Machine, in_threads

_PREPARED: Final = [(False, True, False), (True, True, False)]


def noticed(backend: str) -> str | None:
    """Return the first check that the host functions of ``backend`` fail, None if they pass all.

    Parameters
    ----------
    backend
        ``cute`` or ``triton``, whose package is imported as it is found.
    """
    for check in _CHECKS:
        machine = Machine(backend)
        try:
            check(machine)
        except NoticedError as failure:
            return f"{check.__name__[1:].replace('_', ' ')}: {failure}"
        except Exception as error:
            return f"{check.__name__[1:].replace('_', ' ')}: {type(error).__name__}: {error}"
    return None


def _right_calls_launch_what_they_say(machine: Machine) -> None:
    host = machine.host()
    for number, (change, numbers) in enumerate([*right_calls()] * 2):
        given = call(**change)
        before = len(machine.launched)
        must(host.route(**given) is None, "route returns something")
        must(len(machine.launched) == before + 1, f"{len(machine.launched) - before} launches")
        check_launch(machine.launched[-1], given, numbers, f"right call {number}")
    must(len(machine.built) == 6, f"{len(machine.built)} compilations of six variants")


def _wrong_calls_are_named_and_launch_nothing(machine: Machine) -> None:
    host = machine.host()
    for name, wrong in wrong_calls().items():
        refused(machine, host, call(**wrong.change), (wrong.begins, *wrong.says), name)
        # The device comes last: no card at all, and still the rule is named.
        elsewhere = arguments(wrong.change, device(kind="cpu"))
        refused(machine, host, elsewhere, (wrong.begins, *wrong.says), f"{name}, on the CPU")


def _tensors_of_another_device_are_named(machine: Machine) -> None:
    host = machine.host()
    tensors = ("logits", "bias", "ids", "weights", "metadata")
    for name in tensors:
        other = arguments({}, device(1))[name]
        seen = "bias" if name == "logits" else name
        home = "cuda:1" if name == "logits" else "cuda:0"
        away = "cuda:0" if name == "logits" else "cuda:1"
        says = (f"{seen} must be on the device of logits, {home}, not on {away}",)
        refused(machine, host, {**call(), name: other}, says, f"{name} on another card")
        on_cpu = arguments({}, device(kind="cpu"))[name]
        away_says = (f"{name} must be on ", "not on cpu")
        refused(machine, host, {**call(), name: on_cpu}, away_says, f"{name} on the CPU")
    whole = arguments({}, device(kind="cpu"))
    refused(machine, host, whole, ("logits must be on a cuda device, not on cpu",), "all on the CPU")
    plain = {**call(metadata=None), "weights": arguments({}, device(1))["weights"]}
    refused(machine, host, plain, ("weights must be on the device of logits",), "weights away, no metadata")


def _the_call_has_its_defaults(machine: Machine) -> None:
    host = machine.host()
    given = call(metadata=None)
    host.route(given["logits"], given["bias"], given["ids"], given["weights"], 1.0)
    numbers = {"scale": 1.0, "renormalize": True, "offset": 0, "count": 0, "tile": 0}
    check_launch(machine.launched[-1], given, numbers, "defaults")
    # Without a range, metadata has the defaults 0, 0 and 0: no experts and no tile.
    given = call()
    for name in ("local_expert_offset", "num_local_experts", "tile_n"):
        rest = {key: value for key, value in given.items() if key != name}
        if name == "local_expert_offset":
            host.route(**rest)
            check_launch(machine.launched[-1], given, {"offset": 0}, "default offset")
        else:
            refused(Machine(machine.backend), host, rest, (f"{name} must be ",), f"no {name}")


def _route_runs_on_the_device_of_its_tensors(machine: Machine) -> None:
    host = machine.host()
    for index in (2, 0, 2):
        for change in ({}, {"metadata": None}, {"renormalize": False}):
            given = call(index, **change)
            numbers = {} if given["metadata"] is not None else {"offset": 0, "count": 0, "tile": 0}
            host.route(**given)
            check_launch(machine.launched[-1], given, numbers, f"device {index}")
            must(machine.current == 0, "the current device has changed")
    devices = [built.device for built in machine.built]
    must(devices == [2, 2, 2, 0, 0, 0], f"compiled on {devices}")
    arches = ["sm_103a"] * 3 + ["sm_90a"] * 3
    must([built.arch for built in machine.built] == arches, "compiled for another architecture")


def _prepare_leaves_nothing_to_compile_or_load(machine: Machine) -> None:
    host = machine.host()
    must(host.prepare() is None, "prepare returns something")
    must([built.variant for built in machine.built] == _PREPARED, f"prepared {machine.built}")
    must({built.arch for built in machine.built} == {"sm_90a"}, "prepared for another architecture")
    loaded, ran = len(machine.loaded), list(machine.launched)
    must(loaded == 2 or [launch["variant"] for launch in ran] == _PREPARED, "a variant is not loaded")
    for launch in ran:
        check_scratch(launch)
    must(set(machine.scratch) <= {"cuda"}, "scratch tensors are not on the device")
    host.prepare(renormalize=True)
    machine.capturing = True
    host.prepare(True)
    for metadata in (False, True):
        host.route(**(call() if metadata else call(metadata=None)))
    must(len(machine.built) == 2 and len(machine.loaded) == loaded, "prepared variants are compiled again")
    must(len(machine.launched) == len(ran) + 2, "prepared variants are run again")
    machine.capturing = False
    host.prepare(False)
    host.prepare(True, True)
    host.prepare(renormalize=False, early_dependents=True)
    asked = [
        (metadata, *two)
        for two in ((False, False), (True, True), (False, True))
        for metadata in (False, True)
    ]
    must([built.variant for built in machine.built[2:]] == asked, f"prepared {machine.built[2:]}")
    machine.current = 1
    host.prepare(False)
    must([built.device for built in machine.built[8:]] == [1, 1], "the other device is not prepared")
    must(machine.backend == "cute" or len(machine.loaded) == 10, "the other device is not loaded")


def _nothing_is_compiled_or_loaded_during_a_capture(machine: Machine) -> None:
    asked: tuple[Callable[[Any, bool, bool], Any], ...] = (
        lambda host, sums, early: host.route(**call(renormalize=sums, early_dependents=early)),
        lambda host, sums, early: host.prepare(sums, early),
        lambda host, sums, early: host.compile_routing(True, sums, early_dependents=early),
        lambda host, sums, early: host.compiled_routing(True, sums, early),
    )
    for ask, (sums, early) in product(asked, ((True, False), (False, True))):
        host = machine.host()
        machine.capturing = True
        _captured(partial(ask, host, sums, early), f"prepare(renormalize={sums}, early_dependents={early})")
        must(
            not machine.built and not machine.launched and not machine.loaded,
            "something is compiled or launched",
        )
    host = machine.host()
    machine.capturing = False
    for variant in _PREPARED:
        host.compiled_routing(*variant)
    machine.capturing = True
    if not machine.loaded:
        _captured(host.prepare, "prepare(renormalize=True, early_dependents=False)")
    must(not machine.launched, "prepare runs kernels during a capture")
    machine.capturing = False
    host.prepare()
    must(bool(machine.loaded) or len(machine.launched) == 2, "prepare loads nothing after compiled_routing")


def _captured(ask: Callable[[], Any], way_out: str) -> None:
    try:
        ask()
    except RuntimeError as error:
        says = ("a CUDA graph is being captured", f"call {way_out} before the capture")
        must(all(part in str(error) for part in says), f"a capture is refused as: {error}")
    else:
        raise NoticedError("a capture is not refused")


def _a_variant_is_compiled_once(machine: Machine) -> None:
    host = machine.host()
    routings = in_threads(8, lambda: host.compiled_routing(True, False))
    must(len(routings) == 8 and len(set(map(id, routings))) == 1, "threads get different routines")
    must(len(machine.built) == 1, f"eight threads compile {len(machine.built)} times")
    must(host.compiled_routing(True, False) is routings[0], "compiled anew")
    for other in ((False, False), (True, True), (True, False, True)):
        must(host.compiled_routing(*other) is not routings[0], f"{other} is another variant")
    in_threads(4, lambda: host.compile_routing(True, False))
    must(machine.backend == "cute" or machine.most_at_once == 1, "the compiler is run by two threads at once")
    machine.current = 2
    must(host.compiled_routing(True, False) is not routings[0], "two devices share a routine")
    given = call(2)
    host.compiled_routing(True, False)(
        *(given[name] for name in ("logits", "bias", "ids", "weights", "metadata")), 2.5, 64, 32, TILE
    )
    check_launch(machine.launched[-1], {**given, "renormalize": False}, {}, "compiled_routing")


def _compile_routing_compiles_anew_with_its_options(machine: Machine) -> None:
    host = machine.host()
    cute = machine.backend == "cute"
    options = "--generate-line-info" if cute else "maxnreg=64"
    first, second = host.compile_routing(True, False, options), host.compile_routing(True, False, options)
    must(first is not second, "not compiled anew")
    host.compile_routing(False, True)
    host.compile_routing(False, True, early_dependents=True)
    must(
        [built.variant for built in machine.built]
        == [(True, False, False)] * 2 + [(False, True, False), (False, True, True)],
        "another variant",
    )
    must(all(built.arch == "sm_90a" for built in machine.built), "for another architecture")
    if cute:
        words = [built.options.split() for built in machine.built]
        must([options in given for given in words] == [True, True, False, False], "the options are lost")
        host.compile_routing(False, True, "--gpu-arch=sm_120a")
        must(
            machine.built[-1].options.count("--gpu-arch") == 1 and machine.built[-1].arch == "sm_120a",
            "two architectures",
        )
    else:
        given_options = [built.options for built in machine.built]
        must(given_options == [options, options, "", ""], "the options are lost")
    given = call()
    first(*(given[name] for name in ("logits", "bias", "ids", "weights", "metadata")), 2.5, 64, 32, TILE)
    check_launch(machine.launched[-1], {**given, "renormalize": False}, {}, "compile_routing")
    machine.current = 2
    host.compile_routing(True, True)
    must(machine.built[-1].arch == "sm_103a", "not for the current device")


def _a_variant_is_named_by_bools(machine: Machine) -> None:
    host = machine.host()
    host.compiled_routing(True, True)
    built = len(machine.built)
    for function in (host.compile_routing, host.compiled_routing):
        for metadata, renormalize, name in (
            (1, True, "metadata"), (None, True, "metadata"), (True, 1, "renormalize"),
            (True, 0, "renormalize"),
            (False, "yes", "renormalize"), (0, False, "metadata"),
        ):  # fmt: skip
            wrong = metadata if name == "metadata" else renormalize
            text = f"{name} must be a bool, not {wrong!r}"
            _not_bool(partial(function, metadata, renormalize), text)
    for wrong in (1, None, "yes"):
        _not_bool(partial(host.prepare, wrong), f"renormalize must be a bool, not {wrong!r}")
        text = f"early_dependents must be a bool, not {wrong!r}"
        for function in (host.prepare, host.compile_routing, host.compiled_routing):
            needed = (True,) if function is host.prepare else (True, True)
            _not_bool(partial(function, *needed, early_dependents=wrong), text)
    must(len(machine.built) == built and not machine.launched, "something is compiled or launched")


def _not_bool(ask: Callable[[], Any], text: str) -> None:
    try:
        ask()
    except ValueError as error:
        must(str(error) == text, f"refused as: {error}")
    else:
        raise NoticedError(f"accepted: {text}")


def _without_a_device_it_compiles_for_sm_90a(machine: Machine) -> None:
    for capturing in (False, None):
        machine = Machine(machine.backend, devices=0, capturing=capturing)
        host = machine.host()
        host.prepare(False)
        must(host.compiled_routing(True, False) is host.compiled_routing(True, False), "compiled anew")
        host.compile_routing(True, True)
        variants = [(False, False, False), (True, False, False), (True, True, False)]
        must([built.variant for built in machine.built] == variants, f"compiled {machine.built}")
        must([built.arch for built in machine.built] == ["sm_90a"] * 3, "not for sm_90a")
        must(not machine.launched and not machine.loaded, "loaded without a device")


def _a_kernel_that_cannot_be_loaded_is_told(machine: Machine) -> None:
    if machine.backend == "cute":
        return
    host = machine.host()
    machine.load_status = 209
    try:
        host.prepare()
    except RuntimeError as error:
        must("CUDA cannot load the kernel" in str(error) and "209" in str(error), f"told as: {error}")
    else:
        raise NoticedError("accepted")
    host = machine.host()
    library = object()
    host.ctypes.CDLL = lambda name: library  # an older driver
    host.prepare()
    must(len(machine.built) >= 3, "an older driver is refused")


_CHECKS: Final[tuple[Callable[[Machine], None], ...]] = (
    _right_calls_launch_what_they_say,
    _wrong_calls_are_named_and_launch_nothing,
    _tensors_of_another_device_are_named,
    _the_call_has_its_defaults,
    _route_runs_on_the_device_of_its_tensors,
    _prepare_leaves_nothing_to_compile_or_load,
    _nothing_is_compiled_or_loaded_during_a_capture,
    _a_variant_is_compiled_once,
    _compile_routing_compiles_anew_with_its_options,
    _a_variant_is_named_by_bools,
    _without_a_device_it_compiles_for_sm_90a,
    _a_kernel_that_cannot_be_loaded_is_told,
    *repeats.CHECKS,
)
