"""The kernel for CUDA gives what the plain formula gives.

Without a GPU, Triton's interpreter runs it, in a process of its own, since Triton decides when a kernel is defined; and
it is compiled for GPUs that are not there.
"""

import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from nnunet_nacl.losses import NACLLoss
from tests.losses.test_fused import PRIORS, blobs, value_and_gradient

triton = pytest.importorskip("triton", reason="comes with torch for Linux")

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if torch.cuda.is_available() and not INTERPRETED else "cpu"
runs_the_kernel = pytest.mark.skipif(
    DEVICE == "cpu" and not INTERPRETED, reason="needs CUDA, or TRITON_INTERPRET=1 (see test_interpreted)"
)


def assert_same(loss: NACLLoss, logits: Tensor, labels: Tensor, tolerance: float = 1e-6) -> None:
    logits, labels = logits.to(DEVICE), labels.to(DEVICE)
    fused = loss.fused()
    assert fused is not None
    assert fused.on_cuda is not None
    on_cuda = fused.on_cuda
    value, gradient = value_and_gradient(lambda *given: on_cuda(*given, loss.ignore_label), logits, labels)
    expected, slope = value_and_gradient(loss.plain, logits, labels)
    assert value.dtype == expected.dtype
    assert gradient.dtype == logits.dtype
    torch.testing.assert_close(value, expected, rtol=tolerance, atol=1e-7)
    scale = float(slope.abs().max()) or 1.0
    torch.testing.assert_close(gradient / scale, slope / scale, rtol=0, atol=tolerance)


