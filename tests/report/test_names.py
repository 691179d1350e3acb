"""Short names tell methods apart, and lose nothing."""

import pytest

from nnunet_nacl.report._names import ShortNames


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["DiceCE_paper_12epochs", "CE_paper_12epochs"], ["DiceCE", "CE"]),
        (["run-1_CE_a", "run-1_NACL_a"], ["CE", "NACL"]),
        (["my FL γ=1", "my FL γ=2"], ["γ=1", "γ=2"]),
        (["NACL_1", "NACL_2"], ["NACL_1", "NACL_2"]),  # a number alone says nothing
        (["NACL", "NACL_x"], ["NACL", "NACL_x"]),
        (["FL_CE_FL", "FL_LS_FL"], ["CE", "LS"]),
        (["aa_bb_aa", "aa_bb_aa_aa"], ["aa", "aa_aa"]),
        (["model_a", "model_b"], ["model_a", "model_b"]),  # a single letter reads as a word
        (["DiceCE", "CE"], ["DiceCE", "CE"]),  # whole words only
        (["alone_paper"], ["alone_paper"]),
        (["_y", "$", "_"], ["_y", "$", "_"]),
        ([], []),
    ],
)
def test_common_words_are_cut(names: list[str], short: list[str]) -> None:
    found = ShortNames.of(names)
    assert list(found.by_full.values()) == short
    assert [found.prefix + one + found.suffix for one in short] == names
