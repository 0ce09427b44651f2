"""The errors, under the name by which programs import them; they lie in ``train_manager.telling.errors``.

>>> from train_manager.errors import CheckpointError
>>> issubclass(CheckpointError, ValueError)
True
"""

from train_manager.telling.errors import *  # noqa: F403  # a second door, to the names in its __all__
