"""In pieces a loss and its gradient are what the formula gives at once, and autograd may ask for more."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from nnunet_nacl import losses
from nnunet_nacl.losses import SegmentationLoss, _pieces

Make = Callable[..., SegmentationLoss]

LOSSES: dict[str, Make] = {
    "CE": losses.CrossEntropyLoss,
    "FL": losses.FocalLoss,
    "ECP": losses.ECPLoss,
    "LS": losses.LabelSmoothingLoss,
    "MbLS": lambda **shared: losses.MbLSLoss(margin=0.5, **shared),
    "SVLS 5": lambda **shared: losses.SVLSLoss(sigma=0.7, kernel_size=5, **shared),
    "NACL": losses.NACLLoss,
    "NACL softmax": lambda **shared: losses.NACLLoss(constraint="softmax", penalty="l2", **shared),
}
each_loss = pytest.mark.parametrize("make", LOSSES.values(), ids=LOSSES)
SMALL, SAMPLES = 68, 1000
"""Logits in a piece: so few that a sample is cut between its rows, or so many that two samples make one."""


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
    (gradient,) = torch.autograd.grad(value, leaf)
    return value.detach(), gradient


def assert_same(loss: SegmentationLoss, logits: Tensor, target: Tensor, tolerance: float = 1e-12) -> None:
    """Value to ``tolerance`` of itself, gradient to ``tolerance`` of its largest entry."""
    value, gradient = value_and_gradient(loss, logits, target)
    expected, slope = value_and_gradient(loss.mean, logits, target)
    assert value.dtype == expected.dtype
    assert gradient.dtype == slope.dtype == logits.dtype
    torch.testing.assert_close(value, expected, rtol=tolerance, atol=1e-12)
    scale = float(slope.abs().max()) or 1.0
    torch.testing.assert_close(gradient / scale, slope / scale, rtol=0, atol=tolerance)


@each_loss
@pytest.mark.parametrize("ignore", [False, True])
@pytest.mark.parametrize("piece", [1, SMALL, SAMPLES])
def test_values_and_gradients(
    make: Make, generator: torch.Generator, monkeypatch: pytest.MonkeyPatch, ignore: bool, piece: int
) -> None:
    monkeypatch.setitem(_pieces._PIECE, "cpu", piece)
    for shape in ((5, 13, 9), (2, 7, 6, 5), (3, 1, 9), (1, 1, 1)):
        logits = 3 * torch.randn(shape[0], 4, *shape[1:], generator=generator, dtype=torch.float64)
        assert_same(make(ignore_label=4 if ignore else None), logits, blobs(generator, shape, 4 + ignore))


@pytest.mark.parametrize("make", [make for name, make in LOSSES.items() if name != "MbLS"])
def test_regions(make: Make, generator: torch.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_pieces._PIECE, "cpu", SMALL)
    logits = torch.randn(3, 2, 13, 9, generator=generator, dtype=torch.float64)
    masks = torch.rand(3, 3, 13, 9, generator=generator) < 0.4
    assert_same(make(regions=True), logits, masks[:, :2])
    assert_same(make(regions=True, ignore_label=5), logits, masks)


@pytest.mark.parametrize("prior", ["mean", "gaussian", "plain_gaussian"])
@pytest.mark.parametrize("border", ["valid", "background", "zero"])
def test_neighbors_in_other_pieces(
    generator: torch.Generator, monkeypatch: pytest.MonkeyPatch, prior: Any, border: Any
) -> None:
    monkeypatch.setitem(_pieces._PIECE, "cpu", SMALL)
    for shape, kernel_size in (((2, 13, 9), 3), ((2, 9, 4), 7), ((1, 7, 6, 5), 5)):
        logits = torch.randn(shape[0], 3, *shape[1:], generator=generator, dtype=torch.float64)
        loss = losses.NACLLoss(prior=prior, border=border, kernel_size=kernel_size, sigma=1.3, ignore_label=3)
        assert_same(loss, logits, torch.randint(4, (shape[0], 1, *shape[1:]), generator=generator))


@pytest.mark.parametrize("shape", [(7, 3, 5, 4), (2, 3, 20, 4, 2), (1, 3, 1, 1)])
@pytest.mark.parametrize("size", [1, 24, 50, 130, 10_000])
def test_pieces_cover_everything_once_and_are_no_larger_than_said(shape: tuple[int, ...], size: int) -> None:
    seen = torch.zeros(shape, dtype=torch.int64)
    for samples, rows in _pieces._pieces(torch.Size(shape), size):
        for start, stop in rows:
            seen[samples, :, start:stop] += 1
            one_row = seen[0, :, 0].numel()
            assert seen[samples, :, start:stop].numel() <= max(size, one_row)
    assert (seen == 1).all()


def test_few_pieces_if_they_may_be_large() -> None:
    assert len(list(_pieces._pieces(torch.Size((366, 3, 56, 40)), 1 << 18))) == 10
    assert list(_pieces._pieces(torch.Size((2, 4, 10, 5)), 60)) == [
        (slice(0, 1), [(0, 3), (3, 6), (6, 9), (9, 10)]),
        (slice(1, 2), [(0, 3), (3, 6), (6, 9), (9, 10)]),
    ]


@each_loss
def test_layouts(make: Make, generator: torch.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_pieces._PIECE, "cpu", SMALL)
    labels = blobs(generator, (2, 10, 9), 4)
    logits = 3 * torch.randn(2, 4, 10, 9, generator=generator, dtype=torch.float64)
    wide = torch.randn(2, 8, 10, 18, generator=generator, dtype=torch.float64)
    for laid_out in (logits.to(memory_format=torch.channels_last), logits.mT.contiguous().mT, wide[:, ::2, :, ::2]):
        assert_same(make(), laid_out, labels.mT.contiguous().mT)


@each_loss
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 2e-3), (torch.bfloat16, 2e-2), (torch.float32, 1e-6)])
def test_logits_of_any_dtype(make: Make, generator: torch.Generator, dtype: torch.dtype, tolerance: float) -> None:
    logits = (3 * torch.randn(2, 4, 10, 9, generator=generator)).to(dtype)
    assert_same(make(), logits, blobs(generator, (2, 10, 9), 4), tolerance)


@pytest.mark.parametrize("make", [losses.CrossEntropyLoss, losses.NACLLoss, losses.SVLSLoss])
@pytest.mark.parametrize("classes", [2, 255, 256, 300])
def test_any_number_of_classes(make: Make, generator: torch.Generator, classes: int) -> None:
    """More than 255 do not fit into a byte beside the voxels that have none."""
    logits = 3 * torch.randn(1, classes, 12, 9, generator=generator)
    labels = blobs(generator, (1, 12, 9), classes)
    labels[0, 0, 0], labels[0, 0, 1, 2:5] = classes - 1, classes
    value, gradient = value_and_gradient(make(ignore_label=classes), logits, labels)
    shares = {
        losses.NACLLoss: losses.neighbor_shares(labels.float(), classes, ignore_label=classes),
        losses.SVLSLoss: losses.neighbor_shares(
            labels.float(), classes, prior="gaussian", sigma=2, border="background", ignore_label=classes
        ),
    }.get(make)

    def formula(x: Tensor, y: Tensor) -> Tensor:
        entropy = F.cross_entropy(x, y[:, 0], ignore_index=classes)
        valid = (y != classes)[:, 0]
        if make is losses.NACLLoss:
            return entropy + 0.1 * (x - shares).abs().mean(1)[valid].mean()
        return entropy if make is losses.CrossEntropyLoss else -(shares * x.log_softmax(1)).sum(1)[valid].mean()

    expected, slope = value_and_gradient(formula, logits.double(), labels)
    torch.testing.assert_close(value.double(), expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(gradient.double() / slope.abs().max(), slope / slope.abs().max(), rtol=0, atol=2e-6)


def test_a_gradient_asked_for_twice(generator: torch.Generator) -> None:
    logits = 3 * torch.randn(2, 4, 10, 9, generator=generator)
    labels, loss = blobs(generator, (2, 10, 9), 4), losses.NACLLoss()
    expected = value_and_gradient(loss.mean, logits, labels)[1]
    leaf = logits.clone().requires_grad_()
    value = loss(leaf, labels)
    (3 * value).backward(retain_graph=True)
    torch.testing.assert_close(leaf.grad, 3 * expected)
    value.backward()  # the first one was given away, and what it became may not change
    torch.testing.assert_close(leaf.grad, 4 * expected)


def test_no_gradient_where_none_is_wanted(generator: torch.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = torch.randn(2, 4, 10, 9, generator=generator), blobs(generator, (2, 10, 9), 4)
    expected = losses.NACLLoss()(logits.clone().requires_grad_(), labels)
    monkeypatch.setattr(torch.autograd, "grad", None)
    with torch.no_grad():
        assert losses.NACLLoss()(logits.clone().requires_grad_(), labels) == expected
    assert not losses.NACLLoss()(logits, labels).requires_grad


def test_the_gradient_comes_with_the_value(generator: torch.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """In pieces, and once: the backward pass computes nothing."""
    logits, labels = torch.randn(2, 4, 10, 9, generator=generator), blobs(generator, (2, 10, 9), 4)
    loss = losses.NACLLoss()
    expected = value_and_gradient(loss.mean, logits, labels)[1]
    monkeypatch.setattr(losses.NACLLoss, "mean", None)
    leaf = logits.clone().requires_grad_()
    value = loss(leaf, labels)
    monkeypatch.setattr(_pieces, "_sum_in_pieces", None)
    value.backward()
    torch.testing.assert_close(leaf.grad, expected)


@pytest.mark.parametrize("before", [False, True], ids=["alone", "after a layer"])
def test_a_penalty_on_the_gradient_equals_torchs(generator: torch.Generator, before: bool) -> None:
    """With torch's own cross-entropy as the oracle; the gradient must not lose what the penalty adds."""
    logits = torch.randn(2, 4, 5, 6, generator=generator, dtype=torch.float64)
    labels = torch.randint(4, (2, 1, 5, 6), generator=generator)
    found = []
    for call in (losses.CrossEntropyLoss(), lambda x, y: F.cross_entropy(x, y[:, 0])):
        leaf = logits.clone().requires_grad_()
        value = 3 * call(leaf.tanh() if before else leaf, labels)
        (slope,) = torch.autograd.grad(value, leaf, create_graph=True)
        (value + 100 * slope.square().sum()).backward()
        found.append(leaf.grad)
    torch.testing.assert_close(found[0], found[1])


