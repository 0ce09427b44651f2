"""Evaluation: measurements of an evaluation, and decisions that follow from them.

Its extensions, one per file:

    Attribution        the share of each number of the input in a prediction
    EarlyStopping      an end to the training if a metric gets no better
    EvalTotals         the sums that the mean loss of an evaluation is computed from
    HardExamples       the loss of each training example over all epochs
    Metrics            numbers beside the loss, in training and evaluation
    OutOfDistribution  how well a classifier notices foreign examples
    TestTimeTraining   a model that adapts to each evaluation set without its labels
"""
