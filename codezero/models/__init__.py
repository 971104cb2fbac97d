"""`CPU_ONLY=1`: no accelerator is touched. Imports nothing heavy, because it has to come before torch does."""

import os

VARIABLE = "CPU_ONLY"
HIDING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
"""Drivers show a process only the cards that these name: none."""


def cpu_only() -> bool:
    """Did the user ask for it? Empty, 0, false and no mean no."""
    return os.environ.get(VARIABLE, "").strip().lower() not in ("", "0", "false", "no")


def hide_devices() -> None:
    """Where it was asked for: hide every card from this process and its children. To be called before torch loads."""
    if cpu_only():
        os.environ |= dict.fromkeys(HIDING, "")
        os.environ["ACCELERATE_USE_CPU"] = "true"  # else it asks for a card when TRL is imported
