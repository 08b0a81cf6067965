"""A whole run on a pretended card: figures, refusals, targets, tables, JSON, drawing, exit codes."""

import gc
import json
import weakref
from xml.etree import ElementTree

import pytest

from oracle import cli, defaults, evidence
from oracle.bench import command, host_time, kernels, plot, prepare, tables, targets, timing, verification
from oracle.bench.figures import TRIES, Figure, figure, twice
from oracle.bench.points import BATCHES, TILES, Point, points
from oracle.card import bench, device
from oracle.report import Reporter

TIMES = {"cute": 1.0, "triton": 1.4, "vllm": 2.8, "torch": 21.0, "floor": 0.75, "wait": 0.5, "empty": 0.47}


class Made:
    """A subject whose graph is its point, and which is right."""

    def __init__(self, point):
        self.point = self.enqueue = point
        self.poison, self.differing = lambda: None, lambda: 0


class Saying(Reporter):
    """Keeps what is said."""

    def __init__(self, said):
        super().__init__()
        self.say = said.append


class PointClock:
    """Tells times by point: ``sample`` asks ``times(point, number of the sample of this point)``."""

    def __init__(self, times):
        self.times, self.taken, self.order = times, {}, []

    def capture(self, enqueue):
        return enqueue

    def synchronize(self):
        pass

    replay = busy = lambda self, *arguments: None

    def sample(self, point):
        self.taken[point] = self.taken.get(point, 0) + 1
        self.order.append(point)
        return [self.times(point, self.taken[point])] * 3


def natural(point, taken):
    return TIMES.get(point.kernel, 5.0) + 0.1 * (point.tile > 0) + 0.01 * point.batch


@pytest.fixture
def card(monkeypatch):
    """Pretend a card whose points take ``natural`` times; return a function that runs the kernels' part."""
    monkeypatch.setattr(kernels, "unavailable", lambda kernel: None)
    monkeypatch.setattr(kernels, "subject", lambda point: Made(point))

    def run(times=natural, wanted=None):
        said = []
        clock = PointClock(times)
        return kernels.measure(Saying(said), wanted, clock), said, clock

    return run


def test_all_points_are_measured_once_before_any_is_measured_again(card):
    found, _, clock = card()
    half = len(points())
    assert clock.order == points() * 2
    assert len(found.figures) == half
    assert all(one.spread == 0 for one in found.figures.values())


def test_two_measurements_within_five_percent_give_the_median_of_both():
    one = figure("us", [1.0, 1.02, 1.04], [1.04, 1.06, 1.08])
    assert one.refused is None
    assert one.value == pytest.approx(1.04)
    assert one.spread == pytest.approx(0.04 / 1.02)
    assert one.record()["median"] == pytest.approx(1.04)


@pytest.mark.parametrize(
    ("second", "refused"), [(1.0499, False), (0.953, False), (1.0501, True), (0.94, True)]
)
def test_two_measurements_further_apart_than_five_percent_are_refused_with_the_reason(second, refused):
    one = figure("us", [1.0], [second])
    assert (one.refused is not None) == refused
    assert (one.value is None) == refused
    assert ("median" in one.record()) != refused
    if refused:
        assert f"measured 1 and {second:.4g} us" in one.refused


def test_a_pair_that_does_not_agree_is_measured_anew_as_a_pair():
    samples = iter([1.0, 2.0, 3.0, 3.0])
    told = []
    found = twice(["x"], lambda key: [next(samples)], "us", lambda key, one: told.append(one.tries))
    assert (found["x"].first, found["x"].second, found["x"].tries) == (3.0, 3.0, 2)
    assert told == [2]


def test_a_pair_that_never_agrees_is_refused_after_the_last_try():
    samples = iter(range(1, 100))
    found = twice(["x"], lambda key: [float(2 ** next(samples))], "us")
    assert found["x"].tries == TRIES
    assert "100.0% apart" in found["x"].refused


def test_a_refused_figure_is_in_no_table_and_no_target(card):
    unsteady = Point("cute", 4)

    def times(point, taken):
        return 1.0 + taken if point == unsteady else natural(point, taken)

    found, said, _ = card(times)
    record = {"kernels": found.records(), "targets": [goal.record() for goal in targets.of_kernels(found)]}
    assert sum("refused" in line for line in said) == 1
    (line,) = tables.refusals(record)
    assert line.startswith("kernels: cute, natural, 0, 4: refused: measured 6 and 7 us, 16.7% apart")
    plain = tables.tables(record)[0]
    assert plain.rows[0][:5] == ("CuTe DSL", "1.01", "1.02", "refused", "1.08")
    assert record["targets"][0]["reached"] == ["target", "target", "no figure", "target"]
    assert plot.panels(record)[0].lines["cute"][2] is None


