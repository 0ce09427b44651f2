"""What stages and training steps cost, here and in other toolkits; never part of the tests.

    python -m benchmarks                    runs all of them and writes the page docs/explanation/benchmarks.md
    python -m benchmarks --quick            a look at all of them in a minute; writes nothing
    python -m benchmarks dispatch loop      runs some; writes nothing

All take three minutes, and one and a half for the soak; with the other toolkits nine in all.

A file that has a function ``section`` is a benchmark: ``section(...)`` measures, ``QUICK`` are its sizes for a quick
look, and ``__main__.py`` lists it. ``measure.py`` says how things are measured, ``section.py`` what a benchmark hands
back, ``page.py`` and ``pictures.py`` how that is shown. What it takes to run another toolkit is in ``peers/``.
"""
