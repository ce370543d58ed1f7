"use strict";
/* A pane: a scene drawn as SVG that pans, zooms, opens and closes boxes, with a map of it all in a corner. Everything is made by
   createElement and textContent; no text of the data ever becomes markup. */
const SVG = "http://www.w3.org/2000/svg";
const CONTROL = new Set(["start", "if", "side", "region", "loop_begin", "loop_end", "phi"]);
const OPENING = 260; // milliseconds
const RESTS = 200; // milliseconds without movement
const MOVING = 600; // of more boxes than this none is seen to move
const OVERHANG = 12; // how much wider than its box a text above it may be: the next one is farther away
const SMALLEST = 0.75; // of the size of a text that has room
const MOST_OPEN = 500; // boxes that "open all" makes at most
const $ = id => document.getElementById(id);
const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

function make(parent, name, properties = {}, text) {
  const e = document.createElement(name);
  for (const [k, v] of Object.entries(properties)) k.includes("-") || k === "for" || k === "role" ? e.setAttribute(k, v) : (e[k] = v);
  if (text !== undefined) e.textContent = text;
  parent?.append(e);
  return e;
}

function draw(parent, name, attributes = {}, text) {
  const e = document.createElementNS(SVG, name);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  if (text !== undefined) e.textContent = text;
  parent?.append(e);
  return e;
}

/* --- shapes */

function outline({ x, y, w, h, kind }) {
  const poly = points => ["polygon", { points: points.map(p => p.join(",")).join(" ") }];
  const d = Math.min(10, h / 3), c = x + w / 2, m = y + h / 2;
  if (kind === "param") return poly([[x, y], [x + w, y], [x + w, y + h - d], [c, y + h], [x, y + h - d]]);
  if (kind === "result") return poly([[c, y], [x + w, y + d], [x + w, y + h], [x, y + h], [x, y + d]]);
  if (kind === "if") return poly([[c, y], [x + w, m], [c, y + h], [x, m]]);
  if (kind === "region" || kind === "loop_end") return poly([[x, y], [x + w, y], [x + w - d, y + h], [x + d, y + h]]);
  if (kind === "loop_begin") return poly([[x + d, y], [x + w - d, y], [x + w, y + h], [x, y + h]]);
  if (["phi", "side", "proj", "start"].includes(kind)) return ["ellipse", { cx: c, cy: m, rx: w / 2, ry: h / 2 }];
  return ["rect", { x, y, width: w, height: h, rx: kind === "constant" ? 1 : 6 }];
}

function drawBox(parent, box, graph) {
  const g = draw(parent, "g", { class: `box${CONTROL.has(box.kind) ? " control" : ""}${box.kind === "outside" ? " outside" : ""}`,
    tabindex: -1, role: "button", "aria-label": describe(graph, box).replace(/\n/g, ", ") });
  if (openable(box)) g.setAttribute("aria-expanded", "false");
  if (box.kind === "group") draw(g, "rect", { x: box.x + 4, y: box.y - 4, width: box.w, height: box.h, rx: 6, class: `shape f-${box.family}` });
  const [name, attributes] = outline(box);
  draw(g, name, { ...attributes, class: `shape f-${box.family}` });
  if (box.kind === "phi") draw(g, "ellipse", { cx: box.x + box.w / 2, cy: box.y + box.h / 2, rx: box.w / 2 - 3, ry: box.h / 2 - 3, class: `shape f-${box.family}` });
  const below = box.subtitle ? box.subtitle.split("\n") : [];
  const pitch = Math.min(14, box.h / (below.length + 1)), first = box.y + box.h / 2 - pitch * below.length / 2 + 4;
  draw(g, "text", { x: box.x + box.w / 2, y: first, class: "t" }, box.title);
  below.forEach((line, k) => draw(g, "text", { x: box.x + box.w / 2, y: first + pitch * (k + 1), class: "s" }, line));
  return g;
}

/* --- panes */

