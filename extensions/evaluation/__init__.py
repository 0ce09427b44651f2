"""Evaluation: what an evaluation measures, and what follows from it.

Its extensions, one per file:

    Attribution        what a prediction rests on, number by number of the input
    EarlyStopping      an end to the training if a metric gets no better
    EvalTotals         the sums that the mean loss of an evaluation is computed from
    HardExamples       the loss of each training example over all epochs
    Metrics            numbers beside the loss, in training and evaluation
    OutOfDistribution  how well a classifier notices foreign examples
"""
