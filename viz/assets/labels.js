"use strict";
/* Where the labels of edges stand, as viz/picture/scene.py has it: beside its edge, where no box, title of a frame or label before it
   is if that can be. `labelled(view, scene)` gives each line of the scene that has a label its place `at`. */
const LETTER = 5, APART = 4, length = text => [...text].length;

const labelled = (() => {
  function labelled(view, scene) {
    const taken = new Taken();
    for (const [x, y, width, height] of scene.boxes.values()) taken.add([x, y - 3, width + 3, height + 3]);
    for (const c of view.clusters) {
      const [x, y] = scene.frames.get(c.id);
      taken.add([x + 8, y + 4, 6 * length(c.title), 13]);
    }
    scene.lines.forEach((line, k) => {
      const label = view.edges[k].label;
      if (!label || line.points.length < 2) return;
      const width = LETTER * length(label), around = [...spots(line.points, width, view.sideways)];
      const free = ([x, y]) => x >= 0 && x + width <= scene.width && taken.free([x, y - 8, width, 10]);
      line.at = around.find(free) || around[0];
      taken.add([line.at[0] - APART, line.at[1] - 8, width + 2 * APART, 10]);
    });
    return scene;
  }

  function* spots(points, width, sideways) {
    const sides = sideways ? [[-width / 2, -3], [-width / 2, 11]] : [[3, 3], [-3 - width, 3]];
    for (const t of [0.5, 0.25, 0.75, 0.375, 0.625, 0.125, 0.875]) {
      const across = t * t * (3 - 2 * t), along = t * (1.5 - t * (1.5 - t));
      const [a, b] = sideways ? [along, across] : [across, along];
      for (const [right, down] of sides) {
        for (let k = 1; k < points.length; k++) {
          const [x1, y1] = points[k - 1], [x2, y2] = points[k];
          yield [x1 + (x2 - x1) * a + right, y1 + (y2 - y1) * b + down];
        }
      }
    }
  }

  class Taken {
    constructor() { this.squares = new Map(); }

    add(place) {
      for (const key of squares(place)) {
        if (!this.squares.has(key)) this.squares.set(key, []);
        this.squares.get(key).push(place);
      }
    }

    free(a) {
      const touches = b => a[0] < b[0] + b[2] && b[0] < a[0] + a[2] && a[1] < b[1] + b[3] && b[1] < a[1] + a[3];
      return ![...squares(a)].some(key => (this.squares.get(key) || []).some(touches));
    }
  }

  function* squares([x, y, width, height]) {
    for (let i = Math.floor(x / 200); i <= Math.floor((x + width) / 200); i++) {
      for (let j = Math.floor(y / 40); j <= Math.floor((y + height) / 40); j++) yield `${i},${j}`;
    }
  }

  return labelled;
})();