class Pane {
  constructor(graph, number) {
    this.number = number;
    this.root = make($("panes"), "section", { className: "pane" });
    this.nav = make(this.root, "nav", { "aria-label": "what is shown" });
    this.svg = draw(this.root, "svg", { role: "application", tabindex: 0, "aria-roledescription": "graph" });
    const marks = draw(this.svg, "defs");
    for (const kind of Object.keys(DATA.kinds)) {
      const m = draw(marks, "marker", { id: `m${number}-${kind}`, viewBox: "0 0 10 8", refX: kind === "data" ? 9 : 7, refY: 4, markerWidth: 8,
        markerHeight: 7, markerUnits: "userSpaceOnUse", orient: "auto-start-reverse" });
      draw(m, "path", { d: "M0,0L10,4L0,8z", class: `m-${kind}` });
    }
    this.world = draw(this.svg, "g");
    this.map = draw(this.root, "svg", { class: "map", "aria-hidden": "true" });
    this.listen();
    this.show(graph);
  }

  show(graph) {
    this.graph = graph;
    this.fold = graph.folds[0];
    this.open = new Set();
    this.sought = new Set();  // opened to show what was searched for
    this.trail = [];
    this.sideways = this.sideways ?? graph.sideways;
    this.rebuild();
    this.fit();
  }

  /* Makes the scene anew. With the box or frame that opens or closes the others are seen to move to their new places. */
  rebuild(about = null) {
    const before = this.scene;
    this.scene = new Scene(this.graph, this.fold, new Set([...this.open, ...this.sought]), this.sideways);
    this.navigation();
    this.render();
    if (before && about) this.move(before, about);
    refresh();
  }

  remember() { this.trail.push({ fold: this.fold, open: new Set(this.open), view: { ...this.view } }); }

  back() {
    const last = this.trail.pop();
    if (!last) return;
    this.fold = last.fold;
    this.open = last.open;
    this.sought.clear();
    this.rebuild({});
    this.glide(last.view);
  }

  /* Opens a box in place, or goes to what a box beside stands for. */
  enter(box) {
    if (openable(box)) {
      this.remember();
      this.open.add(box.key);
      this.rebuild({ box });
      this.showFrame(box.key);
    } else if (box.kind === "outside") {
      this.remember();
      goto(this, box.members[0]);
    }
  }

  close(frame) {
    this.remember();
    this.open.delete(frame.box.key);
    this.sought.delete(frame.box.key);
    this.rebuild({ frame });
    const box = this.scene.boxes.find(b => b.key === frame.box.key);
    if (box) { this.reveal(box); select(this.graph.number_in_page, box.members, box, this, true); }
  }

  /* Closes the innermost open frame around the selected box. */
  closeAround() {
    const chosen = this.chosenBox();
    const around = id => { const f = this.scene.frames.find(x => x.id === id); return f && (f.kind === "open" ? f : around(f.parent)); };
    const frame = chosen && around(chosen.cluster);
    if (frame) this.close(frame); else this.back();
  }

  /* Opens every box by one level, or closes all. */
  openAll(open) {
    const more = open ? this.scene.boxes.filter(openable) : [];
    const size = this.scene.boxes.length + more.reduce((sum, b) => sum + this.graph.opened(b).boxes.length - 1, 0);
    if (open && (!more.length || size > MOST_OPEN)) {
      say(more.length ? `${size} boxes would be too many; open them one by one` : "everything is open");
      return;
    }
    this.remember();
    this.sought.clear();
    if (open) more.forEach(b => this.open.add(b.key)); else this.open.clear();
    this.rebuild({});
    this.fit();
  }

  /* Only what is in a box, with what is beside it. */
  alone(box) {
    if (!openable(box)) return;
    this.remember();
    this.fold = this.graph.opened(box);
    this.open.clear();
    this.sought.clear();
    this.rebuild();
    this.fit();
  }

