"""What Shardy's collectives say of a move from one sharding to another, checked as Shardy's verifiers do.

`sdy.all_gather [{"x"}, {}] %v out_sharding=...` names the axes that go away, of each dimension; what is left has to be the sharding
that it states for the result. So of the others.

Source: Shardy, dialect/sdy/ir/verifiers.cc, by its documents and tests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deepx_graph.sharding.mesh import Axes, AxisRef, Mesh, TensorSharding, count_of, merged

_PARAMETER = re.compile(r"(\{[^}]*\})\s*:\s*(-?\d+)\s*->\s*(-?\d+)")
_ADDED = "all_slice", "reduce_scatter"
MAY_START = (*_ADDED, "all_reduce")
"""The collectives whose operand may have no sharding: it is then whole on every device."""


@dataclass(frozen=True)
class StatedMove:
    """A collective of Shardy's: its kind, how its operand and its result lie, the axes it names as text, and what it combines by.

    `axes` reads such a text: the axes of each dimension.
    """

    kind: str
    mesh: Mesh
    before: TensorSharding
    after: TensorSharding
    said: str
    by: str
    axes: Callable[[str], Sequence[Axes]]

    def check(self) -> None:
        """Raises ValueError with what does not go together, in Shardy's words."""
        if self.kind == "collective_permute":
            self._check_sizes()
        elif self.kind == "all_to_all":
            self._expect(self._exchanged())
        elif self.kind in ("all_gather", "sharded_to_unreduced"):
            given = self._by_dimension()
            self._expect([self._without(d, axes, "gathering" if self.kind == "all_gather" else "shard-to-unreduce")
                          for d, axes in enumerate(given)])
            if self.kind == "sharded_to_unreduced":
                self._check_unreduced([a for axes in given for a in axes])
        elif self.kind in _ADDED:
            self._expect([(*old, *new) for old, new in zip(self._dims(self.before), self._by_dimension(), strict=True)])
            if self.kind == "reduce_scatter":
                self._check_combiner()
        else:
            self._check_summed()

    # --- axes as their prime parts

    def _dims(self, sharding: TensorSharding) -> list[Axes]:
        return [self.mesh.atoms(axes) for axes in sharding.axes]

    def _by_dimension(self) -> list[Axes]:
        found = [self.mesh.atoms(axes) for axes in self.axes(self.said)]
        if len(found) != len(self.after.dims):
            raise ValueError(f"result sharding has rank {len(self.after.dims)} but collective axes has rank {len(found)}")
        return found

    def _flat(self) -> Axes:
        return self.mesh.atoms(self.axes(f"[{self.said}]")[0])

    def _shown(self, axes: Sequence[AxisRef]) -> str:
        return ", ".join(map(self.mesh.shown, merged(tuple(axes))))

    def _without(self, dim: int, axes: Axes, what: str) -> Axes:
        """The axes of a dimension of the operand without the last ones."""
        old = self._dims(self.before)[dim]
        rest = old[: len(old) - len(axes)]
        if (*rest, *axes) != old:
            raise ValueError(f"can't apply {what} axis {self._shown(axes)} to operand sharding on dimension {dim}")
        return rest

    def _expect(self, wanted: Sequence[Axes]) -> None:
        for dim, (want, got) in enumerate(zip(wanted, self._dims(self.after), strict=True)):
            if want != got:
                raise ValueError(f"result sharding doesn't match expected sharding [{self._shown(want)}] on dimension {dim}")

    # --- what single collectives ask for

    def _exchanged(self) -> list[Axes]:
        """How the result of an all-to-all lies by its parameters, `{"x"}: 1->0`."""
        dims, found = self._dims(self.before), _PARAMETER.findall(self.said)
        if not found:
            raise ValueError("parameter list is empty")
        used: list[int] = []
        for text, *ends in found:
            axes = self.mesh.atoms(self.axes(f"[{text}]")[0])
            for name, dim in zip(("source", "target"), map(int, ends), strict=True):
                if not 0 <= dim < len(dims):
                    raise ValueError(f"{name} dimension {dim} is out of range [0, {len(dims)})")
                if dim in used:
                    raise ValueError(f"overlapping source/target dimensions in all-to-all params: {dim}")
                used.append(dim)
            source, target = used[-2:]
            dims[source], dims[target] = self._without(source, axes, "all-to-all"), (*dims[target], *axes)
        if used[::2] != sorted(used[::2]):
            raise ValueError("source dimensions are not sorted in ascending order")
        return dims

    def _check_sizes(self) -> None:
        for dim, (old, new) in enumerate(zip(self._dims(self.before), self._dims(self.after), strict=True)):
            if count_of(old) != count_of(new):
                sizes = f"{count_of(new)} != {count_of(old)}"
                raise ValueError(f"sharded size of result doesn't match operand on dimension {dim}: {sizes}")

    def _check_summed(self) -> None:
        """Of `all_reduce` and `replicated_to_unreduced`, which leave dimensions as they are."""
        axes, taken = self._flat(), self.mesh.atoms((*(a for d in self.before.axes for a in d), *self.before.replicated))
        self._check_order(axes)
        if self.kind == "replicated_to_unreduced" and not axes:
            raise ValueError("r2u axes must not be empty")
        if clash := [a for a in axes if a in taken]:
            raise ValueError(f"axis {self._shown(clash)} overlaps with operand dimension sharding or replicated axes")
        if self._dims(self.before) != self._dims(self.after):
            raise ValueError("operand and result shardings are not equivalent")
        if self.kind == "replicated_to_unreduced":
            self._check_unreduced(axes)
            return
        if clash := [a for a in axes if a in self.mesh.atoms(self.after.unreduced)]:
            raise ValueError(f"reduction axis {self._shown(clash)} overlaps with result unreduced axes")
        if added := [a for a in self.mesh.atoms(self.after.unreduced) if a not in self.mesh.atoms(self.before.unreduced)]:
            raise ValueError(f"cannot add new unreduced axis {self._shown(added)}")
        self._check_combiner()

    def _check_order(self, axes: Sequence[AxisRef]) -> None:
        """Axes that are summed, or left to be, stand in the order of the mesh."""
        if not self.mesh.orders(axes):
            raise ValueError("axes are not ordered w.r.t. mesh")

    def _check_unreduced(self, axes: Sequence[AxisRef]) -> None:
        if (self.after.unreduced_by or "sum") != "sum":
            raise ValueError("out_sharding reduction_op must be SUM")
        if clash := [a for a in axes if a in self.mesh.atoms(self.before.unreduced)]:
            raise ValueError(f"axis {self._shown(clash)} overlaps with operand unreduced axes")
        if {*self.mesh.atoms(self.before.unreduced), *axes} != {*self.mesh.atoms(self.after.unreduced)}:
            raise ValueError("out_unreduced_axes should be in_unreduced_axes and those of the operation")

    def _check_combiner(self) -> None:
        made = self.before.unreduced_by or "sum"
        if self.before.unreduced and made != self.by:
            raise ValueError(f"cannot reduce '{made}' unreduced axes. Expected '{self.by}'.")


def check_kept(mesh: Mesh, before: TensorSharding, after: TensorSharding) -> None:
    """Raises ValueError for a constraint that combines what is left unreduced otherwise, or begins what is no sum."""
    old, new = mesh.atoms(before.unreduced), mesh.atoms(after.unreduced)
    made, asked = before.unreduced_by or "sum", after.unreduced_by or "sum"
    if made != asked and set(old) & set(new):
        raise ValueError(f"cannot change the reduction operator of kept unreduced axes from {made} to {asked}.")
    if asked != "sum" and set(new) - set(old):
        raise ValueError(f"cannot introduce '{asked}' unreduced axes. Expected 'sum'.")
