"""What every loss must do, whichever it is, for classes and regions, with and without ignored voxels, in 2D and 3D."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from nnunetv2.training.loss.dice import MemoryEfficientSoftDiceLoss
from nnunetv2.utilities.helpers import softmax_helper_dim1
from torch import Tensor, nn

from nnunet_nacl import losses, trainers
from nnunet_nacl.losses import SegmentationLoss, _base, _target
from nnunet_nacl.losses._base import at_once

Make = Callable[..., SegmentationLoss]

LOSSES: dict[str, Make] = {
    "CE": losses.CrossEntropyLoss,
    "FL": losses.FocalLoss,
    "FL with a root": lambda **shared: losses.FocalLoss(gamma=0.5, **shared),  # whose slope at certainty is infinite
    "ECP": losses.ECPLoss,
    "LS": losses.LabelSmoothingLoss,
    "SVLS": lambda **shared: losses.SVLSLoss(sigma=0.7, kernel_size=5, **shared),
    "MbLS": lambda **shared: losses.MbLSLoss(margin=0.5, **shared),
    "NACL": losses.NACLLoss,
    "NACL l2 gaussian": lambda **shared: losses.NACLLoss(penalty="l2", prior="gaussian", **shared),
    "CRaC": lambda **shared: losses.CRaCLoss(margin=2, rho=0.3, **shared),
    "FLSD": losses.FLSDLoss,
    "DualFL": losses.DualFocalLoss,
    "FCL": losses.FocalCalibrationLoss,
    "NACL softmax sum": lambda **shared: losses.NACLLoss(constraint="softmax", class_reduction="sum", **shared),
}


class NoDice(nn.Module):
    """In place of nnU-Net's, whose softmax is not for regions."""

    def forward(self, logits: Tensor, target: Tensor, loss_mask: Tensor | None) -> Tensor:  # noqa: ARG002
        return logits.new_zeros(())


def ace(**settings: object) -> losses.DiceACE:
    return losses.DiceACE(NoDice(), ace_weight=1, **settings)


TERMS: dict[str, Callable[..., losses.ImageTerm]] = {
    "DicePP": losses.DicePlusPlus,
    "SoftDice": losses.SoftDice,
    "soft ACE": ace,
    "hard ACE": lambda **shared: ace(bins="hard", **shared),
}
"""Each is added to label smoothing."""
CLASSES, IGNORE = 3, 3
SPATIAL = {"2d": (6, 5), "3d": (3, 4, 3)}

each_loss = pytest.mark.parametrize("name", LOSSES)
each_kind = pytest.mark.parametrize(
    ("name", "regions"),
    [(name, regions) for regions in (False, True) for name in LOSSES if not (regions and name == "MbLS")],
)
each_kind_and_term = pytest.mark.parametrize(
    ("name", "regions"),
    [(name, regions) for regions in (False, True) for name in (*LOSSES, *TERMS) if not (regions and name == "MbLS")],
)
each_shape = pytest.mark.parametrize("spatial", SPATIAL.values(), ids=SPATIAL)
with_ignored = pytest.mark.parametrize("ignore", [False, True], ids=["all", "ignore"])


def make(name: str, *, regions: bool = False, ignore: bool = False, term: nn.Module | None = None) -> SegmentationLoss:
    if name in TERMS:
        return make("LS", regions=regions, ignore=ignore, term=TERMS[name](regions=regions))
    return LOSSES[name](regions=regions, ignore_label=IGNORE if ignore else None, term=term)


def draw(spatial: tuple[int, ...] = (6, 5), *, regions: bool = False, ignore: bool = False) -> tuple[Tensor, Tensor]:
    """Float64 logits of two samples, and labels or masks."""
    logits = 3 * torch.randn(2, CLASSES, *spatial, dtype=torch.float64)
    if regions:
        return logits, torch.rand(2, CLASSES + ignore, *spatial) < 0.4
    return logits, torch.randint(CLASSES + ignore, (2, 1, *spatial))


def ignored_of(target: Tensor, *, regions: bool) -> Tensor:
    return target[:, -1:].bool() if regions else target == IGNORE


def nnunets_dice() -> nn.Module:
    return MemoryEfficientSoftDiceLoss(
        apply_nonlin=softmax_helper_dim1, batch_dice=True, do_bg=False, smooth=1e-5, ddp=False
    )


def value_and_gradient(
    call: Callable[[Tensor, Tensor], Tensor], logits: Tensor, target: Tensor
) -> tuple[Tensor, Tensor]:
    leaf = logits.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    value = call(leaf, target)
    return value.detach(), torch.autograd.grad(value, leaf)[0]