  navigation() {
    this.nav.replaceChildren();
    if (this.graph.title && GRAPHS.length > 1) make(this.nav, "h2", { className: "title" }, this.graph.title);
    const button = (text, title, onclick, disabled = false) => make(this.nav, "button", { title, onclick, disabled, "aria-label": title }, text);
    button("←", "back (Backspace)", () => this.back(), !this.trail.length);
    button("open all", "open every box by one level (x)", () => this.openAll(true), !this.scene.boxes.some(openable));
    button("close all", "close every box (X)", () => this.openAll(false), !this.open.size && !this.sought.size);
    if (this.scene.alone) button("whole", "the whole program", () => { this.remember(); this.fold = this.graph.folds[0]; this.rebuild(); this.fit(); });
    const notes = this.scene.notes.join("; ");
    make(this.nav, "span", { className: "note", title: notes }, notes);
    this.svg.setAttribute("aria-label", `${this.graph.title || DATA.title}: ${this.scene.boxes.length} boxes; arrows go from box to box`);
  }

  render() {
    this.world.replaceChildren();
    const layers = ["frames", "edges", "boxes"].map(c => draw(this.world, "g", { class: c }));
    this.drawnFrames = this.scene.frames.map(f => {
      const g = draw(layers[0], "g");
      draw(g, "rect", { x: f.x, y: f.y, width: f.w, height: f.h, rx: 8, class: `frame c-${f.kind === "open" ? "block" : f.kind}` });
      if (f.kind !== "open") draw(g, "text", { x: f.x + 10, y: f.y + 14, class: "ft" }, f.title);
      else {
        const t = draw(g, "g", { class: "closer", role: "button", tabindex: -1, "aria-expanded": "true", "aria-label": `close ${f.title}` });
        draw(t, "rect", { x: f.x, y: f.y, width: f.w, height: 20, rx: 8 });
        draw(t, "text", { x: f.x + 10, y: f.y + 14, class: "ft" }, `▾ ${f.title}`);
        t.addEventListener("click", () => this.moved || this.close(f));
      }
      return { g, frame: f };
    });
    this.edges = this.scene.edges.map(({ source, target, kind, path }) => {
      const e = draw(layers[1], "path", { d: path, class: `edge e-${kind}`, "marker-end": `url(#m${this.number}-${kind})` });
      return { e, source, target };
    });
    for (const { label, at } of this.scene.edges) if (label && at) draw(layers[1], "text", { x: at[0], y: at[1], class: "el" }, label);
    this.boxes = this.scene.boxes.map(box => {
      const g = drawBox(layers[2], box, this.graph);
      g.addEventListener("click", () => this.moved || select(this.graph.number_in_page, box.members, box, this));
      g.addEventListener("dblclick", () => this.enter(box));
      g.addEventListener("pointerenter", event => tip(event, describe(this.graph, box)));
      g.addEventListener("pointerleave", () => { $("tip").hidden = true; });
      return { g, box };
    });
    this.drawMap();
  }

  /* Lets boxes be seen to move from where they were; those that were in a frame shrink into their box, those that are new grow out of it. */
  move(before, { box, frame }) {
    if (calm() || this.boxes.length > MOVING) return;
    const old = new Map(before.boxes.map(b => [b.id, b]));
    const timing = { duration: OPENING, easing: "ease-out" };
    const opened = box && this.scene.frames.find(f => f.kind === "open" && f.box.key === box.key);
    const grown = opened && scaling(opened, old.get(box.id));
    for (const { g, box: b } of this.boxes) {
      const was = old.get(b.id);
      if (was) g.animate([{ transform: `translate(${was.x - b.x}px, ${was.y - b.y}px)` }, { transform: "none" }], timing);
      else if (frame && b.key === frame.box.key) g.animate([{ transform: scaling(b, frame) }, { transform: "none" }], timing);
      else g.animate([{ transform: grown || "none", opacity: 0 }, { transform: "none", opacity: 1 }], timing);
    }
    for (const { g, frame: f } of this.drawnFrames) if (f === opened) g.animate([{ transform: grown }, { transform: "none" }], timing);
    this.world.querySelector(".edges").animate([{ opacity: 0 }, { opacity: 0, offset: 0.5 }, { opacity: 1 }], timing);
  }

  /* --- the map in the corner */

  drawMap() {
    const [w, h] = this.scene.size;
    this.map.replaceChildren();
    this.map.setAttribute("viewBox", `0 0 ${w} ${h}`);
    for (const b of this.scene.boxes) draw(this.map, "rect", { x: b.x, y: b.y, width: b.w, height: b.h, class: `f-${b.family}` });
    this.seen = draw(this.map, "rect", { class: "seen" });
  }

