"""The job of several machines that the page shows: run with two torchruns in place of Slurm's machines."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.ranks import free_port

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "many-ranks.md").read_text(encoding="utf-8")
MACHINES = {
    # What Slurm has: the command runs on each machine, here twice on this one.
    "srun": '#!/bin/bash\nfor node in 0 1; do SLURM_NODEID=$node "$@" & done\nwait\n',
    "scontrol": '#!/bin/bash\n[ "$1 $2 $3" = "show hostnames here,there" ] && echo 127.0.0.1 && echo there\n',
    "torchrun": '#!/bin/bash\nset -- "${@/29500/$PORT}"\n'
    'exec "$PYTHON" -m torch.distributed.run --node-rank "$SLURM_NODEID" --local-addr 127.0.0.1 "$@"\n',
}


@pytest.mark.whole
@pytest.mark.slow
def test_the_job_of_several_machines_trains_on_all_of_them(tmp_path: Path) -> None:
    script = re.search(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    program = re.search(r"```python\n(# train\.py\n.*?)```", PAGE, re.DOTALL)
    assert script is not None
    assert program is not None
    (tmp_path / "job.sh").write_text(script[1])
    # Into files: what two processes print may come out mixed.
    note = "open(f'of-rank-{tm.ranks.place.rank}', 'w').write(f'{tm.ranks.place.number} {tm.step_num}')"
    (tmp_path / "train.py").write_text(f"{program[1]}{note}\n")
    for name, text in MACHINES.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    slurm = {"SLURM_JOB_NODELIST": "here,there", "SLURM_NNODES": "2", "SLURM_GPUS_ON_NODE": "1", "SLURM_JOB_ID": "7"}
    own = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHON": sys.executable, "PORT": str(free_port())}
    own |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}

    ended = subprocess.run(
        ["bash", "job.sh"],
        cwd=tmp_path,
        env={**os.environ, **slurm, **own},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    found = {path.name: path.read_text() for path in sorted(tmp_path.glob("of-rank-*"))}
    assert found == {"of-rank-0": "2 30", "of-rank-1": "2 30"}, ended.stdout + ended.stderr
