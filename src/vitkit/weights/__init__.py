"""Read and write the weights of models, in vitkit's own format and in those of other libraries."""
