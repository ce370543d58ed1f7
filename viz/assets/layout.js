"use strict";
/* The layered layout of viz/picture/layered.py, which explains it, step by step the same: a page lays out what its reader opens, when
   it is opened. A test compares the places of both. `layOut(view)` takes nodes { id, kind, title, subtitle, cluster }, edges
   { source, target, kind, label } and clusters { id, title, parent }, parents first, and gives the places of boxes and frames by id, as
   [left, top, width, height], and the points of each edge. */
const layOut = (() => {
  const TITLE_CHAR = 7.2, TEXT_CHAR = 5.6, LINE = 14;
  const GAP = 20, EDGE_GAP = 12, LAYER_GAP = 40;
  const PADDING = 14, HEAD = 22;
  const SWEEPS = 8, STRAIGHT = 8, MOST_DUMMIES = 5000, MOST_GAP = 130;
  const WIDER = new Set(["if", "loop_begin", "loop_end", "region", "start"]);
  const ROUNDER = new Set(["param", "result", "phi", "proj", "side"]);
  const LIGHT = new Set(["back", "capture", "residual"]);
  const ROOT = "root";

  const port = unit => unit.startsWith("in:") || unit.startsWith("out:");
  const into = unit => unit.startsWith("in:");
  const outOf = unit => unit.startsWith("out:");

  function boxSize(node) {
    const lines = [node.title, node.subtitle].filter(Boolean).flatMap(t => t.split("\n"));
    const [first, ...rest] = lines.length ? lines : [" "];
    const width = Math.max(TITLE_CHAR * length(first), ...rest.map(t => TEXT_CHAR * length(t))) + 22;
    const height = LINE * (1 + rest.length) + 10;
    if (WIDER.has(node.kind)) return [width + 34, height + 12];
    return ROUNDER.has(node.kind) ? [width + 8, height + 8] : [width, height];
  }

  /* The smallest first, by [class, place in the view]. */
  class Heap {
    constructor() { this.items = []; }
    get size() { return this.items.length; }
    static less(a, b) { return a[0] - b[0] || a[1] - b[1] || (a[2] < b[2] ? -1 : 1); }
    push(item) {
      const h = this.items;
      let k = h.push(item) - 1;
      for (let up; k > 0 && Heap.less(h[k], h[up = (k - 1) >> 1]) < 0; k = up) [h[k], h[up]] = [h[up], h[k]];
    }
    pop() {
      const h = this.items, top = h[0], last = h.pop();
      if (h.length) {
        h[0] = last;
        for (let k = 0, c; (c = 2 * k + 1) < h.length; k = c) {
          if (c + 1 < h.length && Heap.less(h[c + 1], h[c]) < 0) c += 1;
          if (Heap.less(h[k], h[c]) <= 0) break;
          [h[k], h[c]] = [h[c], h[k]];
        }
      }
      return top;
    }
  }

  const flip = w => {
    [w.source, w.target, w.out, w.into] = [w.target, w.source, w.into, w.out];
    w.upwards = !w.upwards;
  };

  class Layout {
    constructor(view) {
      this.view = view;
      this.sizes = new Map(view.nodes.map(n => [n.id, view.sideways ? boxSize(n).reverse() : boxSize(n)]));
      this.parent = new Map(view.clusters.map(c => [c.id, c.parent ?? ROOT]));
      this.chain = new Map(view.nodes.map(n => [n.id, this.chainOf(n.cluster ?? ROOT)]));
      this.position = new Map(view.nodes.map((n, k) => [String(n.id), k]));
      this.frames = new Map();
      this.routes = view.edges.map(e => this.route(e));
      this.dummies = 0;
      const longest = view.sideways ? view.edges.reduce((most, e) => Math.max(most, length(e.label)), 0) : 0;
      this.gap = Math.min(Math.max(LAYER_GAP, LETTER * longest + 6), MOST_GAP);
      this.firsts = new Map();
    }

    chainOf(cluster) {
      const chain = [cluster];
      while (chain[chain.length - 1] !== ROOT) chain.push(this.parent.get(chain[chain.length - 1]));
      return chain.reverse();
    }

    route(e) {
      const [source, target] = e.kind === "back" ? [e.target, e.source] : [e.source, e.target];
      const a = this.chain.get(source), b = this.chain.get(target), parts = [];
      let common = 0, unit = `box:${source}`;
      while (common < Math.min(a.length, b.length) && a[common] === b[common]) common += 1;
      for (const frame of a.slice(common).reverse()) {
        parts.push([frame, unit, `out:${source}`]);
        unit = `frame:${frame}`;
      }
      const inside = b.slice(common);
      parts.push([a[common - 1], unit, inside.length ? `frame:${inside[0]}` : `box:${target}`]);
      inside.forEach((frame, k) =>
        parts.push([frame, `in:${source}`, k + 1 === inside.length ? `box:${target}` : `frame:${inside[k + 1]}`]));
      return parts;
    }

    scene() {
      const members = new Map([[ROOT, []]]), wires = new Map();
      for (const c of this.view.clusters) {
        if (!members.has(c.id)) members.set(c.id, []);
        members.get(c.parent ?? ROOT).push(`frame:${c.id}`);
      }
      for (const n of this.view.nodes) members.get(n.cluster ?? ROOT).push(`box:${n.id}`);
      for (const f of members.keys()) wires.set(f, new Map());
      this.view.edges.forEach((e, k) => {
        const value = e.kind === "back" ? e.target : e.source;
        for (const [frame, a, b] of this.routes[k]) {
          if (a === b) continue;
          const found = wires.get(frame), key = `${a} ${b} ${value}`, weight = LIGHT.has(e.kind) ? 0.2 : 1;
          if (!found.has(key)) found.set(key, { source: a, target: b, value, weight, upwards: false, cells: [] });
          else found.get(key).weight = Math.max(found.get(key).weight, weight);
        }
      });
      for (const c of [...this.view.clusters].reverse()) this.frames.set(c.id, this.frame(c.id, members.get(c.id), wires.get(c.id)));
      this.frames.set(ROOT, this.frame(ROOT, members.get(ROOT), wires.get(ROOT)));
      return this.placed();
    }

    frame(id, units, wires) {
      const frame = { size: 0, length: 0, cells: new Map(), tops: new Map(), wires, layers: [] };
      for (const unit of units) {
        const [size, long] = unit.startsWith("box:") ? this.sizeOf(unit) : [this.inner(unit).size, this.inner(unit).length];
        frame.cells.set(unit, { unit, size, length: long, layer: 0, at: 0 });
      }
      for (const w of wires.values()) {
        for (const p of [w.source, w.target]) {
          if (port(p) && !frame.cells.has(p)) frame.cells.set(p, { unit: p, size: 2, length: 0, layer: 0, at: 0 });
        }
      }
      for (const w of wires.values()) {
        w.out = this.portAt(w.source, `out:${w.value}`);
        w.into = this.portAt(w.target, `in:${w.value}`);
      }
      assignLayers(frame.cells, [...wires.values()], unit => this.first(unit));
      const layers = this.withDummies(frame);
      const [above, below] = links(wires.values());
      order(layers, above, below);
      straighten(layers, above, below);
      this.measure(frame, layers, id !== ROOT);
      return frame;
    }

    sizeOf(unit) {
      this.named ??= new Map(this.view.nodes.map(n => [`box:${n.id}`, this.sizes.get(n.id)]));
      return this.named.get(unit);
    }

    inner(unit) {
      this.framed ??= new Map(this.view.clusters.map(c => [`frame:${c.id}`, c.id]));
      return this.frames.get(this.framed.get(unit));
    }

    first(unit) {
      if (!unit.startsWith("frame:")) return this.position.get(unit.slice(unit.indexOf(":") + 1));
      if (!this.firsts.has(unit)) {
        const inside = [...this.inner(unit).cells.keys()].filter(u => !port(u)).map(u => this.first(u));
        this.firsts.set(unit, inside.length ? inside.reduce((a, b) => Math.min(a, b)) : 0);
      }
      return this.firsts.get(unit);
    }

    portAt(unit, name) {
      if (!unit.startsWith("frame:")) return 0;
      const frame = this.inner(unit), cell = frame.cells.get(name);
      return cell ? cell.at - frame.size / 2 : 0;
    }

    withDummies(frame) {
      const layers = [], passing = new Map();
      for (const c of frame.cells.values()) (layers[c.layer] ??= []).push(c);
      for (let k = 0; k < layers.length; k++) layers[k] ??= [];
      const span = w => frame.cells.get(w.target).layer - frame.cells.get(w.source).layer;
      for (const wire of [...frame.wires.values()].sort((x, y) => span(x) - span(y))) {
        const a = frame.cells.get(wire.source), b = frame.cells.get(wire.target);
        wire.cells = [a];
        for (let k = a.layer + 1; k < b.layer; k++) {
          const key = `${wire.upwards ? wire.target : wire.source} ${wire.value} ${wire.upwards} ${k}`;
          if (!passing.has(key) && this.dummies < MOST_DUMMIES) {
            this.dummies += 1;
            passing.set(key, { unit: "dummy", size: 2, length: 0, layer: k, at: 0 });
            layers[k].push(passing.get(key));
          }
          if (passing.has(key)) wire.cells.push(passing.get(key));
        }
        wire.cells.push(b);
      }
      return layers;
    }

    measure(frame, layers, titled) {
      let left = Infinity, right = -Infinity;
      for (const layer of layers) for (const c of layer) {
        left = Math.min(left, c.at - c.size / 2);
        right = Math.max(right, c.at + c.size / 2);
      }
      if (left > right) left = right = 0;
      const padding = titled ? PADDING : 0;
      const head = titled && !this.view.sideways ? HEAD : padding, side = titled && this.view.sideways ? HEAD : padding;
      let along = head;
      layers.forEach((layer, k) => {
        let long = layer.reduce((m, c) => Math.max(m, c.length), 0);
        for (const c of layer) {
          c.at += side - left;
          if (c.unit !== "dummy") frame.tops.set(c.unit, along + (long - c.length) / 2);
        }
        frame.layers.push([along, along + long]);
        if (k + 1 < layers.length) long += [...layer, ...layers[k + 1]].some(c => port(c.unit)) ? PADDING : this.gap;
        along += long;
      });
      frame.size = right - left + side + padding;
      frame.length = along + padding;
    }

    placed() {
      const origin = new Map([[ROOT, [PADDING, PADDING]]]), boxes = new Map(), frames = new Map();
      const ids = new Map(this.view.nodes.map(n => [`box:${n.id}`, n.id]));
      for (const id of [ROOT, ...this.view.clusters.map(c => c.id)]) {
        const frame = this.frames.get(id), [x0, y0] = origin.get(id);
        for (const [unit, cell] of frame.cells) {
          const place = [x0 + cell.at - cell.size / 2, y0 + frame.tops.get(unit), cell.size, cell.length];
          if (ids.has(unit)) boxes.set(ids.get(unit), place);
          else if (unit.startsWith("frame:")) {
            frames.set(this.framed.get(unit), place);
            origin.set(this.framed.get(unit), place);
          }
        }
      }
      const lines = this.view.edges.map((e, k) => this.line(e, this.routes[k], origin));
      const whole = this.frames.get(ROOT);
      const scene = { width: whole.size + 2 * PADDING, height: whole.length + 2 * PADDING, boxes, frames, lines };
      return labelled(this.view, this.view.sideways ? turned(scene) : scene);
    }

    line(e, route, origin) {
      const value = e.kind === "back" ? e.target : e.source, points = [];
      for (const [id, a, b] of route) {
        if (a === b) continue;
        const frame = this.frames.get(id), [x0, y0] = origin.get(id), wire = frame.wires.get(`${a} ${b} ${value}`);
        const first = frame.cells.get(wire.source), last = frame.cells.get(wire.target);
        const part = [[x0 + first.at + wire.out, y0 + frame.tops.get(wire.source) + first.length]];
        for (const cell of wire.cells.slice(1, -1)) {
          const [top, bottom] = frame.layers[cell.layer];
          part.push([x0 + cell.at, y0 + top], [x0 + cell.at, y0 + bottom]);
        }
        part.push([x0 + last.at + wire.into, y0 + frame.tops.get(wire.target)]);
        points.push(...(wire.upwards ? part.reverse() : part));
      }
      if (e.kind === "back") points.reverse();
      return { points: [...new Map(points.map(p => [p.join(), p])).values()], at: null };
    }
  }

  /* --- steps of the method */

  function assignLayers(cells, wires, first) {
    const units = acyclicOrder(cells, wires, first);
    const place = new Map(units.map((u, k) => [u, k]));
    const above = new Map([...cells.keys()].map(u => [u, []])), below = new Map([...cells.keys()].map(u => [u, []]));
    for (const w of wires) {
      if (place.get(w.source) > place.get(w.target)) flip(w);
      above.get(w.target).push(w.source);
      below.get(w.source).push(w.target);
    }
    const at = u => cells.get(u).layer, top = Number([...cells.keys()].some(into));
    for (const u of units) cells.get(u).layer = into(u) ? 0 : above.get(u).reduce((m, a) => Math.max(m, at(a) + 1), above.get(u).length ? 0 : top);
    for (const u of [...units].reverse()) {
      if (!above.get(u).length && below.get(u).length && !into(u)) cells.get(u).layer = below.get(u).reduce((m, b) => Math.min(m, at(b)), Infinity) - 1;
    }
    let deepest = 0;
    for (const [u, c] of cells) if (!outOf(u)) deepest = Math.max(deepest, c.layer);
    for (const [u, c] of cells) if (outOf(u)) c.layer = deepest + 1;
  }

  function acyclicOrder(cells, wires, first) {
    const rank = new Map([...cells.keys()].map(u => [u, [into(u) ? 0 : outOf(u) ? 2 : 1, first(u), u]]));
    const waiting = new Map([...cells.keys()].map(u => [u, 0])), below = new Map([...cells.keys()].map(u => [u, []]));
    for (const w of wires) {
      waiting.set(w.target, waiting.get(w.target) + 1);
      below.get(w.source).push(w.target);
    }
    const heap = new Heap(), done = new Set();
    for (const [u, n] of waiting) if (!n) heap.push(rank.get(u));
    const left = [...cells.keys()].sort((a, b) => -Heap.less(rank.get(a), rank.get(b)));
    while (done.size < cells.size) {
      let u;
      if (heap.size) u = heap.pop()[2];
      else {
        while (done.has(left[left.length - 1])) left.pop();
        u = left.pop();
      }
      if (done.has(u)) continue;
      done.add(u);
      for (const b of below.get(u)) {
        waiting.set(b, waiting.get(b) - 1);
        if (!waiting.get(b) && !done.has(b)) heap.push(rank.get(b));
      }
    }
    return [...done];
  }

  function links(wires) {
    const above = new Map(), below = new Map(), known = new Map();
    const add = (map, key, link) => { if (map.has(key)) map.get(key).push(link); else map.set(key, [link]); };
    for (const w of wires) {
      const last = w.cells.length - 2;
      for (let k = 0; k <= last; k++) {
        const a = w.cells[k], b = w.cells[k + 1], out = k === 0 ? w.out : 0, inn = k === last ? w.into : 0;
        if (!known.has(a)) known.set(a, []);
        if (known.get(a).some(x => x[0] === b && x[1] === out && x[2] === inn)) continue;
        known.get(a).push([b, out, inn]);
        const weight = w.weight * (0 < k && k < last ? STRAIGHT : 1);
        add(above, b, [a, out, inn, weight]);
        add(below, a, [b, inn, out, weight]);
      }
    }
    return [above, below];
  }

  function order(layers, above, below) {
    layers.forEach(pack);
    let best = layers.map(l => [...l]), fewest = crossings(layers, above);
    for (let sweep = 0; sweep < SWEEPS && fewest; sweep++) {
      const beside = sweep % 2 ? below : above;
      for (const layer of sweep % 2 ? [...layers].reverse() : layers) {
        const wanted = new Map(layer.map(c => [c, mean(beside.get(c), c)]));
        layer.sort((a, b) => wanted.get(a) - wanted.get(b));
        pack(layer);
      }
      const count = crossings(layers, above);
      if (count < fewest) [best, fewest] = [layers.map(l => [...l]), count];
    }
    layers.forEach((layer, k) => { layer.splice(0, layer.length, ...best[k]); pack(layer); });
  }

  function mean(found, cell) {
    if (!found) return cell.at;
    let sum = 0;
    for (const [other, there, here] of found) sum += other.at + there - here;
    return sum / found.length;
  }

  function pack(layer) {
    let at = 0;
    layer.forEach((c, k) => { at += k ? apart(layer[k - 1], c) : 0; c.at = at; });
    for (const c of layer) c.at -= at / 2;
  }

  function apart(a, b) {
    return (a.size + b.size) / 2 + (a.unit === "dummy" || b.unit === "dummy" ? EDGE_GAP : GAP);
  }

  function crossings(layers, above) {
    let total = 0;
    for (const layer of layers.slice(1)) {
      const ends = layer.flatMap(c => (above.get(c) || []).map(([o, t]) => o.at + t).sort((a, b) => a - b));
      const ranks = new Map([...new Set(ends)].sort((a, b) => a - b).map((x, k) => [x, k + 1]));
      const tree = new Int32Array(ranks.size + 1);
      ends.forEach((x, seen) => {
        let smaller = 0;
        for (let k = ranks.get(x); k; k -= k & -k) smaller += tree[k];
        total += seen - smaller;
        for (let k = ranks.get(x); k <= ranks.size; k += k & -k) tree[k] += 1;
      });
    }
    return total;
  }

  function straighten(layers, above, below) {
    for (let sweep = 0; sweep < SWEEPS + 2; sweep++) {
      const sides = sweep >= SWEEPS ? [above, below] : [sweep % 2 ? below : above];
      for (const layer of sweep % 2 ? [...layers].reverse() : layers) {
        nearest(layer, layer.map(c => {
          let weight = 0, sum = 0;
          for (const beside of sides) for (const [other, there, here, w] of beside.get(c) || []) { weight += w; sum += w * (other.at + there - here); }
          return weight ? [sum / weight, weight] : [c.at, 0.1];
        }));
      }
    }
  }

  function nearest(layer, wanted) {
    const blocks = [], offsets = [];
    let offset = 0;
    wanted.forEach(([at, weight], k) => {
      offset += k ? apart(layer[k - 1], layer[k]) : 0;
      offsets.push(offset);
      blocks.push([weight, weight * (at - offset), 1]);
      while (blocks.length > 1 && blocks[blocks.length - 2][1] / blocks[blocks.length - 2][0] > blocks[blocks.length - 1][1] / blocks[blocks.length - 1][0]) {
        const last = blocks.pop();
        blocks[blocks.length - 1] = blocks[blocks.length - 1].map((x, k) => x + last[k]);
      }
    });
    let k = 0;
    for (const [weight, total, cells] of blocks) for (let c = 0; c < cells; c++, k++) layer[k].at = total / weight + offsets[k];
  }

  /* --- finish */

  function turned(scene) {
    const swap = places => new Map([...places].map(([k, [x, y, w, h]]) => [k, [y, x, h, w]]));
    const lines = scene.lines.map(l => ({ ...l, points: l.points.map(([x, y]) => [y, x]) }));
    return { width: scene.height, height: scene.width, boxes: swap(scene.boxes), frames: swap(scene.frames), lines };
  }

  return view => new Layout(view).scene();
})();

/* The words of an SVG path through points, smooth, in the direction of the flow at each of them. */
function pathThrough(points, sideways) {
  if (!points.length) return "";
  const n = v => v.toFixed(1);
  let [x, y] = points[0], words = `M${n(x)},${n(y)}`;
  for (const [x2, y2] of points.slice(1)) {
    if (sideways ? y === y2 : x === x2) words += `L${n(x2)},${n(y2)}`;
    else if (sideways) words += `C${n((x + x2) / 2)},${n(y)} ${n((x + x2) / 2)},${n(y2)} ${n(x2)},${n(y2)}`;
    else words += `C${n(x)},${n((y + y2) / 2)} ${n(x2)},${n((y + y2) / 2)} ${n(x2)},${n(y2)}`;
    [x, y] = [x2, y2];
  }
  return words;
}
