"""Runs every `python -m oracle` line in the code blocks of a Markdown file; the first that fails ends it."""

import re
import shlex
import subprocess
import sys
from pathlib import Path


def commands(markdown: str) -> list[str]:
    """Return the `python -m oracle` lines of the fenced code blocks, without prompt or comment."""
    blocks = re.findall(r"^```[a-z]*\n(.*?)^```", markdown, re.MULTILINE | re.DOTALL)
    lines = (
        line.removeprefix("$ ").split("  #")[0].strip() for block in blocks for line in block.splitlines()
    )
    return [line for line in lines if line.startswith("python -m oracle")]


def main() -> int:
    """Run them all with this interpreter, in the current folder."""
    found = commands(Path(sys.argv[1]).read_text(encoding="utf-8"))
    if not found:
        print(f"{sys.argv[1]} shows no `python -m oracle` line", file=sys.stderr)
        return 1
    for line in found:
        print(f"+ {line}", flush=True)
        done = subprocess.run([sys.executable, *shlex.split(line)[1:]], check=False)
        if done.returncode != 0:
            print(f"README line `{line}` exited {done.returncode}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
