"""The RDMA device of --provider=verbs."""

import pathlib

from comparison.errors import ComparisonError, UsageError

_DEVICES = pathlib.Path("/sys/class/infiniband")


def check(options) -> None:
    """ComparisonError: this machine has no device; UsageError: not the one that --device names."""
    if options.provider != "verbs":
        return
    found = sorted(path.name for path in _DEVICES.iterdir()) if _DEVICES.is_dir() else []
    if not found:
        raise ComparisonError("--provider=verbs needs an RDMA device, and this machine has none: load its driver, or make a Soft-RoCE device "
                              "of a network interface (modprobe rdma_rxe; rdma link add rxe0 type rxe netdev NAME); docs/verbs.md")
    if options.device and options.device.split(":")[0] not in found:
        raise UsageError(f"--device={options.device}: this machine has {', '.join(found)}")
