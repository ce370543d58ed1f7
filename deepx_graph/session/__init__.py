"""Everything a front end does, without a front end: load, optimise, differentiate, run, compare, report, draw."""
