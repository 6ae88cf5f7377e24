"""Records what programs print on hosts with real accelerators."""
