"""Value and gradient compiled as one, as on a GPU, here on the CPU: the same values, few compilations, a way back."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from nnunetv2.training.loss.compound_losses import DC_and_CE_loss
from nnunetv2.training.loss.dice import MemoryEfficientSoftDiceLoss
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.profiler import ProfilerActivity, profile

from nnunet_nacl import losses
from nnunet_nacl.losses import DiceACE, DicePlusPlus, SegmentationLoss, SoftDice, _base, _compiled, _target
from tests.losses.test_laws import (
    NoDice,
    draw,
    each_kind,
    make,
    nnunets_dice,
    value_and_gradient,
    with_ignored,
)

pytestmark = pytest.mark.filterwarnings("ignore")  # what torch says while it traces is torch's own
on_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
# nnU-Net's outputs, of full resolution first
SCALES = {
    "3d": [(24, 20, 16), (24, 10, 8), (12, 5, 4), (6, 3, 2), (3, 2, 1)],
    "3d cubes": [(32, 32, 32), (16, 16, 16), (8, 8, 8), (4, 4, 4)],
    "2d": [(96, 64), (48, 32), (24, 16), (12, 8), (6, 4), (3, 2)],
}


MOST = 4
"""Compilations for all scales: the first size, any other, and where axes keep their length or end at one voxel."""


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The CPU as if it were a GPU: no value is read back, and value and gradient are compiled as one, by Inductor."""
    monkeypatch.setattr(_target, "_VALUES_ARE_READ", frozenset())
    monkeypatch.setattr(_base, "_COMPILED_ON", frozenset({"cpu"}))
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


