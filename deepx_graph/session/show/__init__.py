"""What front ends draw: pictures, differences, notebooks."""
