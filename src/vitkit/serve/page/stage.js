// The image with a map over it. Pointer, touch and arrow keys select a patch.

import { make } from "./dom.js";
import { heatCanvas } from "./heat.js";

const MAX_HEIGHT = "36rem";
const MIN_SMOOTH = 64; // pixels: smaller images are drawn as squares

export class Stage {
  constructor(onPatch) {
    this.onPatch = onPatch; // called with { row, column, pinned } or null
    this.canvas = make("canvas", { tabIndex: 0, role: "application", "aria-label": "Image with a map. Arrow keys select a patch." });
    this.element = make("div", { className: "stage" }, this.canvas);
    this.patch = null;
    this.pinned = false;
    this.shown = null;
    this.canvas.addEventListener("pointermove", (event) => event.pointerType === "mouse" && !this.pinned && this.point(event, false));
    this.canvas.addEventListener("pointerleave", () => !this.pinned && this.select(null));
    this.canvas.addEventListener("click", (event) => this.click(event));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  // `view`: bitmap, size [height, width], region [left, top, right, bottom], grid [rows, columns]
  show(view, values, opacity) {
    this.shown = { view, values, opacity };
    const [left, top, right, bottom] = view.region;
    const ratio = (right - left) / (bottom - top);
    this.element.style.aspectRatio = ratio;
    this.element.style.maxWidth = `calc(${MAX_HEIGHT} * ${ratio})`;
    this.draw();
  }

  patchUnder(event) {
    const [rows, columns] = this.shown.view.grid;
    const box = this.canvas.getBoundingClientRect();
    const limit = (value, count) => Math.max(0, Math.min(count - 1, Math.floor(value * count)));
    return { row: limit((event.clientY - box.top) / box.height, rows), column: limit((event.clientX - box.left) / box.width, columns) };
  }

  point(event, pinned) {
    if (this.shown) this.select(this.patchUnder(event), pinned);
  }

  click(event) {
    if (!this.shown) return;
    const patch = this.patchUnder(event);
    const same = this.pinned && this.patch?.row === patch.row && this.patch?.column === patch.column;
    this.select(same ? null : patch, !same);
  }

  key(event) {
    if (!this.shown) return;
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (event.key === "Escape") this.select(null);
    if (!step) return;
    event.preventDefault();
    const [rows, columns] = this.shown.view.grid;
    const from = this.patch ?? { row: (rows >> 1) - step[0], column: (columns >> 1) - step[1] };
    const within = (value, count) => Math.max(0, Math.min(count - 1, value));
    this.select({ row: within(from.row + step[0], rows), column: within(from.column + step[1], columns) }, true);
  }

  select(patch, pinned = false) {
    const same = patch?.row === this.patch?.row && patch?.column === this.patch?.column && pinned === this.pinned;
    this.patch = patch;
    this.pinned = Boolean(patch) && pinned;
    if (!same) this.onPatch(patch && { ...patch, pinned: this.pinned });
  }

  draw() {
    if (!this.shown) return;
    const { view, values, opacity } = this.shown;
    const box = this.element.getBoundingClientRect();
    const scale = window.devicePixelRatio || 1;
    const width = Math.max(1, Math.round(box.width * scale)), height = Math.max(1, Math.round(box.height * scale));
    if (this.canvas.width !== width || this.canvas.height !== height) Object.assign(this.canvas, { width, height });
    const context = this.canvas.getContext("2d");
    context.clearRect(0, 0, width, height);
    drawImage(context, view, width, height, values ? opacity : 0);
    if (values) {
      context.imageSmoothingEnabled = true;
      context.imageSmoothingQuality = "high";
      context.drawImage(heatCanvas(values, view.grid, opacity), 0, 0, width, height);
    }
    if (this.patch) frame(context, this.patch, view.grid, width, height, scale);
  }
}

// The image turns grey as the map becomes opaque, so that the colours of the map can be read.
function drawImage(context, { bitmap, size, region }, width, height, opacity) {
  const [left, top, right, bottom] = region;
  const x = bitmap.width / size[1], y = bitmap.height / size[0];
  context.imageSmoothingEnabled = Math.max(bitmap.width, bitmap.height) >= MIN_SMOOTH;
  context.imageSmoothingQuality = "high";
  context.filter = `grayscale(${0.9 * opacity})`;
  context.drawImage(bitmap, left * x, top * y, (right - left) * x, (bottom - top) * y, 0, 0, width, height);
  context.filter = "none";
}

function frame(context, { row, column }, [rows, columns], width, height, scale) {
  const box = [(column * width) / columns, (row * height) / rows, width / columns, height / rows];
  context.lineWidth = 4 * scale;
  context.strokeStyle = "rgb(0 0 0 / 60%)";
  context.strokeRect(...box);
  context.lineWidth = 2 * scale;
  context.strokeStyle = "white";
  context.strokeRect(...box);
}
