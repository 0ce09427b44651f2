"""Rows A26 and A27 of the capabilities, as far as the engine serves them."""

from __future__ import annotations

import pytest

from train_manager import CheckError, Extensible, Extension, HookError, provides


class Loop(Extensible):
    """A loop with an event of its own."""

    def train(self) -> None:
        with self.staged("epoch"):
            with self.staged("my_event", {"x": 1}):
                pass


def test_a26_an_unknown_event_is_refused() -> None:
    with pytest.raises(CheckError, match=r"post_my_evnt names no stage(.|\n)*did you mean 'my_event'\?"):
        Loop([Extension.of(post_my_evnt=lambda: None)]).check()


def test_a26_an_event_in_the_words_of_another_tool_is_refused() -> None:
    class Handler(Extension):
        def on_my_event(self) -> None: ...

    with pytest.raises(HookError, match=r"Handler.on_my_event looks like a hook, but would never run"):
        Loop([Handler()])


def test_a27_events_of_ones_own_are_stages() -> None:
    seen = []
    loop = Loop([Extension.of(pre_my_event=lambda x: seen.append(x))])
    assert loop.check() == []
    loop.train()
    assert seen == [1]


@pytest.mark.parametrize("turned", [False, True])
def test_a27_handlers_may_be_attached_in_any_order(turned: bool) -> None:
    """That the mode of a monitor is given or refused comes with the extension that monitors."""

    class Metric(Extension):
        @provides("metric")
        def post_my_event(self, x: int) -> int:
            return 10 * x

    seen: list[int] = []
    handlers = [Extension.of(post_my_event=lambda metric: seen.append(metric)), Metric()]
    Loop(handlers[::-1] if turned else handlers).train()
    assert seen == [10]