def assert_same(loss: SegmentationLoss, logits: Tensor, target: Tensor, tolerance: float = 1e-12) -> None:
    """In pieces as at once: the value to ``tolerance`` of itself, the gradient to that of its largest entry."""
    value, gradient = value_and_gradient(loss, logits, target)
    expected, slope = value_and_gradient(partial(at_once, loss), logits, target)
    assert value.dtype == expected.dtype
    assert gradient.dtype == logits.dtype
    torch.testing.assert_close(value, expected, rtol=tolerance, atol=1e-12)
    scale = float(slope.abs().max()) or 1.0
    torch.testing.assert_close(gradient / scale, slope / scale, rtol=0, atol=tolerance)


def test_every_loss_is_here() -> None:
    assert set(trainers.LOSSES) == {name for name in LOSSES if " " not in name}


@each_kind_and_term
@pytest.mark.parametrize("spatial", [(6, 5), (3, 3, 3)], ids=["2D", "3D"])
@pytest.mark.parametrize("ignore", [pytest.param(False, marks=pytest.mark.slow), True], ids=["all", "ignore"])
def test_gradients(name: str, spatial: tuple[int, ...], regions: bool, ignore: bool) -> None:
    """Of a sample; test_pieces has two. In 2D, SVLS's window of 5 is whole, too."""
    logits, target = (one[:1] for one in draw(spatial, regions=regions, ignore=ignore))
    loss = make(name, regions=regions, ignore=ignore)
    assert torch.autograd.gradcheck(lambda x: loss(x, target), logits.requires_grad_())


@each_kind_and_term
@each_shape
@with_ignored
@pytest.mark.parametrize("piece", [1, 40, 1000])  # logits: a row, some rows, both samples
def test_pieces(
    name: str, spatial: tuple[int, ...], regions: bool, ignore: bool, piece: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setitem(_base.PIECE, "cpu", piece)
    logits, target = draw(spatial, regions=regions, ignore=ignore)
    loss = make(name, regions=regions, ignore=ignore)
    assert_same(loss, logits, target)
    for layout in (logits.mT.contiguous().mT, torch.cat([logits, logits], 1)[:, ::2]):
        assert_same(loss, layout, target)
    for dtype, tolerance in ((torch.float16, 2e-3), (torch.bfloat16, 2e-2), (torch.float32, 1e-6)):
        assert_same(loss, logits.to(dtype), target, tolerance)


@each_loss
def test_second_derivatives_and_torch_func(name: str) -> None:
    logits, labels = draw((3, 2), ignore=True)
    loss = make(name, ignore=True)
    assert torch.autograd.gradgradcheck(lambda x: 5 * loss(x, labels), logits.requires_grad_())
    expected = value_and_gradient(loss, logits, labels)[1]
    torch.testing.assert_close(torch.func.grad(loss)(logits.detach(), labels), expected)


@each_kind_and_term
@pytest.mark.parametrize("poison", [math.nan, math.inf, 1e4])
def test_ignored_voxels_add_nothing(name: str, regions: bool, poison: float) -> None:
    logits, target = draw(regions=regions, ignore=True)
    ignored = ignored_of(target, regions=regions)
    loss = make(name, regions=regions, ignore=True, term=None if regions else nnunets_dice())
    changed = target.clone()
    if regions:
        changed[:, :-1] ^= ignored
    expected, slope = value_and_gradient(loss, logits, target)
    value, gradient = value_and_gradient(loss, torch.where(ignored, poison, logits), changed)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(gradient, slope)
    assert ignored.any()
    assert not gradient[ignored.expand_as(gradient)].any()


@each_kind_and_term
def test_a_patch_of_only_ignored_voxels_gives_zero(name: str, regions: bool) -> None:
    logits, target = draw(regions=regions, ignore=True)
    loss = make(name, regions=regions, ignore=True, term=nnunets_dice())
    value, gradient = value_and_gradient(loss, logits, torch.full_like(target, True if regions else IGNORE))
    assert value.item() == 0.0
    assert not gradient.any()


@each_kind
def test_an_ignore_label_that_no_voxel_has_changes_nothing(name: str, regions: bool) -> None:
    logits, target = draw(regions=regions)
    expected = make(name, regions=regions)(logits, target)
    if regions:
        target = torch.cat([target, torch.zeros_like(target[:, :1])], 1)
    found = make(name, regions=regions, ignore=True)(logits, target)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", [name for name in (*LOSSES, *TERMS) if name != "SVLS"])
def test_an_ignored_half_is_as_good_as_cut_off(name: str) -> None:
    # Windows included. SVLS, which replicates what lies at the border, differs there by definition.
    logits, labels = draw()
    wide_logits = torch.cat([logits, logits.flip(-1)], -1)
    wide_labels = torch.cat([labels, torch.full_like(labels, IGNORE)], -1)
    torch.testing.assert_close(make(name, ignore=True)(wide_logits, wide_labels), make(name)(logits, labels))


@each_kind_and_term
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_huge_half_precision_logits_are_finite(name: str, regions: bool, dtype: torch.dtype) -> None:
    logits, target = draw(regions=regions)
    value, gradient = value_and_gradient(make(name, regions=regions), (1e4 * logits.sign()).to(dtype), target)
    assert torch.isfinite(value)
    assert torch.isfinite(gradient).all()


class Product(nn.Module):
    """Stands for a Dice that autocast would run in half precision."""

    def forward(self, logits: Tensor, target: Tensor, loss_mask: Tensor | None) -> Tensor:  # noqa: ARG002
        return (logits[0, 0] @ logits[0, 0].T).sum()


@pytest.mark.parametrize("name", [*LOSSES, *TERMS])
def test_autocast_changes_nothing(name: str) -> None:
    logits, labels = draw()
    half, loss = logits.bfloat16(), make(name, term=Product())
    expected = loss(half.float(), labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = loss(half, labels)
    assert found.dtype == torch.float32
    assert torch.equal(found, expected)


@each_kind
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.float16, torch.float64])
def test_targets_of_any_dtype(name: str, regions: bool, dtype: torch.dtype) -> None:
    """And labels without a channel, as torch and most loops have them."""
    logits, target = draw(regions=regions, ignore=True)
    loss = make(name, regions=regions, ignore=True, term=None if regions else nnunets_dice())
    for given in (target, *(() if regions else (target[:, 0],))):
        assert torch.equal(loss(logits, given.to(dtype)), loss(logits, target))


