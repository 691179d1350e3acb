"""What every loss must do, whichever it is."""

import math
from collections.abc import Callable

import pytest
import torch
from nnunetv2.training.loss.dice import MemoryEfficientSoftDiceLoss
from nnunetv2.utilities.helpers import softmax_helper_dim1
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from nnunet_nacl import losses
from nnunet_nacl.losses import SegmentationLoss
from nnunet_nacl.losses._base import _without_autocast

Make = Callable[..., SegmentationLoss]

CLASS_LOSSES: dict[str, Make] = {
    "CE": losses.CrossEntropyLoss,
    "FL": losses.FocalLoss,
    "ECP": losses.ECPLoss,
    "LS": losses.LabelSmoothingLoss,
    "SVLS": losses.SVLSLoss,
    "MbLS": lambda **shared: losses.MbLSLoss(margin=0.5, **shared),
    "NACL": losses.NACLLoss,
    "NACL l2 gaussian": lambda **shared: losses.NACLLoss(penalty="l2", prior="gaussian", **shared),
    "NACL softmax sum": lambda **shared: losses.NACLLoss(constraint="softmax", class_reduction="sum", **shared),
}
REGION_LOSSES = {name: make for name, make in CLASS_LOSSES.items() if name != "MbLS"}

each_loss = pytest.mark.parametrize("make", CLASS_LOSSES.values(), ids=CLASS_LOSSES)
each_region_loss = pytest.mark.parametrize("make", REGION_LOSSES.values(), ids=REGION_LOSSES)
each_shape = pytest.mark.parametrize("spatial", [(4, 3), (2, 3, 2)], ids=["2d", "3d"])

CLASSES, IGNORE = 3, 3


def nnunets_dice() -> nn.Module:
    return MemoryEfficientSoftDiceLoss(
        apply_nonlin=softmax_helper_dim1, batch_dice=True, do_bg=False, smooth=1e-5, ddp=False
    )


def draw(generator: torch.Generator, spatial: tuple[int, ...], *, ignore: bool = False) -> tuple[Tensor, Tensor]:
    logits = torch.randn(2, CLASSES, *spatial, generator=generator, dtype=torch.float64)
    return logits, torch.randint(CLASSES + ignore, (2, 1, *spatial), generator=generator)


def draw_regions(
    generator: torch.Generator, spatial: tuple[int, ...], *, ignore: bool = False
) -> tuple[Tensor, Tensor]:
    logits = torch.randn(2, CLASSES, *spatial, generator=generator, dtype=torch.float64)
    return logits, torch.rand(2, CLASSES + ignore, *spatial, generator=generator) < 0.4


def gradient(loss: SegmentationLoss, logits: Tensor, target: Tensor) -> Tensor:
    leaf = logits.detach().clone().requires_grad_()
    (found,) = torch.autograd.grad(loss(leaf, target), leaf)
    return found


@each_loss
@each_shape
@pytest.mark.parametrize("ignore", [False, True])
def test_gradcheck(make: Make, generator: torch.Generator, spatial: tuple[int, ...], ignore: bool) -> None:
    logits, labels = draw(generator, spatial, ignore=ignore)
    loss = make(ignore_label=IGNORE if ignore else None, dice=nnunets_dice() if ignore else None)
    # Dice sums in float32, so that only a coarser step says anything.
    tolerances = {"eps": 1e-3, "atol": 1e-3} if ignore else {}
    assert torch.autograd.gradcheck(lambda x: loss(x, labels), logits.requires_grad_(), **tolerances)


@each_region_loss
@each_shape
@pytest.mark.parametrize("ignore", [False, True])
def test_gradcheck_regions(make: Make, generator: torch.Generator, spatial: tuple[int, ...], ignore: bool) -> None:
    logits, masks = draw_regions(generator, spatial, ignore=ignore)
    loss = make(regions=True, ignore_label=IGNORE if ignore else None)
    assert torch.autograd.gradcheck(lambda x: loss(x, masks), logits.requires_grad_())


@each_loss
def test_dice_is_added(make: Make, generator: torch.Generator) -> None:
    logits, labels = draw(generator, (4, 4))
    dice = nnunets_dice()
    torch.testing.assert_close(make(dice=dice)(logits, labels), make()(logits, labels) + dice(logits, labels))


