"""pluggy: hooks of plugins are called with their arguments by name."""

from __future__ import annotations

from itertools import repeat

import pluggy

from benchmarks.subscribers import Stage, subscribers

spec = pluggy.HookspecMarker("benchmark")
implementation = pluggy.HookimplMarker("benchmark")


class Specs:
    """The hook point."""

    @spec
    def pre_work(self, value: int) -> None: ...

    @spec
    def post_work(self, value: int) -> None: ...


def stage(count: int) -> Stage:
    plugins = subscribers(count, before="pre_work(self, value)", after="post_work(self, value)")
    manager = pluggy.PluginManager("benchmark")
    manager.add_hookspecs(Specs)
    for plugin in plugins:
        implementation(type(plugin).pre_work)
        implementation(type(plugin).post_work)
        manager.register(plugin)
    hook = manager.hook

    def run(times: int) -> None:
        for _ in repeat(None, times):
            hook.pre_work(value=1)
            hook.post_work(value=1)

    return Stage(run, plugins)
