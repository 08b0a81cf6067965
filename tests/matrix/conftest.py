"""A package index of wheels with nothing in them, so that pip has what to install without a network."""

import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Release a package of one module, where pip finds it; it finds nothing else."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    alone = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_CONFIG_FILE": os.devnull}
    for name, value in alone.items():
        monkeypatch.setenv(name, value)

    def make(name: str, version: str, module: str = "") -> None:
        plain = name.replace("-", "_")
        info = f"{plain}-{version}.dist-info"
        with zipfile.ZipFile(folder / f"{plain}-{version}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{plain}.py", module)
            wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")

    return make
