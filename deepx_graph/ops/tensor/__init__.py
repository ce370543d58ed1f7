"""Operations on the arrangement of elements: shapes, layouts, indexing, sorting, mapping."""
