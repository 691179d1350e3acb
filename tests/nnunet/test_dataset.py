import json
from pathlib import Path

import pytest

from nnunet_nacl.nnunet import DataSet, DatasetJson, LabelMeaning, ModelName, PlansJson, dataset_in, dataset_number

EITHER = "expected an integer or a list of integers"
REGIONS = {"background": 0, "whole": [1, 2], "core": [2], "edge": 3, "ignore": 4}


def test_dataset_json(tmp_path: Path) -> None:
    file = tmp_path / "dataset.json"
    content = {"labels": REGIONS, "file_ending": ".nii.gz", "regions_class_order": [1, 2, 3], "numTraining": 7}
    file.write_text(json.dumps({**content, "channel_names": {"0": "T1", "1": "T2"}}))
    described = DatasetJson.read(file)
    assert (described.file_ending, described.channel_names) == (".nii.gz", ("T1", "T2"))
    assert described.regions_class_order == (1, 2, 3)
    assert described.content["numTraining"] == 7
    file.write_text(json.dumps({**content, "modality": {"0": "CT"}}))  # what nnU-Net's first version called it
    assert DatasetJson.read(file).channel_names == ("CT",)

    meaning = DataSet.read(file, None, []).meaning
    assert meaning == LabelMeaning.of_names(REGIONS, [[1, 2], [2], [3]])
    assert meaning.regions == ((1, 2), (2,), (3,))
    assert (meaning.known, meaning.ignored, meaning.written) == ((0, 1, 2, 3), 4, (1, 2, 3))
    assert not meaning.has_background
    assert [meaning.name_of(one) for one in meaning.structures] == ["whole", "core", "edge"]


def test_labels_of_classes() -> None:
    meaning = LabelMeaning.of_names({"background": 0, "b": 2, "a": 1, "ignore": 3}, None)
    assert meaning.has_background
    assert (meaning.num_channels, meaning.known, meaning.ignored) == (3, (0, 1, 2), 3)
    assert [meaning.name_of(one) for one in meaning.structures] == ["a", "b"]
    assert meaning.name_of((1, 2)) == "(1, 2)"
    assert LabelMeaning.of_names(json.loads(json.dumps(meaning.labels)), None) == meaning


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not valid JSON"),
        ("[]", r"dataset.json of nnU-Net: expected a JSON object; got \[\]"),
        ('{"file_ending": ".png"}', "is no dataset.json of nnU-Net: it has no 'labels'"),
        ('{"labels": {}}', "is no dataset.json of nnU-Net: it has no 'file_ending'"),
        ('{"labels": [0], "file_ending": ".png"}', r"labels: expected a JSON object; got \[0\]"),
        ('{"labels": {}, "file_ending": 5}', "file_ending: expected a text; got 5"),
    ],
)
def test_what_is_no_dataset_json(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "dataset.json"
    with pytest.raises(FileNotFoundError, match=r"dataset\.json does not exist\.$"):
        DatasetJson.read(file)
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        DatasetJson.read(file)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": {"background": 0, "nerve": 1.5}}, f"labels.nerve: {EITHER}; got 1.5"),
        ({"labels": {"background": 0, "nerve": 1.0}}, f"labels.nerve: {EITHER}; got 1.0"),
        ({"labels": {"background": 0, "nerve": "1"}}, f'labels.nerve: {EITHER}; got "1"'),
        ({"labels": {"background": 0, "nerve": True}}, f"labels.nerve: {EITHER}; got true"),
        ({"labels": {"background": 0, "nerve": None}}, f"labels.nerve: {EITHER}; got null"),
        ({"labels": {"background": 0, "nerve": -1}}, "labels.nerve: expected at least 0; got -1"),
        ({"labels": {"background": 0, "nerve": 10**30}}, "labels.nerve: expected at most 65535; got 1000"),
        ({"labels": {"background": 0, "nerve": []}}, "labels.nerve: expected a list of at least 1; got []"),
        ({"labels": {"background": 0, "nerve": [1, [2]]}}, "labels.nerve[1]: expected an integer; got [2]"),
        ({"labels": {"background": 0, "nerve": {"a": 1}}}, f"labels.nerve: {EITHER}; got {{"),
        ({"labels": None}, "labels: expected a JSON object; got null"),
        ({"labels": {}}, "Background label not declared"),
        ({"labels": {"background": 0, "a": [1, 1], "b": 2}, "regions_class_order": [1, 2]}, "1, 1 has a label twice"),
        ({"regions_class_order": [1]}, "as many entries"),
        ({"regions_class_order": None}, "regions_class_order"),
        ({"regions_class_order": 3}, "regions_class_order: expected a list; got 3"),
        ({"regions_class_order": [1, "2", 3]}, 'regions_class_order[1]: expected an integer; got "2"'),
        ({"regions_class_order": [2, 3, 1]}, "regions_class_order: expected one of the labels of the region 2"),
        ({"channel_names": "CT"}, 'channel_names: expected a JSON object or a list of texts; got "CT"'),
        ({"channel_names": {"0": 3}}, "channel_names.0: expected a text; got 3"),
        ({"file_ending": ""}, "file_ending: expected one such as .nii.gz; got ''"),
        ({"file_ending": "/../x.nii"}, "file_ending: expected one such as .nii.gz; got '/../x.nii'"),
        ({"overwrite_image_reader_writer": [1]}, "overwrite_image_reader_writer: expected a text; got [1]"),
        ({"overwrite_image_reader_writer": "np"}, "expected the name of one of nnU-Net's readers; got"),
    ],
)  # fmt: skip
def test_labels_and_the_like_that_are_wrong(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    file = tmp_path / "dataset.json"
    content = {"labels": REGIONS, "file_ending": ".nii.gz", "regions_class_order": [1, 2, 3]}
    file.write_text(json.dumps({**content, **changes}))
    with pytest.raises(ValueError) as raised:
        DataSet.read(file, None, [])
    assert str(raised.value).startswith(f"{file}: ")
    assert message in str(raised.value)


def test_an_order_of_regions_means_nothing_for_classes(tmp_path: Path) -> None:
    file = tmp_path / "dataset.json"
    content = {"labels": {"background": 0, "a": 1}, "file_ending": ".nii.gz", "regions_class_order": [1]}
    file.write_text(json.dumps(content))
    assert DataSet.read(file, None, []).meaning.written == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("null", "is no plans.json of nnU-Net: expected a JSON object; got null"),
        ("[]", "is no plans.json of nnU-Net: expected a JSON object; got []"),
        ("{}", "is no plans.json of nnU-Net: it has no 'image_reader_writer'"),
        ('{"image_reader_writer": 5}', ": image_reader_writer: expected a text; got 5"),
        ('{"image_reader_writer": "sitk"}', ": expected the name of one of nnU-Net's readers; got that of <module"),
        ('{"image_reader_writer": "X", "configurations": []}', ": configurations: expected a JSON object; got []"),
        ('{"image_reader_writer": "X", "configurations": {"2d": 1}}', ": configurations.2d: expected a JSON object"),
    ],
)
def test_plans_that_are_wrong(text: str, message: str, tmp_path: Path) -> None:
    described, plans = tmp_path / "dataset.json", tmp_path / "plans.json"
    described.write_text(json.dumps({"labels": {"background": 0, "a": 1}, "file_ending": ".nii.gz"}))
    plans.write_text(text)
    with pytest.raises(ValueError) as raised:
        DataSet.read(described, plans, [])
    assert f"{plans}{'' if message[0] == ':' else ' '}{message}" in str(raised.value)


