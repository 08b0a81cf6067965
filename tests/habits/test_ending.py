"""However a command ends, it says why in one line and leaves nothing half done."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from oracle.files import write_whole

ROOT = Path(__file__).resolve().parents[2]
RECORDED = str(ROOT / "docs" / "recorded")
CHECK = ("oracle", "check", "--backend", "spec", "--cases", "100000", "--jobs", "2", "--json", "out.json")
COMMANDS = {
    "check": CHECK,
    "check-in-one-process": ("oracle", "check", "--backend", "spec", "--cases", "100000", "--jobs", "1"),
    "check-with-a-page": (*CHECK, "--html", "out.html"),
    "mutants": ("oracle", "mutants", "--jobs", "2", "--json", "out.json"),
    "search": ("oracle", "search", "--backend", "spec", "--seconds", "600", "--jobs", "2"),
    "replay": ("oracle", "replay", RECORDED, "--backend", "cute,triton,spec", "--jobs", "2"),
    "explain": ("oracle", "explain", "--backend", "cute", "--svg", "out.svg"),
    "bench": ("oracle", "bench", "--part", "compile,verification", "--json", "out.json", "--plot", "out.svg"),
    "budget": ("oracle.bench.budget",),
}
LATE = ("check-with-a-page", "mutants", "bench")
"""What still runs seconds later, and is then in the midst of its work."""


def environment(folder):
    found = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    return found | {
        "PYTHONPATH": str(ROOT),
        "MUSESPARK_ROUTING_CACHE": str(folder / "cache"),
        "TMPDIR": str(folder / "temporary"),
    }


def started(folder, words):
    """Start a command in a folder of its own; return it as soon as it minds signals."""
    (folder / "temporary").mkdir()
    (folder / "here").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", *words],
        cwd=folder / "here",
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Tests that run in the background of a shell inherit a SIGINT that is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    while not minds_sigterm(process.pid):
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    return process


def minds_sigterm(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


def group(pid):
    """Return the processes of a session, those that are only waited for left out."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = stat.read_text().rpartition(") ")[2].split()[:4]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if session == str(pid) and state != "Z":
            found.append(int(stat.parent.name))
    return found


def ended(process, number, whole_group):
    """Send the signal; return exit code, output, the processes that are left, and the seconds it took."""
    start = time.monotonic()
    if whole_group:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    out, error = process.communicate(timeout=60)
    spent = time.monotonic() - start
    for _ in range(100):
        left = group(process.pid)
        if not left:
            break
        time.sleep(0.05)
    return process.returncode, out, error, left, spent


CASES = [(name, delay) for delay in (0.0, 0.7) for name in COMMANDS] + [(name, 3.0) for name in LATE]


@pytest.mark.parametrize(("name", "delay"), CASES)
def test_ctrl_c_ends_all_at_once_in_one_line_and_leaves_no_file(name, delay, tmp_path):
    process = started(tmp_path, COMMANDS[name])
    time.sleep(delay)
    code, out, error, left, spent = ended(process, signal.SIGINT, whole_group=True)
    if code == 0 and name in ("explain", "replay"):
        return  # done before the signal came
    assert (code, left) == (130, []), error
    assert error.endswith("interrupted\n")
    assert "Traceback" not in out + error
    assert spent < 20
    assert list((tmp_path / "here").iterdir()) == []
    assert [path for path in (tmp_path / "temporary").rglob("*") if path.is_file()] == []
    assert [path.name for path in (tmp_path / "cache").glob(".*")] == []


@pytest.mark.parametrize(
    ("name", "delay"), [("check", 0.0), ("check", 1.5), ("mutants", 3.0), ("bench", 1.5)]
)
def test_sigterm_to_the_command_alone_ends_its_workers_too(name, delay, tmp_path):
    process = started(tmp_path, COMMANDS[name])
    time.sleep(delay)
    code, out, error, left, _ = ended(process, signal.SIGTERM, whole_group=False)
    assert (code, left) == (143, []), error
    assert error.endswith("terminated\n")
    assert "Traceback" not in out + error
    assert list((tmp_path / "here").iterdir()) == []


READERS = {
    "explain": ("oracle", "explain"),
    "backends": ("oracle", "backends"),
    "mutants": ("oracle", "mutants", "--list", "--backend", "triton"),
    "help": ("oracle", "check", "--help"),
    "version": ("oracle", "--version"),
    "replay": ("oracle", "replay", RECORDED, "--backend", "spec", "--jobs", "1"),
}


@pytest.mark.parametrize("name", READERS)
def test_a_reader_that_has_gone_is_no_traceback(name, tmp_path):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", *READERS[name]], cwd=tmp_path, env=environment(tmp_path), stdout=write,
        stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    os.close(write)
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr
    assert "Broken pipe" not in done.stderr
    # Some versions of argparse themselves forgive a reader that has gone.
    assert done.returncode in ((0, 3) if name == "help" else (3,))


def test_a_full_disk_behind_the_output_is_one_line(tmp_path):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "oracle", "completion", "bash"], cwd=tmp_path, env=environment(tmp_path),
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 3
    assert done.stderr == "python -m oracle: cannot write: No space left on device\n"


def test_a_second_ctrl_c_does_not_cut_short_what_the_first_tidies_up(tmp_path):
    code = (
        "import sys, time\n"
        "from oracle.exits import ended\n"
        "def run():\n"
        "    try:\n"
        "        print('running', flush=True); time.sleep(60)\n"
        "    finally:\n"
        "        print('tidying', flush=True); time.sleep(1); print('tidied', flush=True)\n"
        "sys.exit(ended('it', run))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=environment(tmp_path), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert process.stdout is not None
    for word in ("running", "tidying"):
        assert process.stdout.readline() == f"{word}\n"
        process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=60)
    assert (process.returncode, out, error) == (130, "tidied\n", "interrupted\n")


@pytest.mark.parametrize("step", ["open", "fdopen", "replace"])
def test_an_interrupt_at_any_step_of_writing_leaves_the_old_file_and_no_other(step, tmp_path, monkeypatch):
    path = tmp_path / "out.json"
    write_whole(path, b"old")
    owner, name = (Path, "replace") if step == "replace" else (os, step)
    right = getattr(owner, name)

    def interrupted(*arguments, **options):
        if step != "replace":
            right(*arguments, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(owner, name, interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_import_is_not_interrupted_and_a_long_one_ends_the_process(tmp_path):
    """An exception in the start of a module of C++ would abort; one in `except ImportError` would be lost."""
    (tmp_path / "short.py").write_text(
        "import time; print('in', flush=True); time.sleep(0.4); print('through')"
    )
    (tmp_path / "long.py").write_text(
        "import time; print('in', flush=True); time.sleep(50); print('through')"
    )
    code = "import sys; from oracle.exits import ended; "
    code += "sys.exit(ended('it', lambda: __import__(sys.argv[1]) and 0))"
    for module, said in (("short", "through\n"), ("long", "")):
        process = subprocess.Popen(
            [sys.executable, "-c", code, module], cwd=tmp_path, env=environment(tmp_path), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "in\n"
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=30)
        assert (process.returncode, out, error) == (130, said, "interrupted\n")
