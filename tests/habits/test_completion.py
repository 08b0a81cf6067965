"""Completion: what bash, zsh and fish really offer, for the commands, the tools and the scripts."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from oracle import backends, cases
from oracle.commands import completion, parsers

ROOT = Path(__file__).resolve().parents[2]
CASES = {
    "commands": ("python -m oracle ", [name for name in parsers.COMMANDS if name]),
    "a-command": ("python -m oracle che", ["check"]),
    "a-module": ("python -m oracle.card.s", ["oracle.card.sanitize", "oracle.card.sweep"]),
    "options": ("python -m oracle check --ba", ["--backend", "--batch"]),
    "options-where-no-word-fits": ("python -m oracle search --se", ["--seconds", "--seed"]),
    "backends": ("python -m oracle check --backend ", [*backends.names()]),
    "a-list": ("python -m oracle check --backend cute,tri", ["cute,triton"]),
    "families": ("python -m oracle explain --family ", [*cases.FAMILIES]),
    "choices": ("python -m oracle check --device ", ["sim", "cuda", "cpu"]),
    "parts-of-a-bench": ("python3 -m oracle bench --part ve", ["verification"]),
    "shells": ("python -m oracle completion ", ["bash", "zsh", "fish"]),
    "what-is-free": ("python -m oracle check --batch ", []),
    "after-an-interpreter's-option": ("python -X dev -m oracle mutants --li", ["--list"]),
    "the-entry-point": ("musespark-routing replay --ca", ["--call"]),
    "a-tool": ("python -m oracle.card.sanitize --tool race", ["racecheck"]),
    "a-tool-by-its-script": ("ci/gpu sweep --mi", ["--minutes"]),
    "the-words-of-a-script": ("ci/gpu sa", ["sanitize"]),
    "the-main-job": ("./ci/check --fam", ["--family"]),
}
FILES = ("python -m oracle replay do", "python -m oracle check --json do")


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    folder = tmp_path_factory.mktemp("completion")
    for shell in parsers.SHELLS:
        (folder / shell).write_text(completion.script(shell), encoding="utf-8")
    return folder


def offered(shell, script, line, folder):
    """Ask a shell what it offers at the end of the line."""
    if shell == "fish":
        code = f"source {script / shell}; complete -C {shlex.quote(line)}"
        said = subprocess.run(
            ["fish", "-c", code], cwd=folder, capture_output=True, text=True, check=True,
            env={"HOME": str(folder), "PATH": os.environ["PATH"], "TERM": "dumb"},
        ).stdout  # fmt: skip
        return [word.split("\t")[0] for word in said.splitlines()]
    words = line.split(" ")
    code = f"""
        source {script / shell}
        COMP_WORDS=({shlex.join(words)}) COMP_CWORD={len(words) - 1}
        function=$(complete -p {words[0]}) && function=${{function##* -F }}
        ${{function%% *}}
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    said = subprocess.run(
        ["bash", "--norc", "-c", code], cwd=folder, capture_output=True, text=True, check=True
    )
    assert said.stderr == ""
    return [word for word in said.stdout.splitlines() if word]


@pytest.mark.parametrize("case", CASES)
def test_bash_offers(case, script, tmp_path):
    line, words = CASES[case]
    assert offered("bash", script, line, tmp_path) == words


@pytest.mark.parametrize("line", FILES)
def test_bash_offers_files(line, script, tmp_path):
    (tmp_path / "docs").mkdir()
    assert offered("bash", script, line, tmp_path) == ["docs"]


def test_bash_offers_no_word_of_a_list_twice(script, tmp_path):
    words = offered("bash", script, "python -m oracle check --backend cute,", tmp_path)
    assert words == [f"cute,{name}" for name in backends.names() if name != "cute"]


def test_bash_completes_other_uses_of_python_as_before(script, tmp_path):
    code = f"_mine() {{ COMPREPLY=(mine); }}; complete -F _mine python; source {script / 'bash'}; "
    code += 'COMP_WORDS=(python "") COMP_CWORD=1; _musespark_routing_python; echo "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "--norc", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "mine\n"


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize("case", [case for case in CASES if case != "a-module"])  # fish has its own there
def test_fish_offers(case, script, tmp_path):
    line, words = CASES[case]
    (tmp_path / "ci").symlink_to(ROOT / "ci")  # fish looks at what the command is
    assert sorted(offered("fish", script, line, tmp_path)) == sorted(words)


TABS = {
    ".venv/bin/python -m oracle che": "ck ",
    "python -m oracle check --device s": "im",
    "ci/gpu swe": "ep ",
    "ci/check --backend tri": "ton",
}
STARTS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "source {script}"),
    "zsh": (["zsh", "-f", "-i"], "autoload -U compinit; compinit -D; source {script}"),
}


@pytest.mark.parametrize("shell", STARTS)
def test_a_tab_completes(shell, script, terminal, tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    command, start = STARTS[shell]
    one = terminal(*command, TERM="dumb", PS1="> ", INPUTRC="/dev/null", HOME=str(tmp_path))
    one.send(f"{start.format(script=script / shell)}\n")
    for line, rest in TABS.items():
        one.send("echo 'rea''dy'\n")
        one.until(lambda seen: "ready\n" in seen.replace("\r", ""))
        one.seen = ""
        one.send(f"{line}\t")
        one.until(lambda seen, expected=f"{line}{rest}": expected in seen)
        one.send("\x15")  # takes the line back
