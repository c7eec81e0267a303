// The picture with a map over it; the patch under the pointer, the finger or the arrow keys.

import { make } from "./dom.js";
import { heatCanvas } from "./heat.js";

const TALLEST = "36rem";
const SMALL = 64; // pixels: below, they are shown as squares

export class Stage {
  constructor(onPatch) {
    this.onPatch = onPatch; // called with { row, column, kept } or null
    this.canvas = make("canvas", { tabIndex: 0, role: "application", "aria-label": "Image with its map: arrow keys choose a patch" });
    this.element = make("div", { className: "stage" }, this.canvas);
    this.patch = null;
    this.kept = false;
    this.shown = null;
    this.canvas.addEventListener("pointermove", (event) => event.pointerType === "mouse" && !this.kept && this.point(event, false));
    this.canvas.addEventListener("pointerleave", () => !this.kept && this.choose(null));
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
    this.element.style.maxWidth = `calc(${TALLEST} * ${ratio})`;
    this.draw();
  }

  at(event) {
    const [rows, columns] = this.shown.view.grid;
    const box = this.canvas.getBoundingClientRect();
    const limit = (value, count) => Math.max(0, Math.min(count - 1, Math.floor(value * count)));
    return { row: limit((event.clientY - box.top) / box.height, rows), column: limit((event.clientX - box.left) / box.width, columns) };
  }

  point(event, kept) {
    if (this.shown) this.choose(this.at(event), kept);
  }

  click(event) {
    if (!this.shown) return;
    const spot = this.at(event);
    const same = this.kept && this.patch?.row === spot.row && this.patch?.column === spot.column;
    this.choose(same ? null : spot, !same);
  }

  key(event) {
    if (!this.shown) return;
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (event.key === "Escape") this.choose(null);
    if (!step) return;
    event.preventDefault();
    const [rows, columns] = this.shown.view.grid;
    const from = this.patch ?? { row: (rows >> 1) - step[0], column: (columns >> 1) - step[1] };
    const within = (value, count) => Math.max(0, Math.min(count - 1, value));
    this.choose({ row: within(from.row + step[0], rows), column: within(from.column + step[1], columns) }, true);
  }

  choose(patch, kept = false) {
    const same = patch?.row === this.patch?.row && patch?.column === this.patch?.column && kept === this.kept;
    this.patch = patch;
    this.kept = Boolean(patch) && kept;
    if (!same) this.onPatch(patch && { ...patch, kept: this.kept });
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
    drawPicture(context, view, width, height, values ? opacity : 0);
    if (values) {
      context.imageSmoothingEnabled = true;
      context.imageSmoothingQuality = "high";
      context.drawImage(heatCanvas(values, view.grid, opacity), 0, 0, width, height);
    }
    if (this.patch) frame(context, this.patch, view.grid, width, height, scale);
  }
}

// Colours give way to grey where the map's are to be read.
function drawPicture(context, { bitmap, size, region }, width, height, opacity) {
  const [left, top, right, bottom] = region;
  const x = bitmap.width / size[1], y = bitmap.height / size[0];
  context.imageSmoothingEnabled = Math.max(bitmap.width, bitmap.height) >= SMALL;
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
