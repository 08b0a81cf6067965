"""The command `backends`."""

import argparse

from oracle import backends, exits


def execute(options: argparse.Namespace) -> int:
    """Print a line for every backend on each of its devices, and return the exit code."""
    for name in backends.names():
        for device in backends.get(name).devices:
            reason = backends.unavailable(name, device)
            state = "ready" if reason is None else f"cannot run: {reason}"
            print(f"{name:17} {device:5} {state}", flush=True)
    return exits.PASS
