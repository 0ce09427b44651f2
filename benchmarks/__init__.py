"""What stages and training steps cost, here and in other toolkits; never part of the tests.

    python -m benchmarks                    runs all of them and writes the page docs/explanation/benchmarks.md
    python -m benchmarks --quick            a look at all of them in a minute; writes nothing
    python -m benchmarks dispatch loop      runs some; writes nothing

Where a bare step takes 0.2 ms, all of them with the other toolkits take some eight minutes.

A file that has a function ``section`` is a benchmark: ``section(...)`` measures, ``QUICK`` are its sizes for a quick
look, and ``__main__.py`` lists it. ``measure.py`` says how things are measured, ``section.py`` what a benchmark hands
back, ``page.py`` and ``pictures.py`` how that is shown. What it takes to run another toolkit is in ``peers/``, and
whole trainings with each are in ``programs/``.
"""
