"""How operations are split over devices: the factors of their dimensions, by family, as the declarations name them."""
