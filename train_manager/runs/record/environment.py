"""The environment of a program: all that its results may depend on, beside its code and its arguments.

No process is started for it, and no GPU is woken: the driver's files describe a GPU that is not in use yet.
Reading needs no torch.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from train_manager._version import __version__
from train_manager.files.secrets import looks_secret
from train_manager.runs.record.packages import packages

_NAMES: Final = """
CUDA_VISIBLE_DEVICES CUDA_LAUNCH_BLOCKING CUDA_DEVICE_ORDER CUBLAS_WORKSPACE_CONFIG NVIDIA_TF32_OVERRIDE
HIP_VISIBLE_DEVICES PYTHONHASHSEED PYTHONOPTIMIZE PYTHONPATH RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR
MASTER_PORT ATEN_CPU_CAPABILITY GOMP_CPU_AFFINITY CONDA_DEFAULT_ENV VIRTUAL_ENV SLURM_JOB_ID SLURM_JOB_NAME
SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_ID SLURM_PROCID SLURM_LOCALID SLURM_NTASKS SLURM_JOB_NODELIST SLURM_JOB_PARTITION
SLURM_CPUS_PER_TASK SLURM_RESTART_COUNT
"""
NAMED: Final = frozenset(_NAMES.split())
STARTS: Final = (
    *("OMP_", "KMP_", "MKL_", "NCCL_", "TORCH", "PYTORCH_", "OPENBLAS_", "DNNL_", "ONEDNN_"),
    "TRAIN_MANAGER_",
)
"""Variables are recorded if they are named here, or begin so: any other may be private."""

# Users' seeds are smaller, since NumPy takes no larger ones; of the seeds that torch draws, one in two million is.
LARGEST_SEED: Final = 2**32

OF_SKLEARN: Final = ("KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK")
"""Variables that importing scikit-learn sets; they change no result."""


def environment(patterns: Sequence[str] = ()) -> dict[str, Any]:
    """Return where this process runs. What cannot be read is left out.

    >>> found = environment()
    >>> list(found)
    ['python', 'train_manager', 'platform', 'packages', 'editable', 'torch', 'devices', 'threads', 'flags', 'seeds', \
'variables', 'patterns']

    Args:
        patterns: of the names of variables that are recorded too.
    """
    versions, editable = packages()
    return {
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "train_manager": __version__,
        "platform": platform_text(),
        "packages": versions,
        "editable": editable,
        "torch": torch_build(),
        "devices": devices(),
        "threads": threads(),
        "flags": flags(),
        "seeds": seeds(),
        "variables": variables(os.environ, patterns),
        "patterns": [*patterns],
    }


def chosen_seed(seeds: Mapping[str, Any]) -> int | None:
    """Return the seed that a program gave to torch; None if it is as large as a seed that torch draws by itself.

    >>> chosen_seed({"torch": 0}), chosen_seed({"torch": 6728042131072118}), chosen_seed({})
    (0, None, None)
    """
    seed = seeds.get("torch")
    return seed if isinstance(seed, int) and 0 <= seed < LARGEST_SEED else None


# ---- the parts -------------------------------------------------------------------------------------------------------


def platform_text() -> str:
    """Return the system, its kernel, the machine and the C library; ``platform.platform`` would start a process."""
    found = [platform.system(), platform.release(), platform.machine()]
    with contextlib.suppress(AttributeError, OSError, ValueError):
        found.append(os.confstr("CS_GNU_LIBC_VERSION") or "")
    return " ".join(part for part in found if part)


def torch_build() -> dict[str, Any]:
    """Return how the installed torch was built, and which instructions of the CPU it uses."""
    import torch

    return {
        "version": str(torch.__version__),
        "git": torch.version.git_version,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "cudnn": _read(torch.backends.cudnn.version) if torch.version.cuda else None,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "mkl": _search(r"Math Kernel Library Version (\S+)", torch.__config__.show()),
        "onednn": _search(r"MKL-DNN (v\S+)", torch.__config__.show()),
    }


def devices() -> dict[str, Any]:
    """Return the CPU and the GPUs of this machine."""
    found: dict[str, Any] = {"cpu": _cpu_model(), "cpus": os.cpu_count()}
    with contextlib.suppress(AttributeError, OSError):
        found["usable_cpus"] = len(os.sched_getaffinity(0))
    found["gpus"] = [{"name": name} for name in _read(_gpus) or ()]
    return found


def threads() -> dict[str, int]:
    """Return the numbers of threads, on which the last bits of results depend."""
    # A sum is split among the threads, and floats are rounded otherwise in another order of addition.
    import torch

    return {"torch": torch.get_num_threads(), "torch_interop": torch.get_num_interop_threads()}


def flags() -> dict[str, Any]:
    """Return the settings of torch on which the repeatability of results depends.

    A setting that torch refuses to tell is None, as that of TF32 after a program has used both of its interfaces.
    """
    import torch

    cudnn, cuda = torch.backends.cudnn, torch.backends.cuda
    readers: dict[str, Callable[[], Any]] = {
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled,
        "deterministic_warn_only": torch.is_deterministic_algorithms_warn_only_enabled,
        "cudnn_enabled": lambda: cudnn.enabled,
        "cudnn_deterministic": lambda: cudnn.deterministic,
        "cudnn_benchmark": lambda: cudnn.benchmark,
        "cudnn_allow_tf32": lambda: cudnn.allow_tf32,
        "float32_matmul_precision": torch.get_float32_matmul_precision,
        "flash_attention": cuda.flash_sdp_enabled,
        "memory_efficient_attention": cuda.mem_efficient_sdp_enabled,
        "mkldnn_enabled": lambda: torch.backends.mkldnn.enabled,
        "default_dtype": lambda: str(torch.get_default_dtype()).removeprefix("torch."),
        "default_device": lambda: str(torch.get_default_device()),
        "autocast_cpu": lambda: _autocast("cpu"),
        "autocast_cuda": lambda: _autocast("cuda"),
        "flush_denormal": lambda: sys.float_info.min * float("0.5") == 0.0,  # a flag of the thread that asks
    }
    return {name: _read(reader) for name, reader in readers.items()}


def seeds() -> dict[str, int]:
    """Return the seed of torch's generator of the CPU.

    Without a call of ``torch.manual_seed`` it is a random number of 53 bits, with which ``manual_seed`` repeats the
    draws. The generators of NumPy and ``random`` do not keep their seeds.
    """
    import torch

    return {"torch": torch.initial_seed()}


def variables(given: Mapping[str, str], patterns: Sequence[str] = ()) -> dict[str, str]:
    """Return the environment variables that can change results or name the job, and those that patterns name.

    A secret is left out.

    >>> variables({"OMP_NUM_THREADS": "2", "HOME": "/home/me", "TORCH_HUB_TOKEN": "abc", "APP_LR": "1"}, ["APP_*"])
    {'APP_LR': '1', 'OMP_NUM_THREADS': '2'}
    """
    chosen = {name: value for name, value in sorted(given.items()) if is_recorded(name, patterns)}
    return {name: value for name, value in chosen.items() if not looks_secret(name, value)}


def is_recorded(name: str, patterns: Sequence[str] = ()) -> bool:
    """Return whether a variable is recorded, if it is not a secret."""
    return name in NAMED or name.startswith(STARTS) or matches(name, patterns)


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Return whether a pattern of the user means a variable."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


# ---- their details ---------------------------------------------------------------------------------------------------


def _read(reader: Callable[[], Any]) -> Any:
    try:
        return reader()
    except Exception:  # torch raises a RuntimeError where it cannot tell, also after an error of the GPU
        return None


def _autocast(device: str) -> str | None:
    import torch

    return str(torch.get_autocast_dtype(device)).removeprefix("torch.") if torch.is_autocast_enabled(device) else None


def _search(pattern: str, text: str) -> str | None:
    match = re.search(pattern, text)
    return match[1] if match else None


def _cpu_model() -> str:
    with contextlib.suppress(OSError):
        info = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        return _search(r"(?m)^model name\s*:\s*(.+)$", info) or platform.machine()
    return platform.machine()


def _gpus() -> list[str | None]:
    """Return the names of the GPUs: as CUDA has them if this process uses it, else as the driver has them."""
    import torch

    # Asking CUDA for a device would initialize it, which takes seconds and memory of a GPU that is not used.
    if torch.cuda.is_initialized():
        return [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    files = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    return [_search(r"(?m)^Model:\s*(.+)$", file.read_text(encoding="utf-8", errors="replace")) for file in files]
