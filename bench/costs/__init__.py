"""The cost model beside what is measured, and what it is calibrated with."""