@each_loss
@pytest.mark.parametrize("poison", [math.nan, math.inf, 1e4])
def test_ignored_voxels_add_nothing(make: Make, generator: torch.Generator, poison: float) -> None:
    logits, labels = draw(generator, (6, 5), ignore=True)
    ignored = (labels == IGNORE).expand_as(logits)
    assert ignored.any()
    loss = make(ignore_label=IGNORE, dice=nnunets_dice())
    poisoned = torch.where(ignored, torch.full_like(logits, poison), logits)
    torch.testing.assert_close(loss(poisoned, labels), loss(logits, labels))
    found = gradient(loss, poisoned, labels)
    torch.testing.assert_close(found, gradient(loss, logits, labels))
    assert not found[ignored].any()


@each_region_loss
def test_ignored_voxels_add_nothing_to_regions(make: Make, generator: torch.Generator) -> None:
    logits, masks = draw_regions(generator, (6, 5), ignore=True)
    ignored = masks[:, -1:].expand_as(logits)
    loss = make(regions=True, ignore_label=IGNORE)
    flipped = masks.clone()
    flipped[:, :-1] ^= ignored
    poisoned = torch.where(ignored, torch.full_like(logits, math.nan), logits)
    torch.testing.assert_close(loss(poisoned, flipped), loss(logits, masks))
    assert not gradient(loss, poisoned, flipped)[ignored].any()


@pytest.mark.parametrize("make", [make for name, make in CLASS_LOSSES.items() if name != "SVLS"])
def test_an_ignored_half_is_as_good_as_cut_off(make: Make, generator: torch.Generator) -> None:
    # Windows included. SVLS, which replicates what lies at the border, differs there by definition.
    logits, labels = draw(generator, (6, 4))
    wide_logits = torch.cat([logits, logits.flip(-1)], -1)
    wide_labels = torch.cat([labels, torch.full_like(labels, IGNORE)], -1)
    torch.testing.assert_close(make(ignore_label=IGNORE)(wide_logits, wide_labels), make()(logits, labels))


@each_loss
@pytest.mark.parametrize("with_dice", [False, True])
def test_a_patch_of_only_ignored_voxels_gives_zero(make: Make, generator: torch.Generator, with_dice: bool) -> None:
    logits, labels = draw(generator, (4, 4))
    loss = make(ignore_label=IGNORE, dice=nnunets_dice() if with_dice else None)
    only_ignored = torch.full_like(labels, IGNORE)
    assert loss(logits, only_ignored).item() == 0.0
    assert not gradient(loss, logits, only_ignored).any()


@each_region_loss
def test_regions_of_only_ignored_voxels_give_zero(make: Make, generator: torch.Generator) -> None:
    logits, _ = draw_regions(generator, (4, 4))
    loss = make(regions=True, ignore_label=IGNORE)
    masks = torch.ones(2, CLASSES + 1, 4, 4, dtype=torch.bool)
    assert loss(logits, masks).item() == 0.0
    assert not gradient(loss, logits, masks).any()


@each_loss
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_huge_half_precision_logits_have_finite_gradients(
    make: Make, generator: torch.Generator, dtype: torch.dtype
) -> None:
    logits, labels = draw(generator, (4, 4))
    huge = (1e4 * logits.sign()).to(dtype)
    loss = make()
    assert torch.isfinite(loss(huge, labels))
    assert torch.isfinite(gradient(loss, huge, labels)).all()


@each_region_loss
def test_huge_half_precision_logits_have_finite_gradients_with_regions(make: Make, generator: torch.Generator) -> None:
    logits, masks = draw_regions(generator, (4, 4))
    huge = (1e4 * logits.sign()).half()
    assert torch.isfinite(make(regions=True)(huge, masks))
    assert torch.isfinite(gradient(make(regions=True), huge, masks)).all()