@pytest.mark.parametrize("marked", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_interpreted(marked: str) -> None:
    """Runs this file again, the kernels interpreted."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-m", marked]
    command += ["-k", "not compiles and not test_interpreted"]
    run = subprocess.run(
        command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert " passed" in run.stdout


@pytest.mark.skipif(INTERPRETED, reason="interpreted kernels cannot be compiled")
@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("classes", [4, 118])
@pytest.mark.parametrize(("logits", "labels"), [("fp16", "i16"), ("fp32", "fp32"), ("bf16", "i64"), ("fp64", "u8")])
def test_compiles(gradient: bool, classes: int, logits: str, labels: str) -> None:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from nnunet_nacl.losses import _triton

    computed = "fp64" if logits == "fp64" else "fp32"
    constants: dict[str, Any] = {"HAS_IGNORE": True, "BORDER": "valid", "RADIUS_Z": 1, "RADIUS": 1, "L1": True}
    constants |= {"GRADIENT": gradient, "DTYPE": getattr(triton.language, "float" + computed[2:])}
    constants |= {"CLASSES": triton.next_power_of_2(classes), "BLOCK": _triton._block(classes)}
    constants |= dict.fromkeys(("sums", "counts", "wrong") if gradient else ("scale", "gradient"))
    types = {"logits": "*" + logits, "labels": "*" + labels, "numbers": "*" + computed, "gradient": "*" + logits}
    types |= {"sums": "*" + computed, "counts": "*i32", "wrong": "*i32", "scale": "*" + computed}
    names = _triton._nacl.arg_names
    source = ASTSource(
        _triton._nacl,
        signature={name: "constexpr" if name in constants else types.get(name, "i32") for name in names},
        constexprs={(names.index(name),): value for name, value in constants.items()},
    )
    compiled = triton.compile(
        source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8, "enable_fp_fusion": True}
    )
    assert compiled.asm["cubin"]


@runs_the_kernel
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(settings, id=name, marks=[pytest.mark.slow] if name.endswith("5") and "valid" not in name else [])
        for name, settings in PRIORS.items()
    ],
)
def test_every_prior(generator: torch.Generator, settings: dict[str, Any]) -> None:
    volume = (1, 4, 3, 5) if settings["kernel_size"] == 3 else (1, 2, 3, 2)  # the interpreter takes its time
    for shape, ignore, penalty in (((1, 7, 11), False, "l1"), (volume, True, "l2"), ((1, 1, 1), False, "l1")):
        logits = 2 * torch.randn(shape[0], 3, *shape[1:], generator=generator)
        loss = NACLLoss(penalty=penalty, sigma=1.3, ignore_label=3 if ignore else None, **settings)
        assert_same(loss, logits, torch.randint(3 + ignore, (shape[0], 1, *shape[1:]), generator=generator))


@runs_the_kernel
@pytest.mark.parametrize("classes", [2, 5, 130, 300])
def test_any_number_of_classes(generator: torch.Generator, classes: int) -> None:
    shape = (2, 50, 41) if classes == 2 else (1, 9, 7)  # several programs a sample
    logits = 3 * torch.randn(shape[0], classes, *shape[1:], generator=generator)
    labels = blobs(generator, shape, classes)
    labels[0, 0, 0] = classes - 1
    for reduction in ("mean", "sum"):
        assert_same(NACLLoss(class_reduction=reduction), logits, labels, 1e-6 if classes < 100 else 1e-5)
    assert_same(NACLLoss(), logits.double(), labels, 1e-12)


@runs_the_kernel
def test_noise_one_class_and_nothing(generator: torch.Generator) -> None:
    logits = 3 * torch.randn(2, 4, 10, 9, generator=generator)
    assert_same(NACLLoss(), logits, torch.randint(4, (2, 1, 10, 9), generator=generator))
    assert_same(NACLLoss(), logits, torch.full((2, 1, 10, 9), 2))
    assert_same(NACLLoss(ignore_label=2), logits, torch.full((2, 1, 10, 9), 2))
    assert_same(NACLLoss(ignore_label=0), logits, torch.randint(4, (2, 1, 10, 9), generator=generator))
    for scale in (0.0, 1e4):
        assert_same(NACLLoss(), scale * logits, torch.randint(4, (2, 1, 10, 9), generator=generator))


@runs_the_kernel
def test_an_ignored_nan_counts_for_nothing(generator: torch.Generator) -> None:
    logits, labels = torch.randn(1, 3, 6, 5, generator=generator), torch.randint(3, (1, 1, 6, 5), generator=generator)
    labels[0, 0, 2, 2], logits[0, :, 2, 2] = -1, torch.nan
    assert_same(NACLLoss(ignore_label=-1), logits, labels)


@runs_the_kernel
def test_labels_and_logits_of_any_dtype_and_layout(generator: torch.Generator) -> None:
    logits, labels = 3 * torch.randn(2, 4, 6, 5, generator=generator), blobs(generator, (2, 6, 5), 4)
    for dtype in (torch.int8, torch.uint8, torch.int16, torch.int64, torch.float16, torch.float32, torch.float64):
        assert_same(NACLLoss(), logits, labels.to(dtype))
    assert_same(NACLLoss(ignore_label=257), logits, labels.to(torch.uint8))  # 257 is 1 in a byte
    for half, tolerance in ((torch.float16, 2e-3), (torch.bfloat16, 2e-2)):
        assert_same(NACLLoss(), logits.to(half), labels, tolerance)
    assert_same(NACLLoss(), logits.to(memory_format=torch.channels_last), labels.mT.contiguous().mT)
    assert_same(NACLLoss(), 3 * torch.randn(2, 4, 5, 6, generator=generator).mT, labels)


@runs_the_kernel
@pytest.mark.skipif(DEVICE == "cuda", reason="on CUDA it ends the process")
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")  # NumPy's, from the interpreter
@pytest.mark.parametrize("label", [-1, 4, 2**32 + 1, 1.5, float("nan")])
def test_a_label_that_is_not_allowed(generator: torch.Generator, label: float) -> None:
    labels = torch.zeros(1, 1, 6, 5, dtype=torch.float64 if isinstance(label, float) else torch.int64)
    labels[0, 0, 3, 3] = label
    with pytest.raises(RuntimeError, match="outside of 0 to 3"):
        assert_same(NACLLoss(), torch.randn(1, 4, 6, 5, generator=generator), labels)


@runs_the_kernel
def test_gradcheck_and_scaling(generator: torch.Generator) -> None:
    loss = NACLLoss(ignore_label=3)
    fused = loss.fused()
    assert fused is not None
    assert fused.on_cuda is not None
    on_cuda = fused.on_cuda
    logits = torch.randn(1, 3, 2, 3, generator=generator, dtype=torch.float64).to(DEVICE).requires_grad_()
    labels = torch.randint(4, (1, 1, 2, 3), generator=generator).to(DEVICE)
    assert torch.autograd.gradcheck(lambda x: 7 * on_cuda(x, labels, 3), logits)

    half = torch.randn(1, 4, 64, 64, generator=generator).half().to(DEVICE).requires_grad_()
    (65536 * 16 * on_cuda(half, blobs(generator, (1, 64, 64), 4).to(DEVICE), None)).backward()
    assert half.grad is not None
    assert float((half.grad == 0).float().mean()) < 1e-2
