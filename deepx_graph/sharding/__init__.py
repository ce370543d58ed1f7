"""Programs over several devices: meshes, shardings and plans, their propagation, and the program of one device."""