@each_loss
def test_second_derivatives(make: Make, generator: torch.Generator) -> None:
    logits = torch.randn(1, 3, 3, 2, generator=generator, dtype=torch.float64).requires_grad_()
    labels = torch.randint(4, (1, 1, 3, 2), generator=generator)
    loss = make(ignore_label=3)
    assert torch.autograd.gradgradcheck(lambda x: 5 * loss(x, labels), logits)


@each_loss
def test_inside_of_torch_func(make: Make, generator: torch.Generator) -> None:
    logits = torch.randn(2, 3, 5, 4, generator=generator, dtype=torch.float64)
    labels, loss = torch.randint(3, (2, 1, 5, 4), generator=generator), make()
    expected = value_and_gradient(loss, logits, labels)[1]
    torch.testing.assert_close(torch.func.grad(loss)(logits, labels), expected)
    direction = torch.randn(logits.shape, generator=generator, dtype=torch.float64)
    _, change = torch.func.jvp(lambda x: loss(x, labels), (logits,), (direction,))
    torch.testing.assert_close(change, (expected * direction).sum())


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


def test_large_sums_keep_their_digits() -> None:
    """Many pieces of a large number: in single precision their sum would lose some."""
    logits = torch.full((64, 4, 64, 64), 0.1)
    logits[:, 1] += 1e3
    labels = torch.zeros(64, 1, 64, 64, dtype=torch.int64)
    value = losses.CrossEntropyLoss()(logits, labels)
    assert float(value) == pytest.approx(float(logits[0, 1, 0, 0].double() - logits[0, 0, 0, 0].double()), rel=1e-7)