@each_loss
def test_autocast_changes_nothing(make: Make, generator: torch.Generator) -> None:
    logits, labels = draw(generator, (6, 6))
    half = logits.bfloat16()
    expected = make()(half.float(), labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = make()(half, labels)
    assert found.dtype == torch.float32
    assert torch.equal(found, expected)


class _Product(nn.Module):
    """Stands for a Dice that autocast would run in half precision."""

    def forward(self, logits: Tensor, target: Tensor, loss_mask: Tensor | None) -> Tensor:  # noqa: ARG002
        return (logits[0, 0] @ logits[0, 0]).sum()


def test_autocast_does_not_reach_dice(generator: torch.Generator) -> None:
    logits, labels = draw(generator, (6, 6))
    loss = losses.CrossEntropyLoss(dice=_Product())
    expected = loss(logits.float(), labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(loss(logits.float(), labels), expected)


def test_autocast_is_switched_off_where_torch_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def switched_off(device: str) -> bool:
        return isinstance(_without_autocast(device), torch.autocast)

    monkeypatch.setattr(torch.amp, "is_autocast_available", lambda device: device == "cpu", raising=False)
    assert [switched_off(device) for device in ("cpu", "mps")] == [True, False]
    monkeypatch.setattr(torch.amp, "is_autocast_available", lambda device: device == "other")
    assert not switched_off("cpu")
    monkeypatch.delattr(torch.amp, "is_autocast_available")  # as early versions of PyTorch have none
    assert [switched_off(device) for device in ("cpu", "cuda", "mps", "meta")] == [True, True, False, False]


@each_loss
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float64])
def test_labels_of_any_dtype(make: Make, generator: torch.Generator, dtype: torch.dtype) -> None:
    logits, labels = draw(generator, (6, 6), ignore=True)
    loss = make(ignore_label=IGNORE)
    assert torch.equal(loss(logits, labels.to(dtype)), loss(logits, labels))


@pytest.mark.parametrize("ignore_label", [257, -1])
def test_labels_do_not_wrap_around(ignore_label: int) -> None:
    logits, labels = torch.zeros(1, 2, 2, 2), torch.ones(1, 1, 2, 2, dtype=torch.uint8)
    loss = losses.CrossEntropyLoss(ignore_label=ignore_label)
    assert loss(logits, labels).item() == pytest.approx(math.log(2))
    with pytest.raises(ValueError, match="target holds labels from 255 to 255"):
        loss(logits, labels * 255)


@each_region_loss
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.float32])
def test_masks_of_any_dtype(make: Make, generator: torch.Generator, dtype: torch.dtype) -> None:
    logits, masks = draw_regions(generator, (6, 6))
    assert torch.equal(make(regions=True)(logits, masks.to(dtype)), make(regions=True)(logits, masks))


@each_loss
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_non_finite_logits_do_not_pass_silently(make: Make, generator: torch.Generator, bad: float) -> None:
    logits, labels = draw(generator, (6, 6))
    logits[0, 1, 2, 3] = bad
    assert not torch.isfinite(make()(logits, labels))


@each_region_loss
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("inside", [False, True])
def test_non_finite_logits_do_not_pass_silently_with_regions(
    make: Make, generator: torch.Generator, bad: float, inside: bool
) -> None:
    logits, masks = draw_regions(generator, (6, 6))
    logits[0, 1, 2, 3] = bad
    masks[0, 1, 2, 3] = inside
    assert not torch.isfinite(make(regions=True)(logits, masks))


@pytest.mark.parametrize("make", [make for name, make in REGION_LOSSES.items() if "NACL" not in name])
def test_regions_are_the_mean_over_cases_of_two_classes(make: Make, generator: torch.Generator) -> None:
    # NACL's penalty differs by definition: it looks at one logit for each region.
    logits, masks = draw_regions(generator, (6, 5))
    alone = [
        make()(torch.cat([torch.zeros_like(logit), logit], 1), mask)
        for logit, mask in zip(logits.split(1, 1), masks.split(1, 1), strict=True)
    ]
    torch.testing.assert_close(make(regions=True)(logits, masks), torch.stack(alone).mean())


@each_loss
def test_permuting_classes_or_mirroring_changes_nothing(make: Make, generator: torch.Generator) -> None:
    logits, labels = draw(generator, (6, 5))
    order = torch.tensor([2, 0, 1])
    torch.testing.assert_close(make()(logits[:, order], order.argsort()[labels]), make()(logits, labels))
    torch.testing.assert_close(make()(logits.flip(-1), labels.flip(-1)), make()(logits, labels))


