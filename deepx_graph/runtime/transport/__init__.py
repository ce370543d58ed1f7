"""How the devices of one program, each in a process of its own, meet: one protocol (`base.py`), a file for each way to carry it."""