@pytest.mark.filterwarnings("ignore:Guards may run slower")  # torch, on Python 3.13.0
def test_while_compiling(generator: torch.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.compile gets the formula, which it can fuse itself."""
    logits, labels = torch.randn(1, 3, 8, 8, generator=generator), blobs(generator, (1, 8, 8), 3)
    expected = losses.NACLLoss()(logits, labels)
    monkeypatch.setattr(_pieces, "_pieces", None)
    compiled = torch.compile(losses.NACLLoss(), backend="eager")
    torch.testing.assert_close(compiled(logits, labels), expected)
    with pytest.raises(TypeError):
        losses.NACLLoss()(logits, labels)


def test_wrong_labels_in_a_later_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_pieces._PIECE, "cpu", 1)
    labels = torch.zeros(3, 1, 4, 4)
    labels[2, 0, 1, 1] = 7
    with pytest.raises(
        ValueError, match=r"target holds labels from 0\.0 to 7\.0; allowed are the whole numbers 0 to 2"
    ):
        losses.NACLLoss()(torch.randn(3, 3, 4, 4), labels)


def test_a_batch_of_nothing() -> None:
    for make in LOSSES.values():
        logits = torch.zeros(0, 3, 4, 4, requires_grad=True)
        assert make()(logits, torch.zeros(0, 1, 4, 4)).item() == 0
