"""How the devices of one program, each in a process of its own, meet."""
