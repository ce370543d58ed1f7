"use strict";
/* The page: a search, overlays, a time line, a legend, and the keys for everything. */
const state = { overlay: "none", query: null, hits: [], hit: -1, selected: null, pane: 0 };
const panes = [];

/* Tells the reader something in passing; screen readers say it. */
function say(text) {
  $("said").textContent = text;
  clearTimeout(say.wait);
  say.wait = setTimeout(() => { $("said").textContent = ""; }, 4000);
}

/* --- search */

function search(text) {
  const found = $("found");
  found.className = "";
  state.hit = -1;
  state.hits = [];
  state.query = null;
  try {
    if (text.trim()) {
      const test = Query.compile(text, FIELDS);
      const shown = new Set(panes.map(p => p.graph.number_in_page));
      for (const g of GRAPHS) if (shown.has(g.number_in_page)) g.nodes.forEach((n, k) => { if (n.at && test(g, k)) state.hits.push({ graph: g.number_in_page, node: k }); });
      state.query = text;
    }
    found.textContent = state.query ? `${state.hits.length} found` : "";
  } catch (error) {
    found.className = "bad";
    found.textContent = error.message;
  }
  for (const id of ["before", "after"]) $(id).disabled = !state.hits.length;
  refresh();
  remember();
}

function step(by) {
  if (!state.hits.length) return;
  state.hit = (state.hit < 0 && by < 0 ? state.hits.length - 1 : state.hit + by + state.hits.length) % state.hits.length;
  const { graph, node } = state.hits[state.hit];
  goto(panes.find(p => p.graph.number_in_page === graph) || panes[0], node);
  $("found").textContent = `${state.hit + 1} of ${state.hits.length}`;
}

/* --- time line */

function stage(k) {
  const graph = GRAPHS[k], pane = panes[0];
  if (!graph) return;
  const kept = state.selected ? mapped(state.selected.nodes, state.selected.graph, k) : [];
  pane.show(graph);
  if (panes[1]) panes[1].show(GRAPHS[Math.max(0, k - 1)]);
  $("stage").value = k;
  $("stage").setAttribute("aria-valuetext", graph.title);
  $("stages").textContent = `${k + 1} of ${GRAPHS.length}: ${graph.title}${graph.note ? " · " + graph.note : ""}`;
  if (state.query) search($("search").value);
  if (kept.length === 1) goto(pane, kept[0]);
  else if (kept.length) select(k, kept, null, pane);
  else select(null);
}

/* Shows the stage before beside the one of the time line, or no longer. */
function beside() {
  if (!DATA.timeline) return;
  if (panes[1]) panes.pop().root.remove();
  else {
    panes.push(new Pane(GRAPHS[Math.max(0, panes[0].graph.number_in_page - 1)], 1));
    $("panes").prepend(panes[1].root);
  }
  $("beside").setAttribute("aria-pressed", String(panes.length > 1));
  panes.forEach(p => p.fit());
  refresh();
}

/* --- keys */

function cycle(control) {
  control.selectedIndex = (control.selectedIndex + 1) % control.options.length;
  control.dispatchEvent(new Event("change"));
}

function walk(side) {
  const chosen = state.selected, pane = panes[state.pane];
  if (!chosen || chosen.nodes.length !== 1 || chosen.graph !== pane.graph.number_in_page) return;
  const next = pane.graph[side][chosen.nodes[0]][0];
  if (next !== undefined) goto(pane, next);
}

function withChosen(what) {
  const pane = panes[state.pane], box = pane.chosenBox();
  if (box) what(pane, box);
}

function turn() {
  for (const p of panes) { p.sideways = !p.sideways; p.rebuild({}); p.fit(); }
}

function escape() {
  if (!$("help").hidden) { closeHelp(); return; }
  $("search").value = "";
  search("");
  select(null);
}

const here = () => panes[state.pane];

