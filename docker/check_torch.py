"""Is the torch that was installed of the kind that TORCH_BACKEND names? Exit code 1 with one line: no."""

import sys

import torch


def problem(backend: str) -> str:
    """Empty: it is."""
    built_for = torch.version.cuda or torch.version.hip
    if backend == "cpu" and built_for:
        return (
            f"torch {torch.__version__} carries GPU libraries, gigabytes of them, and TORCH_BACKEND=cpu was asked for"
        )
    if backend not in ("cpu", "auto") and not built_for:
        return f"torch {torch.__version__} knows no GPU, and TORCH_BACKEND={backend} was asked for"
    return ""


if __name__ == "__main__":
    found = problem(sys.argv[1])
    sys.exit(f"{found}; give a BUILD_IMAGE whose pip finds the other build of torch" if found else 0)
