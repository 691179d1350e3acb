import json
from pathlib import Path

import pytest

from nnunet_nacl.nnunet import DataSet, DatasetJson, LabelMeaning, ModelName, dataset_in, dataset_number

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