const KEYS = [
  ["/", "search", () => $("search").focus()],
  ["n", "next match", () => step(1)],
  ["N", "previous match", () => step(-1)],
  ["ArrowLeft", "the box to the left", () => here().step(-1, 0)],
  ["ArrowRight", "the box to the right", () => here().step(1, 0)],
  ["ArrowUp", "the box above", () => here().step(0, -1)],
  ["ArrowDown", "the box below", () => here().step(0, 1)],
  ["Enter", "open the selected box in its place", () => withChosen((pane, box) => pane.enter(box))],
  ["Backspace", "close what is open around the selected box; else back", () => here().closeAround()],
  ["x", "open every box by one level", () => here().openAll(true)],
  ["X", "close every box", () => here().openAll(false)],
  ["a", "show the selected box alone", () => withChosen((pane, box) => pane.alone(box))],
  ["i", "first input of the selected node", () => walk("inputs")],
  ["u", "first user of the selected node", () => walk("users")],
  ["y", "copy the name of what is selected", copyName],
  ["l", "copy a link to it", copyLink],
  ["Tab", "to the next control or pane", null],
  ["+", "zoom in", () => here().zoom(1.25)],
  ["-", "zoom out", () => here().zoom(0.8)],
  ["f", "readable size", () => here().fit()],
  ["w", "the whole picture", () => here().whole()],
  ["H", "move to the left", () => here().pan(80, 0)],
  ["L", "move to the right", () => here().pan(-80, 0)],
  ["K", "move up", () => here().pan(0, 80)],
  ["J", "move down", () => here().pan(0, -80)],
  ["m", "the map in the corner", () => document.body.classList.toggle("mapless")],
  ["s", "downwards, or from left to right", turn],
  ["o", "next overlay", () => cycle($("overlay"))],
  ["t", "theme: light, dark, or that of the system", () => cycle($("theme"))],
  [",", "previous stage", () => DATA.timeline && stage(panes[0].graph.number_in_page - 1)],
  [".", "next stage", () => DATA.timeline && stage(panes[0].graph.number_in_page + 1)],
  ["c", "the stage before beside it", beside],
  ["?", "this help", () => ($("help").hidden ? openHelp() : closeHelp())],
  ["Escape", "close, clear", escape],
];

function pressed(e) {
  if (e.ctrlKey || e.metaKey || e.altKey || (e.target.closest && e.target.closest("input,select,textarea"))) return;
  const found = KEYS.find(([key]) => key === e.key);
  if (!found || !found[2] || (["Enter", " "].includes(e.key) && e.target.closest("button,summary"))) return;
  e.preventDefault();
  found[2]();
}

function help() {
  const box = make(document.body, "div", { id: "help", hidden: true, role: "dialog", "aria-modal": "true", "aria-label": "help", tabIndex: -1 });
  make(box, "h3", {}, "keys");
  const table = make(box, "table");
  const kept = KEYS.filter(([key]) => DATA.timeline || ![",", ".", "c"].includes(key));
  for (const [key, what] of kept) {
    const row = make(table, "tr");
    make(make(row, "td"), "kbd", {}, key.replace("Arrow", ""));
    make(row, "td", {}, what);
  }
  make(box, "p", {}, "Drag to move, turn the wheel to zoom, click to select, double-click to open a box that stands for several nodes; a click on the title of an open box closes it.");
  make(box, "h3", {}, "search");
  make(box, "p", {}, "Words are looked for in names and operations; op:dot* name:~attn users>2 bytes>=1M not const (a or b) #17 before:#17");
  make(box, "p", {}, `fields: ${[...FIELDS.texts].join(", ")}; numbers: ${[...FIELDS.numbers].join(", ")}; words: ${[...FIELDS.flags].join(", ")}`);
  make(box, "button", { onclick: closeHelp }, "close");
}

function openHelp() {
  openHelp.from = document.activeElement;
  $("help").hidden = false;
  $("help").focus();
}

function closeHelp() {
  $("help").hidden = true;
  openHelp.from?.focus();
}

/* --- controls */

function option(select, value, text) { make(select, "option", { value }, text ?? value); }

