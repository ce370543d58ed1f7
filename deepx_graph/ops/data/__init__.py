"""Operations on values that are not tensors: algebraic data, tapes, fused functions, opaque operations."""