def test_targets_are_judged_by_their_rivals_of_the_same_run(card):
    goals = {goal.what: goal for goal in targets.of_kernels(card()[0])}
    assert goals["cute, no metadata, us"].reached() == ("target",) * 4
    assert goals["cute, tile 64, us"].reached() == ("stretch",) * 4
    assert goals["triton, no metadata, us"].target == pytest.approx(
        [0.75 * (2.8 + 0.01 * b) for b in BATCHES]
    )
    assert goals["triton, tile 8, us"].target == (2.6,) * 4
    assert goals["triton, tile 8, us"].stretch == pytest.approx([1.2 * (1.1 + 0.01 * b) for b in BATCHES])
    assert goals["cute, no metadata, ties, us"].reached() == ("stretch",) * 4


def test_a_stretch_above_a_missed_target_is_missed():
    goal = targets.Goal("", (2.0,), (1.5,), (2.5,))
    assert goal.reached() == (targets.MISSED,)


def test_a_rival_that_is_missing_leaves_its_targets_open(card, monkeypatch):
    monkeypatch.setattr(kernels, "unavailable", lambda kernel: "not here" if kernel == "vllm" else None)
    found, said, _ = card()
    assert found.left_out == {"vllm": "not here"}
    assert said[0] == "vllm: not measured: not here"
    goals = {goal.what: goal for goal in targets.of_kernels(found)}
    assert goals["triton, no metadata, us"].reached() == (targets.NO_RIVAL,) * 4


def test_wrong_words_of_ours_are_counted_and_those_of_others_told(card, monkeypatch):
    def subject(point):
        wrong = 3 if point.kernel in ("cute", "vllm") and point.batch == 1 and not point.tile else 0
        one = Made(point)
        one.differing = lambda: wrong
        return one

    monkeypatch.setattr(kernels, "subject", subject)
    found, said, _ = card(wanted=[Point("cute", 1), Point("cute", 2), Point("vllm", 1)])
    assert found.wrong == {Point("cute", 1): 3}
    assert sum("3 output words are not as they must be" in line for line in said) == 2


@pytest.mark.parametrize("wrong", [(4, 0), (0, 4)], ids=["only-before", "only-after"])
def test_wrong_words_before_or_after_the_timing_count(card, monkeypatch, wrong):
    def subject(point):
        one = Made(point)
        answers = iter(wrong)
        one.differing = lambda: next(answers)
        return one

    monkeypatch.setattr(kernels, "subject", subject)
    assert card(wanted=[Point("triton", 1)])[0].wrong == {Point("triton", 1): 4}


def test_what_a_graph_points_to_lives_until_its_last_replay(card, monkeypatch):
    alive = {}

    def subject(point):
        one = Made(point)
        alive[point] = weakref.ref(one)
        return one

    def times(point, taken):
        gc.collect()
        assert alive[point]() is not None
        return 1.0

    monkeypatch.setattr(kernels, "subject", subject)
    found, _, _ = card(times, wanted=[Point("cute", 1), Point("cute", 2)])
    assert len(found.figures) == 2


@pytest.fixture
def everything(card, monkeypatch):
    """Let the command run all parts on a pretended card; return the record that the parts get."""
    monkeypatch.setattr(device, "missing", lambda: None)
    monkeypatch.setattr(timing, "Clock", lambda: PointClock(natural))
    host = {
        ("cute", 0, "route"): Figure("us", 5, 5.1, 5.05),
        ("triton", 8, "route"): Figure("us", 10, 10, 10),
    }
    monkeypatch.setattr(host_time, "measure", lambda reporter: host)
    seconds = {
        (kernel, state): Figure("s", 1, 1, 1) for kernel in ("cute", "triton") for state in ("cold", "warm")
    }
    monkeypatch.setattr(prepare, "measure", lambda task, reporter: seconds)
    rates = {("simulator", "launches/s"): Figure("launches/s", 1000, 1001, 1000)}
    monkeypatch.setattr(verification, "measure", lambda reporter: rates)
    return host


def test_the_command_prints_every_table_and_writes_the_record_and_the_drawing(everything, tmp_path, capsys):
    file, drawing = tmp_path / "bench.json", tmp_path / "bench.svg"
    assert cli.main(["bench", "--json", str(file), "--plot", str(drawing)]) == 0
    said = capsys.readouterr().out
    record = json.loads(file.read_text())
    assert record["verdict"] == "pass"
    assert record["launches"] == len(points()) * 2 * timing.REPLAYS * timing.LAUNCHES
    assert record["parts"] == list(defaults.BENCH_PARTS)
    for title in (
        "No metadata",
        "With metadata",
        "equal keys",
        "Ratios",
        "Host",
        "Seconds",
        "verification",
        "Targets",
    ):
        assert title in said
    host = {goal["what"]: goal["reached"] for goal in record["targets"] if "host" in goal["what"]}
    assert host == {
        "host, cute, no metadata, us a call": ["target"],
        "host, triton, tile 8, us a call": ["missed"],
    }
    cold = {goal["what"]: goal["reached"] for goal in record["targets"] if "prepare" in goal["what"]}
    assert cold["prepare, cute, cold caches, s"] == ["target"]
    assert cold["prepare, triton, warm caches, s"] == ["missed"]
    assert (
        said.strip().splitlines()[-1].startswith("PASS: 3,792,000 launches timed, 0 wrong words, 0 figures")
    )
    root = ElementTree.fromstring(drawing.read_text())
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"CuTe DSL", "Triton", "vLLM (Triton)", "FlashInfer", "floor", "no metadata"} <= set(texts)