@each_kind_and_term
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_non_finite_logits_do_not_pass_silently(name: str, regions: bool, bad: float) -> None:
    logits, target = draw(regions=regions)
    logits[0, 1, 2, 3] = bad
    for label in (0, 1):
        target[0, 1 if regions else 0, 2, 3] = label
        assert not torch.isfinite(make(name, regions=regions)(logits, target))


@each_kind
def test_a_logit_of_minus_infinity(name: str, regions: bool) -> None:
    """Of another class than the voxel's it is a probability of 0, which some losses take."""
    logits, target = draw(regions=regions)
    logits[0, 1, 2, 3] = -math.inf
    target[0, 1 if regions else 0, 2, 3] = 0
    takes_it = not regions and name in {"CE", "FL", "FL with a root", "FLSD", "DualFL", "FCL", "NACL softmax sum"}
    assert torch.isfinite(make(name, regions=regions)(logits, target)) == takes_it


@pytest.mark.parametrize("name", [name for name in LOSSES if name not in {"MbLS", "CRaC"} and "NACL" not in name])
def test_regions_are_the_mean_over_cases_of_two_classes(name: str) -> None:
    # NACL's and CRaC's penalties differ by definition: they look at one logit for each region.
    logits, masks = draw(regions=True)
    alone = [
        make(name)(torch.cat([torch.zeros_like(logit), logit], 1), mask)
        for logit, mask in zip(logits.split(1, 1), masks.split(1, 1), strict=True)
    ]
    torch.testing.assert_close(make(name, regions=True)(logits, masks), torch.stack(alone).mean())


@each_loss
def test_permuting_classes_or_mirroring_changes_nothing(name: str) -> None:
    logits, labels = draw()
    order = torch.tensor([2, 0, 1])
    expected = make(name)(logits, labels)
    torch.testing.assert_close(make(name)(logits[:, order], order.argsort()[labels]), expected)
    torch.testing.assert_close(make(name)(logits.flip(-1), labels.flip(-1)), expected)


@each_loss
def test_labels_that_are_no_class(name: str) -> None:
    allowed = r"allowed are the whole numbers 0 to 2 \(3 logit channels\)\."
    for label, message in ((3, f"label 3; {allowed}"), (-100, f"label -100; {allowed}"), (1.9, "not whole numbers")):
        with pytest.raises(ValueError, match=message):
            make(name)(torch.zeros(1, 3, 1, 2), torch.tensor([[[[0, label]]]]))


