"""The mean of several members' probabilities, folds or seeds, and how much the members agree."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nnunet_nacl.confidence import MemberOverlap, mutual_information, region_mutual_information
from nnunet_nacl.evaluation import SavedCase, given_labels
from nnunet_nacl.files import whole_folder, write_csv
from nnunet_nacl.nnunet import BLOCK, CaseFiles, DataSet, LabelMeaning, place, write_image, write_labels
from nnunet_nacl.prediction_folders._folder import PredictionFolder, Written, write_cases, write_mark
from nnunet_nacl.prediction_folders._member_cases import check_same_labels, read_together, same_case

MEMBERS_NAME = "members.json"
"""In a folder of combined members: which they are."""
AGREEMENT_NAME = "members_agreement.csv"
"""There: mean pairwise Dice of the members, for each case and structure."""
DISAGREEMENT_FOLDER = "mutual_information"
"""There: the maps of mutual information, if they were asked for."""