function bar() {
  const head = make(document.body, "header");
  make(head, "h1", { title: DATA.title }, DATA.title || "graph");
  const find = make(head, "div", { role: "search", className: "find" });
  const input = make(find, "input", { id: "search", type: "search", placeholder: "search: a word, op:add, name:~attn, users>2   ( / )", "aria-label": "search" });
  make(find, "button", { id: "before", title: "previous match (N)", "aria-label": "previous match", disabled: true, onclick: () => step(-1) }, "↑");
  make(find, "button", { id: "after", title: "next match (n)", "aria-label": "next match", disabled: true, onclick: () => step(1) }, "↓");
  make(find, "span", { id: "found", role: "status", "aria-live": "polite" });
  let wait;
  input.addEventListener("input", () => { clearTimeout(wait); wait = setTimeout(() => search(input.value), 120); });
  input.addEventListener("keydown", e => {
    if (e.key === "Enter") {
      clearTimeout(wait);
      if (state.query !== input.value) search(input.value);
      step(e.shiftKey ? -1 : 1);
      if (state.hits.length) here().svg.focus();  // so that n and N are keys again, not letters
    }
    if (e.key === "Escape") { input.value = ""; search(""); here().svg.focus(); }
    e.stopPropagation();
  });
  make(head, "span", { className: "space" });
  const names = ["none", ...OVERLAYS.map(m => m.name), ...(GRAPHS.some(g => g.nodes.some(n => n.diff)) ? ["difference"] : []),
    ...(SHARDINGS.length ? ["sharding"] : [])];
  const overlay = make(make(head, "label", { hidden: names.length < 2 }, "overlay"), "select", { id: "overlay", "aria-label": "overlay" });
  names.forEach(n => option(overlay, n));
  overlay.addEventListener("change", () => { state.overlay = overlay.value; legend(); refresh(); remember(); });
  state.overlay = overlay.value = [DATA.overlay, "difference", "time", "apart", "error", "nonfinite"].find(n => names.includes(n)) || "none"; // what the page was asked for
  const theme = make(make(head, "label", {}, "theme"), "select", { id: "theme", "aria-label": "theme" });
  ["auto", "light", "dark"].forEach(n => option(theme, n));
  theme.value = document.documentElement.dataset.theme;
  theme.addEventListener("change", () => { document.documentElement.dataset.theme = theme.value; });
  make(head, "button", { title: "help (?)", "aria-label": "help", onclick: openHelp }, "?");
}

function timeBar(bottom) {
  const time = make(bottom, "div", { id: "time" });
  make(time, "button", { title: "previous stage (,)", "aria-label": "previous stage", onclick: () => stage(panes[0].graph.number_in_page - 1) }, "◀");
  const slider = make(time, "input", { id: "stage", type: "range", min: 0, max: GRAPHS.length - 1, value: 0, "aria-label": "stage" });
  slider.addEventListener("input", () => stage(Number(slider.value)));
  make(time, "button", { title: "next stage (.)", "aria-label": "next stage", onclick: () => stage(panes[0].graph.number_in_page + 1) }, "▶");
  make(time, "output", { id: "stages" });
  make(time, "button", { id: "beside", title: "the stage before beside it (c)", "aria-pressed": "false", onclick: beside }, "compare");
}

/* --- legend */

/* What the colours of differences mean. */
function differences() {
  if (DATA.timeline) return [["added", "new in this stage"], ["changed", "changed in this stage"]];
  const [here, there] = GRAPHS.length > 2 ? ["not in the next program", "not in the previous program"] : ["only in the first", "only in the second"];
  return [["removed", here], ["added", there], ["changed", "not the same in both"]];
}

const FORMS = [["param", "parameter"], ["result", "result"], ["constant", "constant"], ["group", "several nodes, to be opened"],
  ["if", "branch"], ["loop_begin", "loop begins"], ["loop_end", "loop ends"], ["phi", "variable, or where branches meet"]];
const FRAMES = { loop: "runs in every iteration", once: "runs once, in the first iteration", branch: "runs when taken", fusion: "one kernel",
  half: "half of a gradient", function: "function", block: "open" };
const MARKS = [["selected", "selected"], ["input", "its inputs"], ["user", "its users"], ["hit", "found"]];

