"""The old name of ``metric_writer.py``, for code that was written before."""

from train_manager.runs.record.metric_writer import AFTER_STORE, STORE_CLOSES
from train_manager.runs.record.metric_writer import MetricWriter as FigureWriter

__all__ = ["AFTER_STORE", "STORE_CLOSES", "FigureWriter"]