# Without a driver, early versions of PyTorch make no tensor without values, and 2.6 aborts in autograd.
needs_fake_cuda = pytest.mark.skipif(
    torch.__version__ < "2.15" and not torch.cuda.is_available(), reason="needs PyTorch 2.15, or a CUDA device"
)


@needs_fake_cuda
@each_loss
@pytest.mark.parametrize("with_dice", [False, True])
def test_off_the_cpu_nothing_is_read_back(make: Make, with_dice: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # autograd runs for no device that is not there.
    monkeypatch.setattr(torch.autograd, "grad", lambda _, piece: (torch.empty_like(piece),))
    # Fake CUDA tensors have no values: a loss that asked for one, and so made the training loop wait, would raise.
    with FakeTensorMode():
        logits = torch.empty(2, CLASSES, 6, 6, device="cuda", dtype=torch.float16)
        labels = torch.empty(2, 1, 6, 6, device="cuda", dtype=torch.int16)
        loss = make(ignore_label=IGNORE, dice=nnunets_dice() if with_dice else None)
        assert loss(logits.requires_grad_(), labels).shape == ()  # computes the gradient, too


@needs_fake_cuda
@each_region_loss
def test_off_the_cpu_nothing_is_read_back_from_regions(make: Make) -> None:
    with FakeTensorMode():
        logits = torch.empty(2, CLASSES, 6, 6, device="cuda", dtype=torch.float16)
        masks = torch.empty(2, CLASSES + 1, 6, 6, device="cuda")
        assert make(regions=True, ignore_label=IGNORE)(logits, masks).shape == ()


@each_loss
def test_devices_without_autocast(make: Make) -> None:
    # As mps is to older versions of torch. Meta tensors have shapes only.
    logits = torch.empty(2, CLASSES, 6, 6, device="meta")
    assert make(ignore_label=IGNORE)(logits, torch.empty(2, 1, 6, 6, device="meta", dtype=torch.int16)).shape == ()


@each_region_loss
@pytest.mark.parametrize("channel", [0, CLASSES])
def test_masks_that_cannot_be_checked_make_the_loss_nan(
    make: Make, generator: torch.Generator, monkeypatch: pytest.MonkeyPatch, channel: int
) -> None:
    # What happens off the CPU, seen on it by switching off the check.
    monkeypatch.setattr("nnunet_nacl.losses._target._on_cpu", lambda _: False)
    logits, masks = draw_regions(generator, (6, 6), ignore=True)
    soft = masks.float()
    assert torch.isfinite(make(regions=True, ignore_label=IGNORE)(logits, soft))
    soft[0, channel, 2, 3] = 0.5
    assert make(regions=True, ignore_label=IGNORE)(logits, soft).isnan()


@each_loss
@pytest.mark.parametrize(
    ("labels", "found"), [([[0, 3]], "from 0 to 3"), ([[-1, 0]], "from -1 to 0"), ([[-100, 0]], "from -100 to 0")]
)
def test_labels_that_are_no_class(make: Make, labels: list[list[int]], found: str) -> None:
    with pytest.raises(ValueError) as error:
        make()(torch.zeros(1, 3, 1, 2), torch.tensor(labels)[None, None])
    assert str(error.value) == (
        f"target holds labels {found}; allowed are the whole numbers 0 to 2 (3 logit channels)."
    )


def test_a_single_voxel_of_no_class() -> None:
    with pytest.raises(ValueError, match="target holds labels from 7 to 7; allowed are the whole numbers 0 to 2"):
        losses.CrossEntropyLoss()(torch.zeros(1, 3, 1, 1), torch.full((1, 1, 1, 1), 7))
    with pytest.raises(ValueError, match=r"from 1 to 7; allowed are .* and the ignore label 9\.$"):
        losses.CrossEntropyLoss(ignore_label=9)(torch.zeros(1, 3, 1, 3), torch.tensor([[[[9, 7, 1]]]]))


@pytest.mark.parametrize("label", [0.5, math.nan])
def test_labels_that_are_no_whole_number(label: float) -> None:
    with pytest.raises(ValueError, match=r"allowed are the whole numbers 0 to 1 \(2 logit channels\) and the ignore"):
        losses.NACLLoss(ignore_label=2)(torch.zeros(1, 2, 1, 2), torch.tensor([[[[1.0, label]]]]))


def test_masks_that_are_not_binary() -> None:
    masks = torch.ones(1, 2, 2, 2)
    masks[0, 1, 0, 1] = 0.5
    with pytest.raises(ValueError, match=r"^target holds 0\.5; region masks may hold only 0 and 1\.$"):
        losses.NACLLoss(regions=True)(torch.zeros(1, 2, 2, 2), masks)


@pytest.mark.parametrize(
    ("logits", "target", "settings", "message"),
    [
        ((2, 3, 4, 4), (2, 4, 4), {}, "target must have the shape (2, 1, 4, 4), one label map, for logits of shape "),
        ((2, 3, 4, 4), (2, 1, 4, 5), {}, "target must have the shape (2, 1, 4, 4)"),
        ((2, 3, 4, 4), (1, 1, 4, 4), {}, "target must have the shape (2, 1, 4, 4)"),
        ((2, 3, 4, 4), (2, 1, 4, 4), {"regions": True}, "target must have the shape (2, 3, 4, 4), 3 region masks, for"),
        (
            (2, 3, 4, 4),
            (2, 3, 4, 4),
            {"regions": True, "ignore_label": 5},
            "target must have the shape (2, 4, 4, 4), 3 region masks and, last, the mask of ignored voxels",
        ),
        ((2, 3, 4), (2, 1, 4), {}, "logits must have the shape (b, K, H, W) or (b, K, D, H, W)"),
        ((2, 1, 4, 4), (2, 1, 4, 4), {}, "logits must have at least 2 channels"),
    ],
)
def test_wrong_shapes(
    logits: tuple[int, ...], target: tuple[int, ...], settings: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError) as error:
        losses.CrossEntropyLoss(**settings)(torch.zeros(logits), torch.zeros(target))
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ignore_label": 2.5}, "ignore_label must be a whole number or None; got 2.5."),
        ({"regions": 1}, "regions must be True or False; got 1."),
        ({"dice": True}, "dice must be a torch.nn.Module or None; got True."),
    ],
)
@each_loss
def test_wrong_shared_settings(make: Make, settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError) as error:
        make(**settings)
    assert str(error.value) == message