@pytest.mark.parametrize("ignore_label", [257, -1])
def test_labels_do_not_wrap_around(ignore_label: int) -> None:
    logits, labels = torch.zeros(1, 2, 2, 2), torch.ones(1, 1, 2, 2, dtype=torch.uint8)
    loss = losses.CrossEntropyLoss(ignore_label=ignore_label)
    assert loss(logits, labels).item() == pytest.approx(math.log(2))
    with pytest.raises(ValueError, match=rf"the label 255; allowed are .* and the ignore label {ignore_label}\.$"):
        loss(logits, labels * 255)


def test_masks_that_are_not_binary() -> None:
    for value in (0.5, 255):
        with pytest.raises(ValueError, match="target holds values other than 0 and 1, which region masks must not"):
            losses.NACLLoss(regions=True)(torch.zeros(1, 2, 2, 2), torch.full((1, 2, 2, 2), value))


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU as any other device: no value of a target is read back."""
    monkeypatch.setattr(_target, "_VALUES_ARE_READ", frozenset())


@pytest.mark.usefixtures("unread")
@each_kind
@with_ignored
@pytest.mark.parametrize("with_dice", [False, True], ids=["alone", "dice"])
def test_unread_a_wrong_value_makes_the_loss_nan(name: str, regions: bool, ignore: bool, with_dice: bool) -> None:
    logits, target = draw(regions=regions, ignore=ignore)
    loss = make(name, regions=regions, ignore=ignore, term=nnunets_dice() if with_dice else None)
    assert torch.isfinite(loss(logits, target))
    for wrong in (255, -1, 1.5, 0.5, math.nan):
        changed = target.short() if isinstance(wrong, int) else target.float()
        changed[1, :CLASSES, 2, 3] = wrong
        changed[1, CLASSES:, 2, 3] = 0
        value, gradient = value_and_gradient(loss, logits, changed)
        assert value.isnan(), wrong
        assert gradient.isnan().any(), wrong
        changed[1, CLASSES:, 2, 3] = wrong  # neither ignored nor not
        assert loss(logits, changed).isnan(), wrong
        if regions and ignore:
            changed[1, CLASSES:, 2, 3] = 1
            assert torch.isfinite(loss(logits, changed)), wrong


@each_kind
@with_ignored
def test_the_formula_reads_nothing_back(
    name: str, regions: bool, ignore: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meta tensors have no values: a formula that asked for one would raise. Here, in pieces, as on CUDA."""
    monkeypatch.setitem(_base.PIECE, "meta", 1 << 24)
    channels = CLASSES + ignore if regions else 1
    target = torch.empty(2, channels, 6, 6, device="meta", dtype=torch.float32)
    logits = torch.empty(2, CLASSES, 6, 6, device="meta")
    loss = make(name, regions=regions, ignore=ignore, term=None if regions else nnunets_dice()).to("meta")
    for call in (loss, partial(at_once, loss)):
        assert value_and_gradient(call, logits, target)[1].shape == logits.shape
    # what is compiled on CUDA
    _, _, gradient, _ = _base._sum_and_gradient(loss, logits, target, not regions)
    assert gradient.shape == logits.shape


@pytest.mark.parametrize(
    ("channels", "target", "settings", "message"),
    [
        (3, (2, 4, 5), {}, "target must have the shape (2, 1, 4, 4), one label map, for logits of shape (2, 3, 4, 4)"),
        (3, (2, 1, 4, 4), {"regions": True}, "target must have the shape (2, 3, 4, 4), 3 region masks, for logits"),
        (3, (2, 3, 4, 4), {"regions": True, "ignore_label": 5}, "masks and, last, the mask of ignored voxels, for"),
        (1, (2, 1, 4, 4), {}, "A single sigmoid channel needs regions=True."),
    ],
)
def test_wrong_shapes(channels: int, target: tuple[int, ...], settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError) as error:
        losses.CrossEntropyLoss(**settings)(torch.zeros(2, channels, 4, 4), torch.zeros(target))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("loss", "setting", "value", "expected"),
    [
        (losses.LabelSmoothingLoss, "alpha", 1.5, "a number from 0 to 1; got 1.5."),
        (losses.SVLSLoss, "sigma", 0, "a number of at least 0.2; got 0."),
        (losses.NACLLoss, "weight", math.nan, "a number of at least 0; got nan."),
        (losses.NACLLoss, "kernel_size", 4, "an odd number of at least 3; got 4."),
        (losses.NACLLoss, "penalty", "l3", "one of 'l1', 'l2'; got 'l3'."),
        (losses.DicePlusPlus, "gamma", 0.5, "a number of at least 1; got 0.5."),
    ],
)
def test_wrong_settings(loss: Make, setting: str, value: object, expected: str) -> None:
    with pytest.raises(ValueError) as error:
        loss(**{setting: value})
    assert str(error.value) == f"{setting} must be {expected}"
