"""Visualization: pictures of a training.

Its extensions, one per file:

    LossCurves            the losses by epoch, by batch and by example
    Live                  the loss and the first metric in a notebook, renewed while it trains
    GradientNorms         how large the gradients of each layer are
    UpdateRatios          how large the updates of each layer are beside its weights
    ActivationStatistics  dead and saturated outputs of each layer, and how far they spread
    WeightHistograms      how the weights of each layer are distributed
    ConfusionMatrix       which classes are taken for which
    PredictionGallery     the surest mistakes, and random examples
    Throughput            examples per second, the share of waiting for data, memory
    Report                a page about the run
"""
