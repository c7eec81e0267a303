// Attention of all layers and heads: one column per layer, the mean over heads in the first row, then one row per head.

import { weights } from "./api.js";
import { make } from "./dom.js";
import { paint } from "./heat.js";

const MIN_CELL = 30; // CSS pixels

export class Heads {
  constructor(onSelect) {
    this.canvas = make("canvas", { role: "img", "aria-label": "Attention maps of all layers and heads. The sliders select them too." });
    this.element = make("div", { className: "heads" }, this.canvas);
    this.canvas.addEventListener("click", (event) => {
      const box = this.canvas.getBoundingClientRect();
      onSelect(
        Math.min(this.data.layers - 1, Math.floor(((event.clientX - box.left) / box.width) * this.data.layers)),
        Math.min(this.data.heads, Math.floor(((event.clientY - box.top) / box.height) * (this.data.heads + 1))) - 1,
      );
    });
  }

  show(data, row, layer, head) {
    this.data = data;
    const [rows, columns] = data.grid;
    const image = new ImageData(data.layers * columns, (data.heads + 1) * rows);
    for (let l = 0; l < data.layers; l++) {
      for (let h = -1; h < data.heads; h++) {
        paint(image, weights(data, l, h, row), columns, 1, l * columns, (h + 1) * rows);
      }
    }
    const small = new OffscreenCanvas(image.width, image.height);
    small.getContext("2d").putImageData(image, 0, 0);
    this.draw(small, data, layer, head);
  }

  draw(small, { layers, heads, grid: [rows, columns] }, layer, head) {
    const scale = window.devicePixelRatio || 1;
    const width = Math.max(this.element.clientWidth, layers * MIN_CELL);
    const cell = Math.min(Math.floor((width / layers) * scale), Math.round(90 * scale)), height = Math.round((cell * rows) / columns);
    Object.assign(this.canvas, { width: cell * layers, height: height * (heads + 1) });
    this.canvas.style.width = `${(cell * layers) / scale}px`;
    const context = this.canvas.getContext("2d");
    const gap = 2 * scale;
    context.imageSmoothingEnabled = false;
    for (let l = 0; l < layers; l++) {
      for (let h = 0; h <= heads; h++) {
        const box = [l * cell + gap, h * height + gap, cell - 2 * gap, height - 2 * gap];
        context.drawImage(small, l * columns, h * rows, columns, rows, ...box);
        if (l === layer && h === head + 1) {
          context.lineWidth = 2 * gap;
          context.strokeStyle = getComputedStyle(this.element).getPropertyValue("--accent");
          context.strokeRect(...box);
        }
      }
    }
  }
}