def test_configurations_that_inherit(tmp_path: Path) -> None:
    file = tmp_path / "plans.json"
    configurations = {
        "a": {"n": 1},
        "b": {"inherits_from": "a"},
        "c": {"inherits_from": "d"},
        "d": {"inherits_from": "c"},
        "two\nlines": {},
    }
    file.write_text(json.dumps({"image_reader_writer": "X", "configurations": configurations}))
    plans = PlansJson.read(file)
    assert plans.lineage("b") == [{"inherits_from": "a"}, {"n": 1}]
    with pytest.raises(ValueError, match=r"configurations\.d\.inherits_from: expected another configuration; got 'c'"):
        plans.lineage("c")
    with pytest.raises(ValueError, match=r"plans\.json has no configuration 'x'; it has a, b, c, d, 'two\\nlines'\."):
        plans.lineage("x")


def test_names(tmp_path: Path) -> None:
    assert dataset_number("Dataset004_Hippocampus") == 4
    for name in ("Dataset4_X", "Dataset004", "Data004_X", "Dataset0004_X"):
        with pytest.raises(ValueError, match="expected a name such as Dataset004_Hippocampus"):
            dataset_number(name)
    assert dataset_in("/data/Dataset004_Hippocampus/labelsTs") == "Dataset004_Hippocampus"
    assert dataset_in("/data/labelsTs") is None
    folder = tmp_path / "Dataset004_X" / "nnUNetTrainerNACL_weight0p2__nnUNetPlans__2d"
    name = ModelName.of(folder / "fold_0" / "validation" / "case.npz")
    assert name == ModelName(folder, "Dataset004_X", "nnUNetTrainerNACL_weight0p2", "nnUNetPlans", "2d")
    assert ModelName.of(tmp_path / "a__b") is None
