from __future__ import annotations

import torch

from train_manager.runs.record.digests import digest_of_batches

X = torch.arange(600.0).view(200, 3)


class Note:
    """An object that is not known."""


def test_a_digest_of_all_batches_sees_each_number() -> None:
    digests = set()
    for place in range(0, 600, 37):
        changed = X.clone()
        changed.view(-1)[place] += 1
        batches = list(zip(changed.split(16), torch.arange(200).split(16), strict=True))
        digests.add(digest_of_batches(batches)["sha256"])

    assert len(digests) == 17


def test_a_digest_of_all_batches_says_what_it_could_not_read() -> None:
    found = digest_of_batches([{"inputs": X, "notes": Note()}])

    assert found["batches"] == 1
    assert [name.rpartition(":")[2] for name in found["unread"]] == ["Note"]
