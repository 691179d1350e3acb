"""Options that mean the same in several commands, and their help."""

SINGLE_DASH = {"d", "c", "p", "f", "i", "o", "tr", "np", "gt", "chk", "device"}  # as in nnU-Net

SHARED = {
    "gt_folder": "folder with the ground truth",
    "pred_folder": "segmentations and their .npz files, as of nnUNetv2_predict --save_probabilities",
    "d": "DATASET, by name or number",
    "c": "CONFIGURATION such as 2d",
    "tr": "TRAINER",
    "p": "PLANS",
    "f": "FOLD or folds",
    "device": "cuda, cpu or mps; auto: cuda if there is one",
    "np": "N cases at a time (default: nnUNet_def_n_proc, or 8 if that is not set; at most the number of cores)",
    "calibrated": "use the validation cases that 'calibrate --npz' predicted, fold_X/validation_calibrated",
    "summaries": "calibration_summary.json, or its folder",
    "names": "NAME of each method, one for each summary (default: trainer or folder)",
    "ignore_geometry": "accept a case's files even if their spacing, origin or direction differ",
    "no_surface": "without HD95, ASSD and normalized surface distance, which take longest on large volumes",
    "by_patient": "REGEX: resample and test patients, not their cases; the patient is the case's name up to the last "
    "underscore, or REGEX's first group",
    "overwrite": "replace existing files of the same names, and no others",
    "voxels": "foreground (where the ground truth is not background), union (where it or the prediction is not), near "
    "(within 5 mm, or pixels, of foreground probabilities above 0.05) or image (default: near, where there is "
    "a choice)",
}
"""Parameter -> its help, in all commands whose docstring does not say more of it."""
