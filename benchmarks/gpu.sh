#!/usr/bin/env bash
# What only a GPU can show, in one run of at most ten minutes: tests, losses, training steps, live curves, calibrate.
#
#     benchmarks/gpu.sh LOG                              on a GPU, from the repository, in an environment with the tests'
#     DEVICE=cpu SHRINK=8 ROUNDS=1 PATIENCE=5 benchmarks/gpu.sh LOG      to try it: a CPU, axes divided by 8, more time
#     HIPPOCAMPUS=.../Dataset004_Hippocampus benchmarks/gpu.sh LOG      with real cases for calibrate in 2D
#
# Each part has its share of the time, and one that fails leaves the others. The log's figures belong into
# docs/performance.md, with the card and the date.
set -u
log=$(realpath -m "${1:?usage: benchmarks/gpu.sh LOG}")
DEVICE=${DEVICE:-cuda} SHRINK=${SHRINK:-1} ROUNDS=${ROUNDS:-15} PATIENCE=${PATIENCE:-1}
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export nnUNet_raw=$work/raw nnUNet_preprocessed=$work/preprocessed nnUNet_results=$work/results
mkdir -p "$nnUNet_raw" "$nnUNet_preprocessed" "$nnUNet_results"
nnUNet_extTrainer=$(python -c "from nnunet_nacl.linking import trainers_path; print(trainers_path())")
export nnUNet_extTrainer

part() { # part SECONDS COMMAND ...
    local limit=$1 start=$SECONDS
    shift
    echo "== $* =="
    timeout $((limit * PATIENCE)) "$@" 2>&1
    echo "-- status $?, $((SECONDS - start)) s"
}

train() { # train DATASET CONFIGURATION: a few steps; what calibrate costs does not depend on how good the model is
    part 120 nnUNetv2_train "$1" "$2" 0 -tr nnUNetTrainerDiceCE_1epochs_20iterations -device "$DEVICE" | tail -n 4
}

calibrate() { # calibrate DATASET CONFIGURATION
    part 150 nnunet_nacl calibrate -d "$1" -c "$2" -f 0 -tr nnUNetTrainerDiceCE_1epochs_20iterations -device "$DEVICE"
}

{
    date
    git log -1 --format=%h
    python -c "import torch; print(torch.__version__, torch.cuda.get_device_name() if torch.cuda.is_available() else 'no GPU')"
    part 180 python -m pytest -q -n 0 -m gpu
    part 90 python benchmarks/loss.py -device "$DEVICE" --rounds "$ROUNDS" --shrink "$SHRINK"
    part 90 python benchmarks/train_step.py -device "$DEVICE" --rounds "$ROUNDS" --shrink "$SHRINK"

    python benchmarks/generated_cases.py --shrink "$SHRINK" ${HIPPOCAMPUS:+--hippocampus "$HIPPOCAMPUS"}
    for data in "4 2d" "994 3d_fullres"; do
        read -r number configuration <<< "$data"
        part 120 nnUNetv2_plan_and_preprocess -d "$number" -c "$configuration" -npfp 2 -np 4 | tail -n 3
        python benchmarks/generated_cases.py --splits "$number"
        train "$number" "$configuration"
        calibrate "$number" "$configuration"
    done
    part 90 python benchmarks/progress.py -d 4 -c 2d --epochs 3 -device "$DEVICE"
} 2>&1 | tee "$log"