/* Everything that colours and forms mean, as far as it occurs. */
function legend() {
  const bottom = $("legend");
  bottom.replaceChildren();
  const sample = (text, name, attributes, wrap = "") => {
    const s = make(bottom, "span", { className: "sample" }), picture = draw(s, "svg", { viewBox: "0 0 14 10", "aria-hidden": "true" });
    draw(draw(picture, "g", { class: wrap }), name, attributes);
    s.append(text);
    return s;
  };
  const rect = cls => ["rect", { x: 1, y: 1, width: 12, height: 8, rx: 2, class: cls }];
  const measure = OVERLAYS.find(m => m.name === state.overlay), nodes = GRAPHS.flatMap(g => g.nodes);
  if (measure) {
    const s = make(bottom, "span", { className: "sample" }, `${measure.about}: none `);
    make(s, "span", { className: "scale" });
    s.append(" the most in one box of this picture; the number is followed by its share of the whole");
  } else if (state.overlay === "difference") {
    const differ = new Set(nodes.map(n => n.diff));
    for (const [kind, text] of differences()) if (differ.has(kind)) sample(text, ...rect("shape"), `d-${kind}`).classList.add("difference", `d-${kind}`);
  } else if (state.overlay === "sharding") {
    for (const text of [...SHARDINGS, SEVERAL, NO_PLAN]) sample(text, ...rect("shape f-other")).querySelector("rect").style.fill = shardingColour(text);
  } else {
    const families = new Set(nodes.filter(n => !CONTROL.has(n.kind) && n.family !== "other").map(n => n.family));
    for (const f of [...families].sort()) sample(f, ...rect(`shape f-${f}`));
    if (GRAPHS.some(g => g.folds.some(fold => fold.boxes.some(b => b.family === "block")))) sample("several families", ...rect("shape f-block"));
  }
  const kinds = new Set(nodes.map(n => n.kind));
  if (GRAPHS.some(g => g.folds[0].boxes.some(b => b.kind === "group"))) kinds.add("group");
  for (const [kind, text] of FORMS) {
    if (!kinds.has(kind)) continue;
    if (kind === "group") { twoSheets(bottom, text); continue; }
    const [name, attributes] = outline({ x: 1, y: 1, w: 12, h: 8, kind });
    sample(text, name, { ...attributes, rx: name === "rect" ? 2 : attributes.rx ?? "", class: "shape f-other" }, CONTROL.has(kind) ? "control" : "");
  }
  const edges = new Set(GRAPHS.flatMap(g => g.edges.map(e => e.kind)));
  for (const [kind, text] of Object.entries(DATA.kinds)) if (edges.has(kind)) sample(text, "path", { d: "M0,5L14,5", class: `edge e-${kind}` });
  const frames = new Set(GRAPHS.flatMap(g => g.frames.map(f => f[2])));
  for (const [kind, text] of Object.entries(FRAMES)) if (frames.has(kind) && kind !== "function") sample(text, ...rect(`frame c-${kind}`));
  for (const [mark, text] of MARKS) sample(text, ...rect("shape f-other"), `like-${mark}`);
}

function twoSheets(parent, text) {
  const s = make(parent, "span", { className: "sample" }), picture = draw(s, "svg", { viewBox: "0 0 14 10", "aria-hidden": "true" });
  for (const k of [2, 0]) draw(picture, "rect", { x: 1 + k, y: 3 - k, width: 10, height: 6, rx: 1, class: "shape f-other" });
  s.append(text);
}

function foot() {
  const bottom = make(document.body, "footer");
  if (DATA.timeline) timeBar(bottom);
  const fold = make(bottom, "details", { open: innerWidth > 760 });
  make(fold, "summary", {}, "legend");
  make(fold, "div", { id: "legend" });
  legend();
}

/* --- printing: the whole picture on the page, whatever part of it is on screen */

function onPaper(printing) {
  for (const p of panes) {
    if (printing) {
      p.svg.setAttribute("viewBox", `0 0 ${p.scene.size.join(" ")}`);
      p.world.style.transform = "";
    } else {
      p.svg.removeAttribute("viewBox");
      p.place(p.view);
    }
  }
}

/* --- beginning */

async function start() {
  if (typeof DecompressionStream === "undefined") {
    document.body.append("This browser cannot unpack the page; any of the last years can.");
    return;
  }
  load(await unpacked($("data").textContent));
  bar();
  make(document.body, "main", { id: "panes" });
  make(document.body, "aside", { id: "side", hidden: true, "aria-label": "inspector" });
  foot();
  make(document.body, "div", { id: "tip", hidden: true, role: "tooltip" });
  make(document.body, "div", { id: "said", role: "status", "aria-live": "polite" });
  help();
  (DATA.timeline ? GRAPHS.slice(0, 1) : GRAPHS).forEach((g, k) => panes.push(new Pane(g, k)));
  panes.forEach(p => p.fit()); // each had the space of those after it
  if (DATA.timeline) stage(0);
  window.addEventListener("keydown", pressed);
  window.addEventListener("resize", () => panes.forEach(p => p.fit()));
  window.addEventListener("beforeprint", () => onPaper(true));
  window.addEventListener("afterprint", () => onPaper(false));
  window.addEventListener("hashchange", recall);
  if (location.hash) recall(); else refresh();
}

const ready = start();
