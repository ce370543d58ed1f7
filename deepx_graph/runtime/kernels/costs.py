"""The sizes by which kernels of numpy's loops choose how to compute; prices come from the cost model (`runtime.cost`).

Measured with `bench/costs/calibrate.py` on a 2-core AMD EPYC (AVX-512) with numpy 2.4 and numexpr 2.14. The choices are about speed
alone: every choice gives the same values.
"""

from __future__ import annotations

BLOCK_ELEMENTS = 256 * 1024
"""Elements of a cache block. Smaller ones make the threads convoy on the interpreter's lock (64 Ki: 1.25 times slower on two
threads), larger ones gain nothing more and leave the cache."""

THREADED_ELEMENTS = 200_000
"""From this size on a kernel has two blocks at least. A second thread costs 30 to 50 microseconds in all, so it begins to gain
between 100 000 and 300 000 elements of a chain of four to eight operations."""

STAGED_ELEMENTS = 1 << 15
"""The largest tensors of kernels that are steps of the program around them, with memory of their own."""

MASK_ELEMENTS = 1024
"""From this size on `where` is done with bit masks (0.45 ns an element) and not by a masked copy (4.4 ns: it branches)."""

VM_ELEMENTS = 1024
"""The largest arrays that go to numexpr's machine. It is scalar code, so numpy's vector loops win above about 1 200 elements; and
below 2 048 it never starts threads of its own, so no global setting of numexpr has to be touched."""

VM_INPUTS, VM_STEPS = 31, 100
"""Bounds of one machine program: numexpr fails at 64 operands; its compiler recurses, and goes twice over what is read twice."""

SCALAR_CALL_NS, CALL_NS, OPERATION_NS, FOLD_NS, TREE_NS = 65.0, 400.0, 1500.0, 5000.0, 20_000.0
"""What numpy takes, where loops may also be Python's, for a ufunc of scalars or of small arrays with what is around it, for another
operation, for one that combines values (a reduction, a scatter), and for one that combines several at once."""

STATEMENT_NS, FLOAT_NS, MOVE_NS, SLICED_NS, OBJECT_NS = 20.0, 40.0, 10.0, 3.0, 60.0
"""What Python takes for a statement over scalars, for arithmetic of floats, for what only moves them one by one or by slices, and
for an element that becomes an object and back."""

FUNCTION_NS, CONVERTED_NS = 200.0, 2500.0
"""What a function of numpy of one takes, and one of whose operands and result Python's numbers are made, or the other way round."""

OBJECT_BYTES = 40
"""A scalar as an object, and its place in a list."""

MOST_STATEMENTS = 3000
"""Of a function of Python over scalars: Python would compile more for longer than most programs run."""