def test_integer_logits() -> None:
    with pytest.raises(ValueError, match=r"^logits must be of a floating dtype, got torch\.int64\.$"):
        losses.CrossEntropyLoss()(torch.zeros(1, 2, 2, 2, dtype=torch.int64), torch.zeros(1, 1, 2, 2))


@pytest.mark.parametrize(
    ("loss", "settings"),
    [
        (losses.CrossEntropyLoss, ""),
        (losses.FocalLoss, "gamma=3.0"),
        (losses.LabelSmoothingLoss, "alpha=0.1"),
        (losses.SVLSLoss, "sigma=2.0, kernel_size=3"),
        (losses.ECPLoss, "alpha=0.1, class_reduction='sum'"),
        (losses.MbLSLoss, "margin=5.0, weight=0.1"),
        (
            losses.NACLLoss,
            (
                "weight=0.1, prior='mean', sigma=1.0, kernel_size=3, penalty='l1', constraint='logits', "
                "class_reduction='mean', border='valid'"
            ),
        ),
    ],
)
def test_print_shows_the_settings(loss: Make, settings: str) -> None:
    """As in the training log; these are the defaults."""
    shown = "ignore_label=None, regions=False, dice=None"
    assert repr(loss()) == f"{loss.__name__}({shown}{', ' if settings else ''}{settings})"


def test_print_shows_changed_settings() -> None:
    shown = repr(losses.NACLLoss(weight=0.2, ignore_label=3, regions=True))
    assert shown.startswith("NACLLoss(ignore_label=3, regions=True, dice=None, weight=0.2, prior='mean'")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@each_loss
def test_cuda_equals_the_cpu_and_does_not_synchronize(make: Make, generator: torch.Generator) -> None:
    logits, labels = draw(generator, (16, 16), ignore=True)
    loss = make(ignore_label=IGNORE)
    expected = loss(logits.float(), labels)
    on_device = logits.float().cuda().requires_grad_(), labels.cuda()
    torch.cuda.set_sync_debug_mode("error")
    try:
        value = loss(*on_device)
        value.backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.testing.assert_close(value.cpu(), expected)
