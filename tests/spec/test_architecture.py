"""One name says whose arithmetic the specification holds."""

import subprocess
import sys
from pathlib import Path
from shutil import copytree, ignore_patterns

from spec.constants import ARCHITECTURE, COEFFICIENTS_FILE

ROOT = Path(__file__).resolve().parents[2]


def test_both_versions_read_the_integers_of_the_named_architecture(tmp_path):
    copytree(ROOT / "spec", tmp_path / "spec", ignore=ignore_patterns("__pycache__"))
    constants = tmp_path / "spec" / "constants.py"
    text = constants.read_text(encoding="utf-8")
    constants.write_text(text.replace(f'"{ARCHITECTURE}"', '"sm_123"'), encoding="utf-8")
    rows = (tmp_path / "spec" / "data" / COEFFICIENTS_FILE).read_text().replace("rcp,77,", "rcp,77,1")
    (tmp_path / "spec" / "data" / "mufu_sm123.csv").write_text(rows)
    (tmp_path / "spec" / "data" / COEFFICIENTS_FILE).unlink()
    code = """
import numpy as np, spec, spec.scalar
from spec.constants import ARCHITECTURE
x = np.float32(1 + 77.5 / 128)
one, two = int(spec.rcp_approx(x).view(np.uint32)), spec.scalar.rcp_approx(int(x.view(np.uint32)))
print(ARCHITECTURE, one == two, one)
"""
    prints = [
        subprocess.run([sys.executable, "-c", code], cwd=folder, env={"PYTHONPATH": str(folder)},
                       capture_output=True, text=True, check=True).stdout.split()
        for folder in (ROOT, tmp_path)
    ]  # fmt: skip
    assert [each[:2] for each in prints] == [[ARCHITECTURE, "True"], ["sm_123", "True"]]
    assert prints[0][2] != prints[1][2]
