"""One failing input as a file: saved by `check`, run again by `replay`."""

import io
import re
import zipfile
from pathlib import Path
from typing import Any, Final

import numpy as np

from oracle.files import write_whole
from oracle.outcome import Finding
from oracle.plan import Target
from oracle.problem import LARGEST_STRIDE, Batch, Outputs, Ranges
from spec.constants import MAX_TOKENS, NUM_EXPERTS, ROW_STRIDE_MULTIPLE, TOP_K
from spec.contract import check_range
from spec.layout import metadata_size

_FORMAT: Final = 1


class ReplayFileError(ValueError):
    """The file is not there, or not a replay file; the message is one line that names it."""


def save(finding: Finding, folder: Path) -> Path:
    """Write the finding's target, inputs and right outputs into ``folder``; return the file's path."""
    batch, expected = finding.batch, finding.expected
    arrays: dict[str, Any] = {
        "format": np.int64(_FORMAT),
        "backend": np.array(finding.target.backend),
        "device": np.array(finding.target.device),
        "family": np.array(batch.family),
        "seed": np.array(str(batch.seed)),
        "index": np.zeros(0, np.int64) if batch.index is None else batch.index,
        # As words, so that no NaN is touched on the way.
        "logits": batch.logits.view(np.uint32),
        "bias": batch.bias.view(np.uint32),
        "scale": batch.scale.view(np.uint32),
        "renormalize": np.bool_(batch.renormalize),
        "row_stride": batch.row_stride,
        "shift": np.array(batch.shift, np.int64),
        "expected_ids": expected.ids,
        "expected_weights": expected.weights.view(np.uint32),
    }
    if batch.ranges is not None and expected.metadata is not None:
        arrays["ranges"] = np.stack([batch.ranges.offset, batch.ranges.count, batch.ranges.tile])
        arrays["expected_metadata"] = expected.metadata
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    path = folder / f"{_name(finding)}.npz"
    write_whole(path, content.getvalue())
    return path


def _name(finding: Finding) -> str:
    batch = finding.batch
    parts = [finding.target.backend, finding.target.device, batch.family, f"b{batch.tokens}"]
    if batch.ranges is not None:
        offset, count, tile = (
            int(part[0]) for part in (batch.ranges.offset, batch.ranges.count, batch.ranges.tile)
        )
        parts.append(f"tile{tile}-experts{offset}+{count}")
    elif batch.index is not None:
        parts.append(f"number{int(batch.index[0])}")
    parts += ["renormalize"] if batch.renormalize else []
    parts.append(f"seed{batch.seed}")
    return re.sub(r"[^A-Za-z0-9+-]", "", "-".join(parts))


def is_saved(path: Path) -> bool:
    """Whether the file is an archive that `save` made, as far as the names in it tell."""
    try:
        with zipfile.ZipFile(path) as archive:
            return "format.npy" in archive.namelist()
    except Exception:  # no archive, or a damaged one: what zipfile raises on that is not a closed list
        return False


def load(path: Path) -> tuple[Target, Batch, Outputs]:
    """Read a replay file: the target, the batch of one problem, the right outputs.

    Raises
    ------
    ReplayFileError
        There is no such file, or it is cut off, damaged, pickled, or not a replay file.
    """
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except OSError as error:
        raise ReplayFileError(f"cannot read {path}: {error.strerror or error}") from error
    except (
        ValueError,
        EOFError,
        zipfile.BadZipFile,
        zipfile.LargeZipFile,
        AttributeError,
        KeyError,
        TypeError,
    ) as error:
        raise ReplayFileError(f"{path} is no replay file, or is damaged: {_first_line(error)}") from error
    except Exception as error:
        # NumPy parses headers and deflate streams; what they raise on damage is not a closed list.
        raise ReplayFileError(f"{path} is damaged: {_first_line(error)}") from error
    try:
        return _parsed(arrays)
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise ReplayFileError(f"{path} is no replay file of this version: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _parsed(arrays: dict[str, Any]) -> tuple[Target, Batch, Outputs]:
    def array(name: str, dtype: Any, *shape: int) -> Any:
        found = arrays.pop(name)
        if found.dtype != dtype or found.shape != shape:
            raise ValueError(
                f"{name} is {found.dtype}{list(found.shape)}, not {np.dtype(dtype)}{list(shape)}"
            )
        return found

    if int(arrays.pop("format")) != _FORMAT:
        raise ValueError(f"its format is not {_FORMAT}")
    tokens = arrays["logits"].shape[1]
    if not 1 <= tokens <= MAX_TOKENS:
        raise ValueError(f"logits have {tokens} rows, not 1..{MAX_TOKENS}")
    ranges, metadata = None, None
    if "ranges" in arrays:
        ranges = Ranges(*array("ranges", np.int32, 3, 1))
        check_range(int(ranges.offset[0]), int(ranges.count[0]))
        size = arrays["expected_metadata"].shape[1]
        if size < metadata_size(int(ranges.tile[0])):
            raise ValueError(f"expected_metadata has {size} elements, fewer than its tile needs")
        metadata = array("expected_metadata", np.int32, 1, size)
    index = array("index", np.int64, arrays["index"].size)
    if index.size > 1:
        raise ValueError(f"index has {index.size} elements, not one")
    batch = Batch(
        family=str(arrays.pop("family")),
        logits=array("logits", np.uint32, 1, tokens, NUM_EXPERTS).view(np.float32),
        bias=array("bias", np.uint32, 1, NUM_EXPERTS).view(np.float32),
        scale=array("scale", np.uint32, 1).view(np.float32),
        renormalize=bool(arrays.pop("renormalize")),
        row_stride=array("row_stride", np.int64, 1),
        ranges=ranges,
        seed=int(str(arrays.pop("seed"))),
        index=index if index.size else None,
        shift=_shift(arrays),
    )
    _check_stride(batch)
    ids = array("expected_ids", np.int32, 1, tokens, TOP_K)
    weights = array("expected_weights", np.uint32, 1, tokens, TOP_K).view(np.float32)
    return (
        Target(str(arrays.pop("backend")), str(arrays.pop("device"))),
        batch,
        Outputs(ids, weights, metadata),
    )


def _check_stride(batch: Batch) -> None:
    stride = int(batch.row_stride[0])
    if stride == 0 and (batch.logits.view(np.int32) == batch.logits.view(np.int32)[:, :1]).all():
        return
    if not NUM_EXPERTS <= stride <= LARGEST_STRIDE or stride % ROW_STRIDE_MULTIPLE:
        raise ValueError(f"row_stride is {stride}, which these rows cannot have")


def _shift(arrays: dict[str, Any]) -> tuple[int, int]:
    """Read where ids and weights start; files from before this was kept have the default."""
    ids, weights = (int(elements) for elements in arrays.get("shift", (1, 1)))
    if not (0 <= ids <= 3 and 0 <= weights <= 3):
        raise ValueError(f"shift is {ids}, {weights}, not 0..3")
    return ids, weights
