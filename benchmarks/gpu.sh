#!/usr/bin/env bash
# What only a GPU can show, meant for one run of ten minutes: tests, losses, training steps, live curves, calibrate.
#
#     benchmarks/gpu.sh LOG                              on a GPU, from the repository, in an environment with the tests'
#     DEVICE=cpu SHRINK=8 ROUNDS=1 PATIENCE=5 benchmarks/gpu.sh LOG      to try it: a CPU, axes divided by 8, more time
#     HIPPOCAMPUS=.../Dataset004_Hippocampus benchmarks/gpu.sh LOG      with real cases for calibrate in 2D
#
# First, side by side, what is not timed: the tests, two models to calibrate (a few steps of training, and none), and
# once what PyTorch compiles and keeps.
# Then the measurements, one after the other. Each part has its share of the time, and one that fails leaves the others.
# The log's figures belong into docs/performance.md, with the card and the date.
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
MODEL="nnUNetTrainerDiceCE_1epochs_100iterations"
UNTRAINED="nnUNetTrainerDiceCE"

part() { # part SECONDS COMMAND ...
    local limit=$1 start=$SECONDS
    shift
    echo "== $* =="
    timeout $((limit * PATIENCE)) "$@" 2>&1
    echo "-- status $?, $((SECONDS - start)) s"
}

loss() { # loss SECONDS OPTION ...
    part "$1" python benchmarks/loss.py -device "$DEVICE" --rounds "$ROUNDS" --shrink "$SHRINK" "${@:2}"
}

steps() { # steps ROUNDS SIZE TRAINER ...
    part 120 python benchmarks/train_step.py -device "$DEVICE" --shrink "$SHRINK" --rounds "$1" --sizes "$2" --trainers "${@:3}"
}

run_tests() {
    # Compiled in their own processes, which may be many
    export TORCHINDUCTOR_COMPILE_THREADS=1
    part 200 python -m pytest -q -n 8 -p no:benchmark -m gpu $(grep -rl "mark.gpu" tests)
}

prepare() { # prepare DATASET CONFIGURATION COMMAND ...: makes a model
    part 120 nnUNetv2_plan_and_preprocess -d "$1" -c "${2/_bs8/}" -npfp "$(nproc)" -np "$(nproc)"
    python benchmarks/generated_cases.py --planned "$1"
    part 150 "${@:3}"
}

calibrate() { # calibrate DATASET CONFIGURATION TRAINER
    part 150 nnunet_nacl calibrate -d "$1" -c "$2" -f 0 -tr "$3" -device "$DEVICE"
}

{
    date
    python -c "import torch; print(torch.__version__, torch.cuda.get_device_name() if torch.cuda.is_available() else 'no GPU')"
    python benchmarks/generated_cases.py --shrink "$SHRINK" ${HIPPOCAMPUS:+--hippocampus "$HIPPOCAMPUS"}
    run_tests > "$work/tests" &
    prepare 4 2d_bs8 nnUNetv2_train 4 2d_bs8 0 -tr $MODEL -device "$DEVICE" > "$work/small" &
    prepare 994 3d_fullres python benchmarks/generated_cases.py --untrained 994 3d_fullres > "$work/large" &
    for size in 2d 3d 3d_14_classes; do
        steps 1 $size NACL DiceCE > "$work/steps_$size" &
    done
    wait
    cat "$work/tests"
    tail -n 5 "$work/small" "$work/large" "$work"/steps_*

    loss 60 --losses NACL
    loss 90 --sizes 3d
    for size in 2d 3d 3d_14_classes; do
        steps "$ROUNDS" $size NACL DiceCE
    done
    calibrate 4 2d_bs8 $MODEL
    calibrate 994 3d_fullres $UNTRAINED
    part 90 python benchmarks/progress.py -d 4 -c 2d_bs8 --epochs 3 -device "$DEVICE"
} 2>&1 | tee "$log"
