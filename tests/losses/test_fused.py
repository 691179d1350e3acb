"""The fast path gives what the plain formulas give: values, gradients, and what autograd asks of it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from nnunet_nacl import losses
from nnunet_nacl.losses import SegmentationLoss, _fused

Make = Callable[..., SegmentationLoss]

LOSSES: dict[str, Make] = {
    "CE": losses.CrossEntropyLoss,
    "FL": losses.FocalLoss,
    "FL 0.5": lambda **shared: losses.FocalLoss(gamma=0.5, **shared),
    "FL 0": lambda **shared: losses.FocalLoss(gamma=0, **shared),
    "ECP": losses.ECPLoss,
    "ECP mean": lambda **shared: losses.ECPLoss(class_reduction="mean", **shared),
    "LS": losses.LabelSmoothingLoss,
    "MbLS": losses.MbLSLoss,
    "MbLS 0": lambda **shared: losses.MbLSLoss(margin=0, weight=0.5, **shared),
    "SVLS": losses.SVLSLoss,
    "SVLS 5": lambda **shared: losses.SVLSLoss(sigma=0.7, kernel_size=5, **shared),
    "NACL": losses.NACLLoss,
    "NACL sum": lambda **shared: losses.NACLLoss(class_reduction="sum", weight=0.3, **shared),
    "NACL l2": lambda **shared: losses.NACLLoss(penalty="l2", **shared),
}
PRIORS = {
    f"{prior} {border} {kernel}": {"prior": prior, "border": border, "kernel_size": kernel}
    for prior in ("mean", "gaussian", "plain_gaussian")
    for border in ("valid", "background", "zero")
    for kernel in (3, 5)
}
each_loss = pytest.mark.parametrize("make", LOSSES.values(), ids=LOSSES)


def blobs(generator: torch.Generator, shape: tuple[int, ...], classes: int) -> Tensor:
    """Labels with whole areas of one class, and edges."""
    labels = torch.randint(classes, (shape[0], 1, *(-(-size // 4) for size in shape[1:])), generator=generator)
    for axis, size in enumerate(shape[1:], start=2):
        labels = labels.repeat_interleave(4, axis).narrow(axis, 0, size)
    return labels.contiguous()


def value_and_gradient(
    call: Callable[[Tensor, Tensor], Tensor], logits: Tensor, target: Tensor
) -> tuple[Tensor, Tensor]:
    leaf = logits.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    value = call(leaf, target)
    (found,) = torch.autograd.grad(value, leaf)
    return value.detach(), found


def assert_same(loss: SegmentationLoss, logits: Tensor, target: Tensor, tolerance: float = 1e-6) -> None:
    """Value to ``tolerance`` of itself, gradient to ``tolerance`` of its largest entry."""
    assert loss.fused() is not None
    value, gradient = value_and_gradient(loss, logits, target)
    expected, slope = value_and_gradient(loss.plain, logits, target)
    assert value.dtype == expected.dtype
    assert gradient.dtype == slope.dtype == logits.dtype
    torch.testing.assert_close(value, expected, rtol=tolerance, atol=1e-7)
    scale = float(slope.abs().max()) or 1.0
    torch.testing.assert_close(gradient / scale, slope / scale, rtol=0, atol=tolerance)


@each_loss
@pytest.mark.parametrize("shape", [(2, 13, 11), (3, 1, 9), (1, 7, 1), (2, 9, 8, 7), (1, 1, 6, 5), (1, 1, 1)])
@pytest.mark.parametrize("ignore", [False, True])
def test_odd_shapes(make: Make, generator: torch.Generator, shape: tuple[int, ...], ignore: bool) -> None:
    logits = 3 * torch.randn(shape[0], 4, *shape[1:], generator=generator)
    labels = blobs(generator, shape, 4 + ignore)
    assert_same(make(ignore_label=4 if ignore else None), logits, labels)


@pytest.mark.parametrize("settings", PRIORS.values(), ids=PRIORS)
@pytest.mark.parametrize("shape", [(2, 13, 11), (1, 7, 6, 5), (2, 2, 3)])
@pytest.mark.parametrize("ignore", [False, True])
def test_every_prior(
    generator: torch.Generator, settings: dict[str, Any], shape: tuple[int, ...], ignore: bool
) -> None:
    logits = 2 * torch.randn(shape[0], 3, *shape[1:], generator=generator)
    labels = blobs(generator, shape, 3 + ignore)
    for penalty in ("l1", "l2"):
        loss = losses.NACLLoss(penalty=penalty, sigma=1.3, ignore_label=3 if ignore else None, **settings)
        assert_same(loss, logits, labels)


@each_loss
@pytest.mark.parametrize("classes", [2, 5, 130, 300])
def test_any_number_of_classes(make: Make, generator: torch.Generator, classes: int) -> None:
    """More than 254 do not fit into a byte."""
    logits = 3 * torch.randn(1, classes, 12, 9, generator=generator)
    labels = blobs(generator, (1, 12, 9), classes)
    labels[0, 0, 0] = classes - 1
    assert_same(make(), logits, labels, 1e-6 if classes < 100 else 1e-5)  # so far off is the plain formula in float32
    value, gradient = value_and_gradient(make(), logits, labels)
    expected, slope = value_and_gradient(make().plain, logits.double(), labels)
    torch.testing.assert_close(value.double(), expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(gradient.double() / slope.abs().max(), slope / slope.abs().max(), rtol=0, atol=2e-6)


@each_loss
@pytest.mark.parametrize("scale", [0.0, 1e-3, 100.0, 1e4])
def test_any_size_of_logits(make: Make, generator: torch.Generator, scale: float) -> None:
    logits = scale * torch.randn(2, 4, 10, 9, generator=generator)
    assert_same(make(), logits, blobs(generator, (2, 10, 9), 4))


@each_loss
def test_one_class_and_noise(make: Make, generator: torch.Generator) -> None:
    logits = 3 * torch.randn(2, 4, 10, 9, generator=generator)
    assert_same(make(), logits, torch.full((2, 1, 10, 9), 2))
    assert_same(make(), logits, torch.randint(4, (2, 1, 10, 9), generator=generator))  # every voxel is an edge


@each_loss
def test_nothing_counts(make: Make, generator: torch.Generator) -> None:
    logits = torch.randn(2, 4, 6, 5, generator=generator)
    value, gradient = value_and_gradient(make(ignore_label=9), logits, torch.full((2, 1, 6, 5), 9))
    assert value == 0
    assert not gradient.any()


@each_loss
def test_layouts(make: Make, generator: torch.Generator) -> None:
    labels = blobs(generator, (2, 10, 9), 4)
    logits = 3 * torch.randn(2, 4, 10, 9, generator=generator)
    for laid_out in (logits.to(memory_format=torch.channels_last), logits.mT.contiguous().mT, logits[:, :, ::1]):
        assert_same(make(), laid_out, labels)
    wide = 3 * torch.randn(2, 8, 10, 18, generator=generator)
    assert_same(make(), wide[:, ::2, :, ::2], labels)
    assert_same(make(), logits, labels.expand(2, 1, 10, 9).mT.contiguous().mT)


@each_loss
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.float16, torch.float32])
def test_labels_of_any_dtype(make: Make, generator: torch.Generator, dtype: torch.dtype) -> None:
    logits = 3 * torch.randn(2, 4, 6, 5, generator=generator)
    assert_same(make(), logits, blobs(generator, (2, 6, 5), 4).to(dtype))


@each_loss
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float16, 2e-3), (torch.bfloat16, 2e-2), (torch.float64, 1e-12)]
)
def test_logits_of_any_dtype(make: Make, generator: torch.Generator, dtype: torch.dtype, tolerance: float) -> None:
    logits = (3 * torch.randn(2, 4, 10, 9, generator=generator, dtype=torch.float64)).to(dtype)
    assert_same(make(), logits, blobs(generator, (2, 10, 9), 4), tolerance)


@each_loss
@pytest.mark.parametrize("ignore", [False, True])
def test_pieces_and_groups(
    make: Make, generator: torch.Generator, monkeypatch: pytest.MonkeyPatch, ignore: bool
) -> None:
    """Small ones, whose ends fall anywhere."""
    logits = 3 * torch.randn(5, 4, 10, 9, generator=generator)
    labels = blobs(generator, (5, 10, 9), 4 + ignore)
    loss = make(ignore_label=4 if ignore else None)
    for piece, group in ((4, 1), (68, 200), (10**6, 10**6)):
        monkeypatch.setitem(_fused._PIECE, "cpu", piece)
        monkeypatch.setitem(_fused._GROUP, "cpu", group)
        assert_same(loss, logits, labels)


@each_loss
def test_what_autograd_may_ask(make: Make, generator: torch.Generator) -> None:
    logits = 3 * torch.randn(2, 4, 10, 9, generator=generator)
    labels, loss = blobs(generator, (2, 10, 9), 4), make()
    expected = value_and_gradient(loss.plain, logits, labels)[1]

    leaf = logits.clone().requires_grad_()
    value = loss(leaf, labels)
    (3 * value).backward(retain_graph=True)
    first = leaf.grad
    torch.testing.assert_close(first, 3 * expected)
    value.backward()  # again: the buffer is gone, and what it held may not change
    torch.testing.assert_close(leaf.grad, 4 * expected)

    with torch.no_grad():
        assert loss(leaf, labels) == value
    assert not loss(logits, labels).requires_grad
    (slope,) = torch.autograd.grad(loss(leaf, labels), leaf, create_graph=True)
    with pytest.raises(RuntimeError, match="does not require grad"):
        slope.sum().backward()


def test_loss_scaling_does_not_underflow(generator: torch.Generator) -> None:
    """A mean over many voxels in half precision: a gradient is below the smallest number; times the scale it is not."""
    logits = torch.randn(1, 4, 512, 512, generator=generator).half().requires_grad_()
    labels = blobs(generator, (1, 512, 512), 4)
    (losses.NACLLoss()(logits, labels) * 65536).backward()
    assert float((logits.grad == 0).float().mean()) < 1e-3


@each_loss
def test_deterministic(make: Make, generator: torch.Generator) -> None:
    logits = 3 * torch.randn(2, 4, 40, 39, generator=generator)
    labels = blobs(generator, (2, 40, 39), 4)
    torch.use_deterministic_algorithms(mode=True)
    try:
        first, second = (value_and_gradient(make(), logits, labels) for _ in range(2))
    finally:
        torch.use_deterministic_algorithms(mode=False)
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])


def test_large_sums_keep_their_digits(generator: torch.Generator) -> None:
    """Against float64, with pieces of a quarter of a million logits."""
    logits = 3 * torch.randn(1, 4, 600, 600, generator=generator) + 5
    labels = blobs(generator, (1, 600, 600), 4)
    for make in LOSSES.values():
        assert float(make()(logits, labels)) == pytest.approx(float(make().plain(logits.double(), labels)), rel=1e-6)


def test_what_has_no_fast_path() -> None:
    assert losses.NACLLoss(constraint="softmax").fused() is None
    logits = torch.randn(1, 2, 4, 4)
    for make in (losses.NACLLoss, losses.SVLSLoss, losses.CrossEntropyLoss):
        loss, masks = make(regions=True), torch.ones(1, 2, 4, 4)
        assert torch.equal(loss(logits, masks), loss.plain(logits, masks))


@pytest.mark.filterwarnings("ignore:Guards may run slower")  # torch, on Python 3.13.0
def test_while_compiling(generator: torch.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.compile gets the plain formula, which it can fuse itself."""
    logits, labels = torch.randn(1, 3, 8, 8, generator=generator), blobs(generator, (1, 8, 8), 3)
    monkeypatch.setattr(_fused, "_sum", None)
    compiled = torch.compile(losses.NACLLoss(), backend="eager")
    torch.testing.assert_close(compiled(logits, labels), losses.NACLLoss().plain(logits, labels))
    with pytest.raises(TypeError):
        losses.NACLLoss()(logits, labels)


def test_wrong_labels_in_a_later_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_fused._GROUP, "cpu", 1)
    labels = torch.zeros(3, 1, 4, 4)
    labels[2, 0, 1, 1] = 7
    with pytest.raises(
        ValueError, match=r"target holds labels from 0\.0 to 7\.0; allowed are the whole numbers 0 to 2"
    ):
        losses.NACLLoss()(torch.randn(3, 3, 4, 4), labels)