@pytest.fixture
def tracing(compiling: None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001
    """The same without code: what was traced, forward and backward, is run by torch itself."""
    monkeypatch.setattr(_compiled, "BACKEND", "aot_eager")


def check(loss: SegmentationLoss, logits: Tensor, target: Tensor, rtol: float = 1e-6) -> None:
    """The value to 1e-6 of that in pieces, the gradient to 1e-6 of its largest entry, or to its dtype's digits."""
    logits = logits.float() if logits.dtype == torch.float64 else logits
    loss.compiled = False
    expected, slope = value_and_gradient(loss, logits, target)
    loss.compiled = True
    value, gradient = value_and_gradient(loss, logits, target)
    assert loss.compiled
    assert gradient.dtype == logits.dtype
    torch.testing.assert_close(value, expected, rtol=rtol, atol=1e-7)
    scale = float(slope.abs().max())
    tolerance = 1e-6 if logits.dtype == torch.float32 else torch.finfo(logits.dtype).eps
    torch.testing.assert_close(gradient / scale, slope / scale, rtol=0, atol=tolerance)
    with torch.no_grad():
        assert torch.equal(loss(logits, target), value)


def of_scales(scales: str, *, regions: bool, ignore: bool) -> list[tuple[Tensor, Tensor]]:
    pairs = [draw(size, regions=regions, ignore=ignore) for size in SCALES[scales]]
    return [(logits.float(), target if regions else target.short()) for logits, target in pairs]


@pytest.mark.slow
@pytest.mark.usefixtures("tracing")
@each_kind
@with_ignored
def test_the_same_as_in_pieces(name: str, regions: bool, ignore: bool) -> None:
    logits, target = draw(regions=regions, ignore=ignore)
    check(make(name, regions=regions, ignore=ignore), logits, target)


@pytest.mark.usefixtures("tracing")
@pytest.mark.parametrize(("dtype", "regions"), [(torch.float16, True), (torch.bfloat16, False)])
def test_half_precision_and_dice(dtype: torch.dtype, regions: bool) -> None:
    logits, target = draw(regions=regions, ignore=True)
    check(make("NACL", regions=regions, ignore=True, term=nnunets_dice()), logits.to(dtype), target)


@pytest.mark.usefixtures("tracing")
@pytest.mark.parametrize("regions", [False, True])
@pytest.mark.parametrize("batch", [False, True])
def test_terms(regions: bool, batch: bool) -> None:
    shared = {"regions": regions, "batch": batch}
    terms = (DicePlusPlus(**shared), SoftDice(**shared), DiceACE(NoDice(), **shared), DiceACE(NoDice(), bins="hard"))
    for term in terms[: 3 if regions else 4]:
        logits, target = draw(regions=regions, ignore=True)
        check(make("SVLS", regions=regions, ignore=True, term=term), logits, target)


@pytest.mark.usefixtures("tracing")
def test_weights_that_adapt_are_not_compiled_in() -> None:
    loss = make("CRaC")
    logits, labels = draw()
    for epoch in range(12):
        check(loss, logits, labels)
        loss.observe(logits, labels)
        loss.end_epoch(epoch)
    assert counters["stats"]["unique_graphs"] <= MOST


class CountedDice(nn.Module):
    """nnU-Net's, which counts its calls but for those of the compiled code."""

    def __init__(self, *, ddp: bool) -> None:
        super().__init__()
        self.term = nnunets_dice()
        self.ddp = ddp
        self.calls = 0

    def forward(self, logits: Tensor, target: Tensor, loss_mask: Tensor | None) -> Tensor:
        if not torch.compiler.is_compiling():
            self.calls += 1
        value: Tensor = self.term(logits, target, loss_mask=loss_mask)
        return value


@pytest.mark.usefixtures("tracing")
def test_dice_is_part_of_the_code() -> None:
    """Unless it waits for other processes, or does not say that it never does."""
    logits, target = draw()
    silent = CountedDice(ddp=False)
    del silent.ddp
    for dice, waits in ((CountedDice(ddp=False), False), (CountedDice(ddp=True), True), (silent, True)):
        loss = make("CE", term=dice)
        check(loss, logits, target)
        dice.calls = 0
        loss(logits.float(), target)
        assert dice.calls == waits
        assert loss.compiled


@pytest.mark.usefixtures("tracing")
@pytest.mark.parametrize("scales", ["2d", *(pytest.param(each, marks=pytest.mark.slow) for each in ("3d", "3d cubes"))])
def test_deep_supervision_is_compiled_once(scales: str) -> None:
    """Few times for all scales, and not once more in later steps, nor in validation."""
    loss = make("NACL", ignore=True)
    loss.compiled = True
    steps = [of_scales(scales, regions=False, ignore=True) for _ in range(3)]
    for logits, target in steps[0]:
        value_and_gradient(loss, logits, target)
    compiled = counters["stats"]["unique_graphs"]
    assert 0 < compiled <= MOST
    for step in steps[1:]:
        for logits, target in step:
            value_and_gradient(loss, logits, target)
            with torch.no_grad():
                loss(logits, target)
    assert counters["stats"]["unique_graphs"] == compiled
    assert loss.compiled


def regions_run(loss: SegmentationLoss, pair: tuple[Tensor, Tensor]) -> list[str]:
    """What torch compiled and now runs, by number."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        loss(*pair)
    return [event.key for event in profiler.key_averages() if event.key.startswith("Torch-Compiled Region")]


@pytest.mark.usefixtures("tracing")
def test_full_resolution_keeps_its_own_code() -> None:
    """Code for any size, which smaller scales make torch compile, takes three times as long in 3D on a GPU."""
    loss = make("CE")
    loss.compiled = True
    full, *smaller = of_scales("2d", regions=False, ignore=False)[:3]
    loss(*full)
    before = regions_run(loss, full)
    assert len(before) == 1
    for pair in smaller:
        loss(*pair)
    assert regions_run(loss, full) == before
    assert {*regions_run(loss, smaller[0])}.isdisjoint(before)


@pytest.mark.usefixtures("compiling")
def test_without_a_compiler_it_is_computed_in_pieces(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    logits, labels = draw()
    loss = losses.NACLLoss(compiled=True)
    warned: list[str] = []
    loss.warn = warned.append
    expected = losses.NACLLoss()(logits, labels)
    # Not by monkeypatch, which would delete it afterwards
    with torch._inductor.config.patch({"cpp.cxx": ("no-such-compiler",)}):
        for _ in range(2):
            assert torch.equal(loss(logits, labels), expected)
    (line,) = warned
    assert line.startswith("NACLLoss could not be compiled and takes longer now, with the same values: ")
    assert "\n" not in line
    assert not loss.compiled
    monkeypatch.setattr(_compiled, "BACKEND", "no-such-backend")
    with pytest.warns(UserWarning, match="NACLLoss could not be compiled"):
        losses.NACLLoss(compiled=True)(logits, labels)


def test_on_a_cpu_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_base, "run_compiled", None)
    losses.NACLLoss(compiled=True)(*draw())


@pytest.mark.slow
@pytest.mark.usefixtures("compiling")
@pytest.mark.parametrize("name", ["CE", "NACL", "SVLS"])
@pytest.mark.parametrize("regions", [False, True])
def test_with_inductor(name: str, regions: bool) -> None:
    loss = make(name, regions=regions, ignore=regions, term=None if regions else nnunets_dice())
    for logits, target in of_scales("2d", regions=regions, ignore=regions):
        check(loss, logits, target, rtol=3e-6)  # on a CPU, what it compiles adds up one by one, in single precision
    assert counters["stats"]["unique_graphs"] <= MOST


SCALED = 2.0**16
"""As a gradient scaler does: the mean's own gradient is below what float16 holds with all digits."""


def check_on_cuda(mean: SegmentationLoss, logits: Tensor, target: Tensor) -> None:
    """Value and gradient as on the CPU, compiled and in pieces, without a synchronization once it is compiled."""

    def loss(logits: Tensor, target: Tensor) -> Tensor:
        return SCALED * mean(logits, target)

    mean.compiled = False
    expected, slope = value_and_gradient(loss, logits, target)
    on_device = logits.cuda(), target.cuda()
    mean.cuda()
    for compiled in (False, True):
        mean.compiled = compiled
        value_and_gradient(loss, *on_device)
        torch.cuda.set_sync_debug_mode("error")
        try:
            value, gradient = value_and_gradient(loss, *on_device)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert mean.compiled == compiled
        torch.testing.assert_close(value.cpu(), expected, rtol=1e-6, atol=0)
        scale = float(slope.abs().max())
        tolerance = 1e-6 if logits.dtype == torch.float32 else 2 * torch.finfo(logits.dtype).eps
        torch.testing.assert_close(gradient.cpu() / scale, slope / scale, rtol=0, atol=tolerance)


@pytest.mark.gpu
@on_cuda
@each_kind
def test_on_cuda(name: str, regions: bool) -> None:
    torch._dynamo.reset()
    loss = make(name, regions=regions, ignore=True, term=None if regions else nnunets_dice())
    logits, target = draw((64, 48), regions=regions, ignore=True)
    check_on_cuda(loss, logits.float(), target)


@pytest.mark.gpu
@on_cuda
@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_deep_supervision_on_cuda(scales: str, dtype: torch.dtype) -> None:
    torch._dynamo.reset()
    counters.clear()
    loss = make("NACL", ignore=True)
    start = time.process_time()  # not of other tests beside it
    for logits, target in of_scales(scales, regions=False, ignore=True):
        # None of them a share such as 1/2 or 3/16: where both agree, rounding decides NACL's slope
        half = logits.to(dtype)
        check_on_cuda(loss, torch.where(16 * half == (16 * half).round(), half + 1 / 64, half), target)
    assert counters["stats"]["unique_graphs"] <= MOST
    assert time.process_time() - start < 30


@pytest.mark.gpu
@on_cuda
def test_memory_on_cuda() -> None:
    """Never above nnU-Net's Dice + CE."""
    torch._dynamo.reset()
    logits = torch.randn(2, 14, 64, 64, 64, device="cuda", dtype=torch.float16)
    labels = torch.randint(14, (2, 1, 64, 64, 64), device="cuda").float()
    dice = {"batch_dice": True, "smooth": 1e-5, "do_bg": False, "ddp": False}
    default = DC_and_CE_loss(dice, {}, dice_class=MemoryEfficientSoftDiceLoss)
    peaks = []
    for loss in (losses.NACLLoss(compiled=True), default):
        value_and_gradient(loss, logits, labels)
        torch.cuda.reset_peak_memory_stats()
        with torch.autocast("cuda"):
            value_and_gradient(loss, logits, labels)
        peaks.append(torch.cuda.max_memory_allocated())
    assert peaks[0] <= peaks[1]
