"""What stages and training steps cost, here and in other toolkits; never part of the tests.

    python -m benchmarks                    runs all of them and writes docs/benchmarks.md, with its pictures
    python -m benchmarks --quick            a look at all of them in a minute; writes nothing
    python -m benchmarks dispatch loop      runs some, and renews their sections of the page

Each file beside ``measure.py``, ``section.py`` and ``page.py`` is one benchmark: ``section(...)`` measures, ``QUICK``
holds its sizes for a quick look. What it takes to run other toolkits is in ``peers/``, one file each.
"""
