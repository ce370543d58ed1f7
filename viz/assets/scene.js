"use strict";
/* What a pane shows: the boxes of a folding, those that are open as frames around what they hold, the edges between, and places. */

/* A parameter or constant with more edges than this is named in the boxes that take it. */
const FAN = 12;
/* What is beside a part that is shown alone is drawn up to so many boxes. */
const BESIDE = 24;

class Scene {
  /* `open` are the keys of the open boxes; `sideways` lets data flow to the right. */
  constructor(graph, fold, open, sideways) {
    this.graph = graph;
    this.boxes = [];
    this.frames = [];
    this.owner = new Int32Array(graph.nodes.length).fill(-1);
    this.collect(fold, open, new Map(), null);
    this.boxes.forEach((box, n) => { box.n = n; for (const m of box.members) this.owner[m] = n; });
    this.alone = fold !== graph.folds[0];
    const links = this.links();
    this.notes = [...fold.notes, ...this.hide(links)];
    this.place(links, sideways);
  }

  /* The boxes of a folding and of what is open in it; `outer` says which frames around it are drawn already, and as which. */
  collect(fold, open, outer, home) {
    const drawn = new Map(outer);
    const frame = id => {
      if (id === null || id === undefined) return home;
      if (!drawn.has(id)) {
        const { title, kind, parent } = fold.frameOf.get(id);
        const key = `${fold.number}/${id}`;
        const inside = frame(parent);
        this.frames.push({ id: key, title, kind, parent: inside });
        drawn.set(id, key);
      }
      return drawn.get(id);
    };
    for (const box of fold.boxes) {
      const at = frame(box.frame);
      if (!open.has(box.key) || !openable(box)) {
        this.boxes.push({ ...box, id: box.key, cluster: at });
        continue;
      }
      const key = `open ${box.key}`, around = new Map(), inner = this.graph.opened(box);
      this.frames.push({ id: key, title: box.title, kind: "open", parent: at, box });
      for (let id = box.frame; id !== null && id !== undefined; id = fold.frameOf.get(id).parent) around.set(id, key);
      this.collect(inner, open, around, key);
    }
  }

  /* The edges between boxes: those that join the same two are one. Of a part alone also those out of it. */
  links() {
    const bundles = new Map(), beside = this.alone ? new Map() : null;
    const group = n => n >= 0 && this.boxes[n].kind === "group", kindOf = id => this.graph.nodes[id].kind;
    const acting = this.boxes.map(b => b.kind === "group" && b.members.some(m => kindOf(m) === "op"));
    for (const e of this.graph.edges) {
      let s = this.owner[e.source], t = this.owner[e.target];
      if (s < 0 && t < 0 || s === t) continue;
      if (e.kind === "control" && group(s) && kindOf(e.source) === "start") continue;  // it is inside
      if (kindOf(e.source) === "constant" && acting[s] && group(t)) continue;  // exporters write equal ones once: no data passes
      if (s < 0 || t < 0) {
        if (!beside || e.kind === "back") continue;
        if (s < 0) s = this.stub(e.source, beside, "before");
        else t = this.stub(e.target, beside, "after");
        if (s < 0 || t < 0) continue;
      }
      const key = `${s} ${t} ${e.kind}`;
      if (!bundles.has(key)) bundles.set(key, { source: s, target: t, kind: e.kind, edges: [] });
      bundles.get(key).edges.push(e);
    }
    for (const [key, b] of bundles) {  // a weight that goes along with what the forward part keeps
      const data = `${b.source} ${b.target} data`;
      if (b.kind === "residual" && bundles.has(data)) {
        b.edges.push(...bundles.get(data).edges);
        bundles.delete(data);
      }
    }
    const single = n => this.boxes[n].kind !== "group";
    return [...bundles.values()].flatMap(({ source, target, kind, edges }) =>
      (single(source) && single(target) ? edges.map(e => e.label) : [labelOf(edges)]).map(label => ({ source, target, kind, label })));
  }

  /* The box of a node beside a part that is shown alone; -1 when there are too many. */
  stub(node, beside, side) {
    const key = `${side} ${node}`;
    if (!beside.has(key)) {
      this.beyond = (this.beyond || 0) + (beside.size >= BESIDE);
      if (beside.size >= BESIDE) return -1;
      const n = this.graph.nodes[node];
      beside.set(key, this.boxes.length);
      this.boxes.push({ key: `beside ${key}`, id: `beside ${key}`, kind: "outside", family: n.family, title: n.title, subtitle: n.name || "",
        members: [node], inside: -1, cluster: null, n: this.boxes.length });
    }
    return beside.get(key);
  }

  /* Writes what feeds very many boxes into them; says so. */
  hide(links) {
    const fans = new Map(), notes = this.beyond ? ["more boxes beside this part are not drawn"] : [];
    for (const e of links) fans.set(e.source, (fans.get(e.source) || 0) + 1);
    const hub = n => ["param", "constant"].includes(this.boxes[n].kind) && fans.get(n) > FAN;
    const taken = new Map();
    for (let k = links.length - 1; k >= 0; k--) {
      const { source, target } = links[k];
      if (!hub(source)) continue;
      if (!taken.has(target)) taken.set(target, new Set());
      taken.get(target).add(this.boxes[source].title);
      links.splice(k, 1);
    }
    for (const [n, names] of taken) this.boxes[n].subtitle = `${this.boxes[n].subtitle}\ntakes ${[...names].reverse().join(", ").slice(0, 36)}`.trim();
    const hubs = [...fans.keys()].filter(hub).map(n => this.boxes[n]);
    for (const box of hubs) box.subtitle = `${box.subtitle}\nfeeds ${fans.get(box.n)} boxes`.trim();
    if (hubs.length) notes.push(`${hubs.map(b => b.title).join(", ")}: written into the boxes that take it, not drawn as edges`);
    return notes;
  }

  place(links, sideways) {
    this.sideways = sideways;
    const nodes = this.boxes.map(b => ({ id: b.n, kind: b.kind, title: b.title, subtitle: b.subtitle, cluster: b.cluster }));
    const order = this.alone ? [...nodes.filter(n => this.isBefore(n.id)), ...nodes.filter(n => !this.isBefore(n.id))] : nodes;
    const found = layOut({ nodes: order, edges: links, clusters: this.frames, sideways });
    this.size = [found.width, found.height];
    for (const box of this.boxes) [box.x, box.y, box.w, box.h] = found.boxes.get(box.n);
    for (const frame of this.frames) [frame.x, frame.y, frame.w, frame.h] = found.frames.get(frame.id);
    this.edges = links.map((e, k) => ({ ...e, path: pathThrough(found.lines[k].points, sideways), at: found.lines[k].at }));
  }

  isBefore(n) { return this.boxes[n].id.startsWith("beside before"); }

  /* The box that stands for a node. */
  boxOf(node) { return this.boxes[this.owner[node]] || null; }
}

/* The label of an edge that stands for several, of which those from one node carry one value. */
function labelOf(edges) {
  const labels = [...new Map(edges.map(e => [`${e.source} ${e.label}`, e.label])).values()];
  if (labels.length === 1) return labels[0];
  return labels.every(l => l && l === labels[0]) ? `${labels.length} × ${labels[0]}` : `${labels.length} values`;
}

/* The keys of the boxes to open, outermost first, until a node has a box of its own. */
function wayTo(graph, fold, node) {
  const way = [];
  for (;;) {
    const box = fold.boxOf(node);
    if (!box || !openable(box) || way.includes(box.key)) return box ? way : null;
    way.push(box.key);
    fold = graph.opened(box);
  }
}
