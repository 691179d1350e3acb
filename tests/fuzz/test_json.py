"""Every JSON that we read, damaged at random: the right value, or an error that names the file."""

import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nnunet_nacl.evaluation import FolderResult, bins_file
from nnunet_nacl.experiments import read_study, study_file
from nnunet_nacl.nnunet import DataSet, PlansJson, read_splits
from nnunet_nacl.posthoc import Fit
from nnunet_nacl.posthoc._methods import METHODS
from tests.evaluation.test_versions import EARLIER
from tests.posthoc.generated import description, fit_folder, plans, write_folder

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "100"))
"""Of each kind of file; 100 take about 10 s in all."""

JUNK: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.integers(-2, 4),
        st.floats(),
        st.sampled_from([1.0, 1.5, -1, 10**400, math.inf, math.nan, "1", "", "../x", "\ud800", {}, []]),
        st.text(max_size=5),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=5,
)


def places(content: Any) -> list[tuple[Any, ...]]:
    """The path to each value."""
    found: list[tuple[Any, ...]] = [()]
    entries = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in entries:
        found += [(key, *path) for path in places(value)]
    return found


@st.composite
def damaged(draw: st.DrawFn, content: Any) -> bytes:
    """The text of the content after one or two changes of values, or of bytes."""
    changed = json.loads(json.dumps(content))
    for _ in range(draw(st.integers(0, 2))):
        path = draw(st.sampled_from(places(changed)))
        if not path:
            changed = draw(JUNK)
            continue
        holder = changed
        for step in path[:-1]:
            holder = holder[step]
        if draw(st.booleans()):
            holder[path[-1]] = draw(JUNK)
        else:
            del holder[path[-1]]
    text = json.dumps(changed, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 3)) == 0:
        start = draw(st.integers(0, len(text)))
        text = text[:start] + draw(st.binary(max_size=4)) + text[start + draw(st.integers(0, 9)) :]
    return text


@dataclass(frozen=True)
class Kind:
    """A kind of file: an example, and what reads it and makes use of what it holds."""

    content: Any
    read: Callable[[Path], object]
    name: str = field(default="file.json")


def refusal(read: Callable[[Path], object], file: Path) -> str | None:
    """What a reader has against a file; None if nothing. Other errors are raised."""
    try:
        read(file)
    except (ValueError, FileNotFoundError) as error:
        return str(error)
    return None


def use_data_set(file: Path) -> None:
    data_set = DataSet.read(file, None, [])
    labels = [one for value in data_set.labels.values() for one in (value if isinstance(value, list) else [value])]
    assert all(type(label) is int and 0 <= label <= 65535 for label in labels)
    assert data_set.meaning.num_channels == len(data_set.meaning.structures) + data_set.meaning.has_background
    assert data_set.file_ending.startswith(".")


def use_fit(file: Path) -> None:
    fit = Fit.read(file)
    assert fit.summary()
    p = np.random.default_rng(0).dirichlet(np.ones(fit.model.channels), 50).T.astype(np.float32)
    if not fit.calibrator.sees_surroundings:
        after = fit.calibrator.apply(p)
        assert np.isfinite(after).all()
        assert after.min() >= 0
        assert after.max() <= 1
        assert np.allclose(after.sum(0), 1, atol=1e-3)


def use_splits(file: Path) -> None:
    for split in read_splits(file):
        assert all(isinstance(case, str) for part in (split["train"], split["val"]) for case in part)


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Kind]:
    train = write_folder(tmp_path_factory.mktemp("fitted"), "ab")
    fits = {}
    for method in METHODS:
        fit_folder(train, method=method, **({"num_voxels": 300} if method == "local" else {}))
        fits[method] = Kind(json.loads((train[1] / f"posthoc_{method}.json").read_text()), use_fit)
    configurations = {"2d": {"spacing": [1, 1]}, "small": {"inherits_from": "2d"}}
    return {
        "classes": Kind(json.loads(description()), use_data_set),
        "regions": Kind(json.loads(description(regions=True)), use_data_set),
        "plans": Kind(
            {**json.loads(plans()), "configurations": configurations},
            lambda file: PlansJson.read(file).lineage("small"),
        ),
        "splits": Kind([{"train": ["a", "b"], "val": ["c"]}] * 2, use_splits),
        "study": Kind(study_as_json(), read_study, "file.yaml"),
        **fits,
    }


def study_as_json() -> Any:
    import yaml

    return yaml.safe_load(study_file("sigma").read_text())


@pytest.mark.parametrize("name", ["classes", "regions", "plans", "splits", "study", *METHODS])
def test_damaged_files(name: str, kinds: dict[str, Kind], tmp_path: Path) -> None:
    kind = kinds[name]
    file = tmp_path / kind.name
    file.write_text(json.dumps(kind.content))
    kind.read(file)

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(damaged(kind.content))
    def law(text: bytes) -> None:
        file.write_bytes(text)
        message = refusal(kind.read, file)
        assert message is None or str(file) in message
        assert message is None or "\n" not in message or name == "study"  # YAML's own messages have several lines

    law()


@pytest.mark.parametrize("part", ["header", "cases"])
def test_damaged_texts_of_bin_tables(part: str, tmp_path: Path) -> None:
    summary = tmp_path / "x_summary.json"
    with np.load(EARLIER / "classes_bins.zip") as archive:
        arrays = dict(archive)
    content = json.loads(str(arrays[part].reshape(-1)[0]))

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(damaged(content))
    def law(text: bytes) -> None:
        texts = [text.decode("utf-8", "replace"), *map(str, arrays["cases"][1:])]
        changed = {**arrays, part: np.array(texts if part == "cases" else texts[0])}
        with bins_file(summary).open("wb") as stream:
            np.savez(stream, **changed)
        message = refusal(lambda file: json.dumps(FolderResult.read(file).to_json()), summary)
        assert message is None or str(bins_file(summary)) in message

    law()
