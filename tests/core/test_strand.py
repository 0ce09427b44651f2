from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

from train_manager.core.strand import current, running_loop


def test_a_strand_is_the_same_wherever_the_same_thread_asks() -> None:
    assert current() == current()


def test_another_thread_is_another_current() -> None:
    strands = [current()]
    thread = threading.Thread(target=lambda: strands.append(current()))
    thread.start()
    thread.join()
    assert strands[0] != strands[1]


def test_each_task_of_one_thread_is_a_strand_of_its_own() -> None:
    async def both() -> tuple[object, object]:
        async def mine() -> object:
            return current()

        first, second = await asyncio.gather(mine(), mine())
        return first, second

    first, second = asyncio.run(both())
    assert first != second


def test_no_loop_runs_in_plain_code() -> None:
    assert running_loop() is None


def test_asyncio_is_not_imported_to_find_that_no_task_runs() -> None:
    code = (
        "import sys\n"
        "from train_manager import Extensible\n"
        "with Extensible().staged('work'):\n"
        "    print('asyncio' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