def test_a_refused_figure_of_a_kernel_fails_the_run(everything, monkeypatch, capsys):
    clock = PointClock(lambda point, taken: float(taken) if point == Point("vllm", 8) else 1.0)
    monkeypatch.setattr(timing, "Clock", lambda: clock)
    assert cli.main(["bench", "--part", "kernels"]) == 1
    said = capsys.readouterr().out
    assert "kernels: vllm, natural, 0, 8: refused: measured 5 and 6 us" in said
    assert said.strip().splitlines()[-1].startswith("FAIL: ")


def test_a_refused_figure_of_the_host_is_told_and_fails_nothing(everything, capsys):
    everything["cute", 0, "route"] = Figure("us", 5, 6, 5.5)
    assert cli.main(["bench", "--part", "host"]) == 0
    said = capsys.readouterr().out
    assert "host_time: cute, 0, route: refused: measured 5 and 6 us" in said
    assert "1 figures refused; 0 of 2 targets reached" in said


def test_wrong_words_fail_the_run(everything, card, monkeypatch):
    def subject(point):
        one = Made(point)
        one.differing = lambda: int(point == Point("triton", 8, 256))
        return one

    monkeypatch.setattr(kernels, "subject", subject)
    assert cli.main(["bench", "--part", "kernels"]) == 1


def test_what_was_measured_before_a_part_failed_is_on_disk(everything, monkeypatch, tmp_path):
    def broken(task, reporter):
        raise command.CannotRunError("no process")

    monkeypatch.setattr(prepare, "measure", broken)
    file = tmp_path / "bench.json"
    assert cli.main(["bench", "--json", str(file)]) == 3
    record = json.loads(file.read_text())
    assert record["verdict"] == "fail"
    assert len(record["kernels"]) == len(points())
    assert len(record["host_time"]) == 2


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--part", "kernels"], 3, "kernels: "),
        (["--part", "nonsense"], 2, "no part 'nonsense'"),
        (
            ["--part", "verification", "--json", "no/such/folder/x.json"],
            2,
            "--json: no folder no/such/folder",
        ),
        (["--part", "verification", "--plot", "no/such/folder/x.svg"], 2, "--plot: no folder"),
    ],
)
def test_what_cannot_run_says_why(arguments, code, words, monkeypatch, capsys):
    monkeypatch.setattr(device, "missing", lambda: "there is no card")
    if words.startswith("no part"):  # argparse ends the program itself
        with pytest.raises(SystemExit, match=str(code)):
            cli.main(["bench", *arguments])
    else:
        assert cli.main(["bench", *arguments]) == code
    assert words in capsys.readouterr().err


def test_a_drawing_of_nothing_says_so():
    assert plot.svg({}).count("not measured") == 3


def test_tables_have_as_many_cells_in_every_row(card):
    found = card()[0]
    record = {"kernels": found.records(), "targets": [goal.record() for goal in targets.of_kernels(found)]}
    for table in tables.tables(record):
        assert {len(row) for row in table.rows} == {len(table.head)}, table.title
        assert table.markdown().count("\n") == len(table.rows) + 3
    metadata = tables.tables(record)[1]
    assert len(metadata.rows) == 5 * len(TILES)


def test_on_the_card_the_record_goes_to_the_evidence_with_what_it_was_measured_on(
    everything, monkeypatch, tmp_path
):
    monkeypatch.setattr(evidence, "host", lambda: {"card": "pretended", "driver": "1"})
    write = evidence.write
    monkeypatch.setattr(evidence, "write", lambda name, record: write(name, record, tmp_path))
    also = tmp_path / "also"
    also.mkdir()
    assert bench.main(["--json", str(also / "x.json"), "--part", "kernels,host"]) == 0
    (entry,) = evidence.entries(tmp_path)
    _, record = entry
    assert record["host"] == {"card": "pretended", "driver": "1"}
    assert record["versions"]["numpy"]
    assert len(record["host_time"]) == 2
    assert json.loads((also / "x.json").read_text())["kernels"] == record["kernels"]
    assert "| pretended | 3,792,000 | 0 | pass |" in evidence.table(tmp_path)


def test_on_a_machine_without_a_card_nothing_goes_to_the_evidence(monkeypatch, tmp_path):
    monkeypatch.setattr(device, "missing", lambda: "there is no card")
    monkeypatch.setattr(evidence, "write", None)
    assert bench.main(["--part", "kernels"]) == 3
