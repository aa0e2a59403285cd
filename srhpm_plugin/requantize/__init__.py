"""Another quantization of a model, chosen by what the kernels read fastest."""
