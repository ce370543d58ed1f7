"""Parts of a function taken out of it, each as a closed body that an engine may run as one kernel."""
