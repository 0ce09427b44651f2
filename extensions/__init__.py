"""One extension per file, imported as `train_manager.extensions`."""
