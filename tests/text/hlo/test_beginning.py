"""The beginning of a large text, which is seen while all of it is read."""

from __future__ import annotations

from pathlib import Path

import pytest

import deepx_graph as dx
from deepx_graph.ir.structure import PARAM
from deepx_graph.session import programs
from deepx_graph.session.session import Session
from deepx_graph.text.hlo import beginning
from deepx_graph.tui.app import Browser
from tests.support.tui_pilot import app_of, piloted, settled, shown

CALLED = """
inner {
  p = f32[4] parameter(0)
  ROOT t = f32[4] tanh(p)
}

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add = f32[] add(f32[] %a, f32[] %b)
}

outer {
  p = f32[4] parameter(0)
  ROOT c = f32[4] call(p), to_apply=inner
}

unused {
  ROOT p = f32[4] parameter(0)
}
"""


def whole(instructions: int) -> str:
    lines = ["  x = f32[4] parameter(0)", "  zero = f32[] constant(0)", "  v0 = f32[4] call(x), to_apply=outer",
             "  total = f32[] reduce(v0, zero), dimensions={0}, to_apply=%sum"]  # fmt: skip
    lines += [f"  v{k} = f32[4] negate(v{k - 1})" for k in range(1, instructions - 3)]
    lines[-1] = lines[-1].replace("  v", "  ROOT v", 1)
    layout = "{(f32[4]{0})->f32[4]{0}}"
    head = f"HloModule whole, entry_computation_layout={layout}"
    return "\n".join([head, CALLED, "ENTRY %main (x: f32[4]) -> f32[4] {", *lines, "}", ""])


@pytest.mark.parametrize("count", [5, 20, 39])
def test_the_beginning_has_the_first_instructions_and_what_they_call(count: int) -> None:
    text = beginning(whole(40), count)
    assert text is not None
    found, all_of_it = dx.loads(text), dx.loads(whole(40))
    assert {f.name for f in found.functions} <= {f.name for f in all_of_it.functions} | {"beginning"}
    names = [n.name for n in found.entry.nodes if n.op is not PARAM]
    assert names == [n.name for n in all_of_it.entry.nodes if n.op is not PARAM][: len(names)]
    assert names[-1] == f"v{count - 4}"


def test_a_small_program_has_no_beginning() -> None:
    assert beginning(whole(40), 40) is None
    assert beginning("HloModule nothing", 40) is None


@pytest.mark.parametrize("text", ["ENTRY main {\n" + "  x = f32[4] no_such_thing(y)\n" * 200 + "}\n", "no language\n" * 200])
def test_what_is_wrong_is_left_to_the_reader_of_the_whole(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "LARGE", 100)
    file = tmp_path / "x.hlo"
    file.write_text(text)
    assert programs.beginning(file) is None
    assert programs.beginning(tmp_path / "none.hlo") is None


@piloted
async def test_the_list_has_the_first_rows_before_all_is_read(tmp_path: Path) -> None:
    file = tmp_path / "x.hlo"
    file.write_text(whole(300))
    seen: list[str] = []

    def opened() -> Session:
        app.call_from_thread(lambda: seen.append(str(app.lanes.row and app.lanes.row.node and app.lanes.row.node.name)))
        return Session.open(str(file))

    app = Browser(opened, str(file))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs, "LARGE", 100)
        async with app.run_test(size=(120, 40)) as pilot:
            await settled(pilot)
            assert seen == ["x"]
            assert app_of(pilot).session is not None
            assert "v1 " in shown(pilot) or "negate" in shown(pilot)
            await app_of(pilot).action_quit()
