"""Our engines beside other array libraries, on workloads that each library writes in its own way."""
