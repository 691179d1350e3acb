"""The pages of a study, from what its runs left: one for several data sets."""

import os
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from nnunet_nacl.evaluation import SUMMARY_NAME, FolderResult
from nnunet_nacl.paper.experiments import _report, report_experiments
from nnunet_nacl.paper.experiments._plan import Experiment, Job
from nnunet_nacl.paper.studies import read_study
from nnunet_nacl.paths import FileState
from tests.paper.experiments.conftest import NAME, experiment, touch
from tests.report.generated import make_result, write_summary

METHODS = {"NACL l1": 1.0, "NACL l2": 2.0}


@cache
def result_of(method: str) -> FolderResult:
    return make_result({**METHODS, "NACL": 1.5}[method])


def evaluated(job: Job, *methods: str, data_set: str = NAME, checkpoint: str = "final") -> Experiment:
    """An experiment whose runs have results of their test cases."""
    data = replace(job.data, name=data_set)
    options = replace(job.options, checkpoint=checkpoint)
    jobs = [
        replace(job, method=method, trainer=f"nnUNetTrainer{method[-2:]}", data=data, options=options)
        for method in methods
    ]
    for one in jobs:
        touch(one.checkpoint, one.test / SUMMARY_NAME)
        write_summary(result_of(one.method), one.test / SUMMARY_NAME)
    return experiment(*jobs)


@pytest.mark.usefixtures("undrawn")
def test_one_page_ranks_over_the_data_sets(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    """All methods that each of them has: MbLS cannot be trained with regions, and a run may fail."""
    names = (NAME, "Dataset905_Other")
    (page,) = report_experiments([evaluated(job, *METHODS, "NACL"), evaluated(job, *METHODS, data_set=names[1])])
    assert page == job.options.output / "penalty" / "test.html"
    together = page.read_text().partition("Ranks over Dataset901_Labels, Dataset905_Other")[2]
    assert "Sum-rank by" in together
    assert "NACL l2" in together
    assert ">NACL<" not in together.partition("</section>")[0]
    printed = capsys.readouterr().out
    assert all(f"\n{name}\n" in printed for name in names)


def test_each_study_has_pages_of_its_own(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_report, "write_report", lambda *_, **__: None)
    one = evaluated(job, *METHODS)
    other = replace(one, study=read_study("prior"))
    pages = report_experiments([one, other])
    assert [page.parent.name for page in pages] == ["penalty", "prior"]


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("why", ["trained anew", "counted by an earlier version", "predictions have changed"])
def test_results_that_are_not_of_the_present_files_are_left_out(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str], why: str
) -> None:
    """Those of NACL l1, until its test cases are predicted or evaluated again."""
    one = evaluated(job, *METHODS)
    summary = one.jobs[0].test / SUMMARY_NAME
    if why == "trained anew":
        os.utime(one.jobs[0].checkpoint, (summary.stat().st_mtime + 60,) * 2)
    elif why == "counted by an earlier version":
        summary.write_text('{"settings": {"counting": 1}}')
    else:
        (tmp_path / "changed").touch()
        result = result_of("NACL l1")
        first, *others = result.counted
        changed = replace(first, states={**first.states, "prediction": FileState(str(tmp_path / "changed"), 1, 1)})
        write_summary(replace(result, counted=[changed, *others]), summary)
    (page,) = report_experiments([one])
    assert "NACL l2" in page.read_text()
    assert "NACL l1" not in page.read_text()
    assert re.search(r"Without results of their present models: .*NACL l1", capsys.readouterr().out)


@pytest.mark.usefixtures("undrawn")
def test_pages_of_the_best_checkpoint_by_patient(job: Job) -> None:
    one = evaluated(job, *METHODS, checkpoint="best")
    (page,) = report_experiments([replace(one, options=replace(one.options, by_patient="(.)$"))])
    assert page == one.options.folder_of(one.data) / "penalty" / "test_best.html"
    assert "Dataset901_Labels, best checkpoint" in page.read_text()
    assert "Resampled and tested are 8 patients, not 8 cases." in page.read_text()


def test_test_cases_of_each_fold_are_a_data_set_of_their_own(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """All folds' models predict the same test cases; validation cases belong to one fold each."""
    jobs = [replace(job, fold=fold, of_fold=fold, split=job.data.splits[fold]) for fold in (0, 1)]
    for one in jobs:
        touch(one.checkpoint, one.test / SUMMARY_NAME, one.validation / SUMMARY_NAME)
        for folder, cases in ((one.test, one.data.test_cases), (one.validation, one.split["val"])):
            write_summary(make_result(cases=cases), folder / SUMMARY_NAME)
    reported: list[str] = []
    monkeypatch.setattr(
        _report, "write_report", lambda results, *_, **__: reported.extend(one.dataset for one in results)
    )
    report_experiments([experiment(*jobs)])
    assert reported == [
        "Dataset901_Labels, trained on fold 0", "Dataset901_Labels, trained on fold 1", "Dataset901_Labels, validation",
    ]  # fmt: skip