  placeMap() {
    if (!this.seen || !this.view) return;
    const { width, height } = this.space(), { x, y, k } = this.view, [w, h] = this.scene.size;
    const all = x >= 0 && y >= 0 && x + w * k <= width && y + h * k <= height;
    this.map.classList.toggle("needless", all);
    for (const [name, value] of [["x", -x / k], ["y", -y / k], ["width", width / k], ["height", height / k]]) this.seen.setAttribute(name, value);
  }

  /* --- pan and zoom */

  /* While the picture moves it is a layer that is only shifted; once it rests it is drawn anew, sharp. */
  place(view) {
    this.view = view;
    this.world.classList.add("afloat");
    clearTimeout(this.resting);
    this.resting = setTimeout(() => this.world.classList.remove("afloat"), RESTS);
    this.drawn ??= requestAnimationFrame(() => {
      this.drawn = undefined;
      this.world.style.transform = `translate(${this.view.x}px, ${this.view.y}px) scale(${this.view.k})`;
      this.world.classList.toggle("far", this.view.k < 0.45);
      this.placeMap();
    });
  }

  /* Goes to a view, seen to move. */
  glide(view) {
    if (calm() || !this.view) { this.place(view); return; }
    const from = { ...this.view }, start = performance.now();
    const mine = this.gliding = {};
    const step = now => {
      if (this.gliding !== mine) return;
      const t = Math.min(1, Math.max(0, (now - start) / OPENING)), s = 1 - (1 - t) ** 2;
      this.place({ x: from.x + (view.x - from.x) * s, y: from.y + (view.y - from.y) * s, k: from.k + (view.k - from.k) * s });
      if (t < 1) requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  }

  space() { return this.svg.getBoundingClientRect(); }

  /* A large picture starts at its top, readable. */
  fit() {
    const { width, height } = this.space(), [w, h] = this.scene.size;
    const k = Math.max(0.55, Math.min((width - 24) / w, (height - 24) / h, 1.4));
    this.gliding = null;
    this.place({ k, x: w * k <= width ? (width - w * k) / 2 : this.startAcross(width, k), y: Math.max(12, (height - h * k) / 2) });
  }

  /* Where a picture wider than the pane begins: so that its uppermost box is in the middle. */
  startAcross(width, k) {
    const first = this.scene.boxes.reduce((a, b) => (b.y < a.y ? b : a)), [w] = this.scene.size;
    return Math.min(12, Math.max(width - w * k - 12, width / 2 - (first.x + first.w / 2) * k));
  }

  whole() {
    const { width, height } = this.space(), [w, h] = this.scene.size;
    const k = Math.min((width - 24) / w, (height - 24) / h, 1.4);
    this.gliding = null;
    this.place({ k, x: (width - w * k) / 2, y: (height - h * k) / 2 });
  }

  zoom(factor, x, y) {
    const { width, height } = this.space();
    const px = x ?? width / 2, py = y ?? height / 2, k = Math.min(8, Math.max(0.02, this.view.k * factor));
    this.gliding = null;
    this.place({ k, x: px - (px - this.view.x) * k / this.view.k, y: py - (py - this.view.y) * k / this.view.k });
  }

  pan(dx, dy) {
    this.gliding = null;
    this.place({ ...this.view, x: this.view.x + dx, y: this.view.y + dy });
  }

  center(box) {
    const { width, height } = this.space(), k = Math.max(this.view.k, 0.7);
    this.glide({ k, x: width / 2 - (box.x + box.w / 2) * k, y: height / 2 - (box.y + box.h / 2) * k });
  }

  reveal(box) {
    const { width, height } = this.space(), { x, y, k } = this.view;
    const left = box.x * k + x, top = box.y * k + y;
    if (left < 0 || top < 0 || left + box.w * k > width || top + box.h * k > height) this.center(box);
  }

  /* Moves a frame that has opened into sight, its top at least. */
  showFrame(key) {
    const f = this.scene.frames.find(x => x.kind === "open" && x.box.key === key);
    if (!f) return;
    const { width, height } = this.space(), k = Math.max(0.55, Math.min(this.view.k, (width - 40) / f.w, (height - 40) / f.h));
    const x = f.w * k < width ? (width - f.w * k) / 2 - f.x * k : 20 - f.x * k;
    const y = f.h * k < height ? (height - f.h * k) / 2 - f.y * k : 20 - f.y * k;
    this.glide({ k, x, y });
  }

  listen() {
    let from = null;
    this.svg.addEventListener("pointerdown", e => { from = [e.clientX, e.clientY]; this.moved = false; state.pane = this.number; });
    window.addEventListener("pointermove", e => {
      if (!from) return;
      const dx = e.clientX - from[0], dy = e.clientY - from[1];
      if (!this.moved && Math.hypot(dx, dy) < 4) return;
      this.moved = true;
      this.svg.classList.add("moving");
      from = [e.clientX, e.clientY];
      this.pan(dx, dy);
    });
    window.addEventListener("pointerup", () => { from = null; this.svg.classList.remove("moving"); });
    this.svg.addEventListener("wheel", e => {
      e.preventDefault();
      const box = this.space();
      this.zoom(Math.exp(-e.deltaY * (e.deltaMode ? 0.05 : 0.0016)), e.clientX - box.left, e.clientY - box.top);
    }, { passive: false });
    this.svg.addEventListener("click", e => { if (e.target === this.svg && !this.moved) select(null); });
    this.root.addEventListener("focusin", () => { state.pane = this.number; });
    const travel = e => {
      if (!(e.buttons & 1)) return;
      const r = this.map.getBoundingClientRect(), [w, h] = this.scene.size, s = Math.min(r.width / w, r.height / h);
      const wx = (e.clientX - r.left - (r.width - w * s) / 2) / s, wy = (e.clientY - r.top - (r.height - h * s) / 2) / s;
      const { width, height } = this.space(), { k } = this.view;
      this.gliding = null;
      this.place({ k, x: width / 2 - wx * k, y: height / 2 - wy * k });
    };
    this.map.addEventListener("pointerdown", travel);
    this.map.addEventListener("pointermove", travel);
  }

  /* --- from box to box */

  chosenBox() {
    const found = this.boxes.find(b => b.g.classList.contains("selected"));
    return found ? found.box : null;
  }

  /* Selects the nearest box in a direction; the first one when none is selected. */
  step(dx, dy) {
    const from = this.chosenBox(), boxes = this.scene.boxes;
    const middle = b => [b.x + b.w / 2, b.y + b.h / 2];
    let best = null, least = Infinity;
    if (!from) best = boxes.reduce((a, b) => (b.y < a.y ? b : a));
    else {
      const [x, y] = middle(from);
      for (const b of boxes) {
        const [bx, by] = middle(b), along = (bx - x) * dx + (by - y) * dy, across = Math.abs((bx - x) * dy) + Math.abs((by - y) * dx);
        if (along > 1 && along + 2 * across < least) [best, least] = [b, along + 2 * across];
      }
    }
    if (!best) return;
    select(this.graph.number_in_page, best.members, best, this, true);
    this.reveal(best);
  }

  /* --- what is lit */

  refresh() {
    const g = this.graph, mine = state.selected ? new Set(mapped(state.selected.nodes, state.selected.graph, g.number_in_page)) : new Set();
    const hits = state.query ? new Set(state.hits.filter(h => h.graph === g.number_in_page).map(h => h.node)) : null;
    const own = mine.size > 0 && this.boxes.some(b => b.box.kind !== "outside" && b.box.members.length === mine.size && mine.has(b.box.members[0]));
    const is = b => own ? b.box.members.length === mine.size && b.box.members.every(m => mine.has(m)) : b.box.members.some(m => mine.has(m));
    const chosen = new Set(mine.size ? this.boxes.filter(is).map(b => b.box.n) : []);
    const before = new Set(), after = new Set();
    for (const { e, source, target } of this.edges) {
      const into = chosen.has(target), out = chosen.has(source);
      if (into) before.add(source);
      if (out) after.add(target);
      e.classList.toggle("lit", into || out);
      e.classList.toggle("in", into);
      e.classList.toggle("out", out);
    }
    const overlay = this.values();
    for (const { g: e, box } of this.boxes) {
      e.classList.toggle("selected", chosen.has(box.n));
      e.setAttribute("aria-pressed", String(chosen.has(box.n)));
      e.classList.toggle("input", before.has(box.n) && !chosen.has(box.n));
      e.classList.toggle("user", after.has(box.n) && !chosen.has(box.n));
      const count = hits === null ? 0 : box.members.filter(m => hits.has(m)).length;
      e.classList.toggle("hit", count > 0);
      e.classList.toggle("dim", hits !== null && !count);
      this.heat(e, box, overlay, count);
    }
    fit(this.boxes);
    return chosen;
  }

  /* What the overlay says of each box. */
  values() {
    const measure = OVERLAYS.find(m => m.name === state.overlay);
    if (!measure) return null;
    const of = box => box.kind === "outside" ? 0 : box.members.reduce((sum, m) => sum + (this.graph.nodes[m][measure.name] || 0), 0);
    const all = this.scene.boxes.map(of), total = this.graph.nodes.reduce((sum, n) => sum + (n[measure.name] || 0), 0);
    return { measure, all, top: Math.max(...all, 1e-12), total };
  }

  heat(e, box, overlay, hits) {
    e.querySelector(".tag")?.remove();
    e.classList.remove("d-added", "d-removed", "d-changed", "d-same");
    const shapes = e.querySelectorAll(".shape");
    const tag = text => draw(e, "text", { x: box.x + box.w, y: box.y - 6, class: "tag" }, text);
    if (overlay === null) shapes.forEach(s => { s.style.fill = ""; });
    if (overlay !== null) {
      const value = overlay.all[box.n], share = Math.sqrt(value / overlay.top);
      shapes.forEach(s => { s.style.fill = `color-mix(in srgb, var(--heat) ${Math.round(75 * share)}%, var(--ground))`; });
      if (value > 0) tag(`${overlay.measure.text(value)} · ${(100 * value / overlay.total).toFixed(1)}%`);
    } else if (state.overlay === "difference") {
      const kinds = box.members.map(m => this.graph.nodes[m].diff).filter(d => d);
      const odd = kinds.filter(d => d !== "same");
      const kind = odd.length === 0 ? "same" : box.members.length === odd.length && new Set(odd).size === 1 ? odd[0] : "changed";
      if (kinds.length) e.classList.add(`d-${kind}`);
      if (odd.length && box.members.length > 1) tag(`${odd.length} differ`);
    } else if (state.overlay === "sharding" && box.kind !== "outside") {
      const text = shardingOf(box.members.map(m => this.graph.nodes[m]));
      shapes.forEach(s => { s.style.fill = shardingColour(text); });
      if (text !== NO_PLAN) tag(text);
    } else if (hits && box.members.length > 1) tag(`${hits} found`);
  }
}

/* Makes the texts above boxes as small as they must be to have room, and cuts those that would be too small to read; all of a text
   shows below the pointer. All are measured before one is changed: the browser lays them out once. */
function fit(boxes) {
  const drawn = boxes.map(({ g, box }) => [g.querySelector(".tag"), box.w + OVERHANG]).filter(([e]) => e);
  const measured = drawn.map(([e, room]) => [e, room, e.getComputedTextLength(), parseFloat(getComputedStyle(e).fontSize)]);
  for (const [e, room, whole, font] of measured) {
    if (whole <= room) continue;
    const size = Math.max(SMALLEST, room / whole), text = e.textContent;
    e.style.fontSize = `${size * font}px`;
    if (size * whole <= room * 1.001) continue;
    e.textContent = `${text.slice(0, Math.max(1, Math.floor(text.length * room / (size * whole)) - 1))}…`;
    draw(e, "title", {}, text);
  }
}

/* The transform that puts one place onto another. */
function scaling(from, to) {
  const sx = to.w / from.w, sy = to.h / from.h;
  return `translate(${to.x - from.x * sx}px, ${to.y - from.y * sy}px) scale(${sx}, ${sy})`;
}
