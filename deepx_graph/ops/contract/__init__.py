"""Operations that contract axes: reductions, products, convolutions, windows, factorisations."""
