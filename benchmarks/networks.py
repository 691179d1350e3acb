"""Parameters of each network of a data set's plans, and the CPU time of a training step with one thread.

    python benchmarks/networks.py -d 4 -c 2d_bs8 --batch_size 8

Measures CONFIGURATION and every CONFIGURATION_NETWORK that `nnunet_nacl paper networks` has added to the plans:
forward, cross-entropy, backward and Adam on random images, in float32 and with bfloat16 autocast. CPU time, the least
of a few steps, is not much disturbed by other work on the machine.
"""

import argparse
import contextlib
import time

import torch
from torch import nn

from nnunet_nacl.nnunet import PlansJson
from nnunet_nacl.paper.networks import NETWORKS

STEPS = 3


def step_seconds(network: nn.Module, images: torch.Tensor, *, half: bool) -> float:
    """CPU time of a training step."""
    adam = torch.optim.Adam(network.parameters(), lr=1e-4)
    times = []
    for _ in range(STEPS):
        start = time.process_time()
        adam.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16) if half else contextlib.nullcontext():
            outputs = network(images)
            loss = sum(
                nn.functional.cross_entropy(one, torch.zeros_like(one[:, 0], dtype=torch.long))
                for one in outputs[:-1]
            )
        loss.backward()
        adam.step()
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-d", required=True)
    parser.add_argument("-c", required=True)
    parser.add_argument("-p", default="nnUNetPlans")
    parser.add_argument("--batch_size", type=int, default=8)
    options = parser.parse_args()
    torch.set_num_threads(1)
    plans = PlansJson.find(options.d, options.c, options.p)
    print(
        "| configuration | patch | parameters (M) | float32 (s) | bfloat16 (s) |\n| --- | --- | ---: | ---: | ---: |"
    )
    for name in [options.c, *(f"{options.c}_{network}" for network in NETWORKS)]:
        if name not in plans.content["configurations"]:
            continue
        size = plans.resolved(name)["patch_size"]
        network, channels = plans.build_network(name)
        images = torch.randn(options.batch_size, channels, *size)
        parameters = sum(parameter.numel() for parameter in network.parameters()) / 1e6
        single, half = (step_seconds(network.train(), images, half=half) for half in (False, True))
        print(
            f"| {name} | {'x'.join(map(str, size))} | {parameters:.2f} | {single:.2f} | {half:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
