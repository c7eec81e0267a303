// The result of one model: its top classes, the image with a map, and all attention heads.

import * as api from "./api.js";
import { make, percent } from "./dom.js";
import { Heads } from "./heads.js";
import { Stage } from "./stage.js";

const HOVER_DELAY = 60; // milliseconds before a row is requested

export class Pane {
  constructor(model, { onPatch, onSelect, onClass, onError }) {
    this.model = model;
    this.onClass = onClass;
    this.onError = onError;
    this.stage = new Stage((patch) => onPatch(patch, this));
    this.heads = new Heads(onSelect);
    this.classes = make("ol", { className: "classes" });
    this.about = make("p", { className: "about", role: "status" });
    this.facts = make("p", { className: "facts" });
    this.headsPart = make("details", { className: "heads-part", open: true }, make("summary", { textContent: "Columns: layers. Rows: mean, heads." }), this.heads.element);
    this.element = make(
      "article",
      { className: "pane", "aria-label": model.name },
      make("h2", { textContent: model.name }),
      make("div", { className: "view" }, this.stage.element, this.about),
      make("div", { className: "scores" }, this.classes, this.facts, this.headsPart),
    );
  }

  // Requests the result for an image. `picture.results` caches results by model.
  async load(picture) {
    this.picture = picture;
    this.element.classList.add("busy");
    try {
      if (!picture.results.has(this.model.name)) picture.results.set(this.model.name, await this.fetch(picture));
      if (this.picture !== picture) return;
      this.result = picture.results.get(this.model.name);
      this.listClasses();
    } finally {
      this.element.classList.remove("busy");
    }
  }

  async fetch(picture) {
    const started = performance.now();
    const query = { model: this.model.name, top: 10 };
    if (!this.model.explains) {
      const { results: [{ predictions }] } = await api.predict(picture.blob, query);
      return { predictions, maps: new Map(), rows: new Map(), ms: performance.now() - started };
    }
    const data = await api.attention(picture.blob, query);
    const bitmap = picture.bitmap ?? (await createImageBitmap(await api.modelInput(picture.blob, this.model.name)));
    // An image that the browser cannot decode is shown as the input of the model.
    const view = picture.bitmap
      ? { bitmap, size: data.size, region: data.region, grid: data.grid }
      : { bitmap, size: [bitmap.height, bitmap.width], region: [0, 0, bitmap.width, bitmap.height], grid: data.grid };
    return { predictions: data.predictions, data, view, maps: new Map(), rows: new Map(), ms: performance.now() - started };
  }

  listClasses() {
    const best = this.result.predictions[0]?.score || 1;
    this.classes.replaceChildren(...this.result.predictions.map(({ label, score, index }) => {
      const bar = make("span", { className: "bar" });
      bar.style.width = `${(100 * score) / Math.max(best, 0.25)}%`;
      const button = make("button", { type: "button", title: `Explain “${label}”`, "aria-pressed": "false" },
        bar, make("span", { className: "label", textContent: label }), make("span", { className: "score", textContent: percent(score) }));
      button.addEventListener("click", () => this.onClass(label, index));
      button.dataset.index = index;
      return make("li", {}, button);
    }));
    this.facts.textContent = `Response time: ${Math.round(this.result.ms)} ms`;
  }

  // `settings`: method, layer as a fraction of the depth, head, position in the image as fractions, class, opacity.
  async show(settings) {
    this.settings = settings;
    const { result } = this;
    if (!result?.data) return;
    for (const button of this.classes.querySelectorAll("button")) {
      button.setAttribute("aria-pressed", String(settings.byClass && this.classIndex(settings) === Number(button.dataset.index)));
    }
    this.headsPart.hidden = settings.method !== "attention";
    if (settings.method === "attention") this.showAttention(settings);
    else await this.showMap(settings);
  }

  showAttention({ layer, head, point, opacity }) {
    const { result: { data, view, rows } } = this;
    const patch = point && this.patchAt(point);
    let rowData = data, row = 0;
    if (patch && data.allRows) row = 1 + patch.row * data.grid[1] + patch.column;
    if (patch && !data.allRows) rowData = rows.get(`${patch.row},${patch.column}`) ?? this.fetchRow(patch);
    const l = Math.round(layer * (data.layers - 1)), h = head < 0 ? -1 : Math.min(head, data.heads - 1);
    const values = api.weights(rowData, l, h, row);
    if (this.stage.pinned === false) this.stage.patch = patch;
    this.stage.show(view, values, opacity);
    this.heads.show(rowData, row, l, h);
    const sum = values.reduce((a, b) => a + b, 0);
    const source = patch ? `attention of patch (${patch.row + 1}, ${patch.column + 1})` : `${data.summary} attention`;
    this.about.textContent = `Layer ${l + 1} of ${data.layers}, ${h < 0 ? `mean of ${data.heads} heads` : `head ${h + 1}`}: ${source}` +
      (sum < 0.995 ? `; ${percent(1 - sum)} goes to other tokens` : "");
  }

  patchAt({ x, y }) {
    const [rows, columns] = this.result.data.grid;
    return { row: Math.min(rows - 1, Math.floor(y * rows)), column: Math.min(columns - 1, Math.floor(x * columns)) };
  }

  // Large grids load one row at a time, when the pointer rests. Until then the first row is shown.
  fetchRow(patch) {
    clearTimeout(this.timer);
    const { picture, result, settings } = this;
    this.timer = setTimeout(async () => {
      try {
        const query = `${patch.row},${patch.column}`;
        result.rows.set(query, await api.attention(picture.blob, { model: this.model.name, query, top: 1 }));
        if (this.result === result) this.show({ ...this.settings, point: this.settings.point ?? settings.point });
      } catch (error) {
        this.onError(error);
      }
    }, HOVER_DELAY);
    return result.data;
  }

  // The index of the chosen class in this model: classes may share a name, and another model may order them otherwise.
  classIndex({ label, index }) {
    return this.model.classes[index] === label ? index : this.model.classes.indexOf(label);
  }

  async showMap({ method, layer, label, index, byClass, opacity }) {
    const { result, picture, result: { data, view, maps } } = this;
    const query = { model: this.model.name, method };
    const wanted = this.classIndex({ label, index });
    const unique = this.model.classes.indexOf(label) === this.model.classes.lastIndexOf(label);
    if (byClass && wanted >= 0) query.class = unique ? label : wanted;
    if (method === "rollout") query.layer = Math.round(layer * (data.layers - 1));
    const key = JSON.stringify(query);
    if (!maps.has(key)) {
      this.element.classList.add("busy");
      this.about.textContent = "Loading…";
      try {
        maps.set(key, await api.explain(picture.blob, query));
      } catch (error) {
        this.onError(error);
        return;
      } finally {
        this.element.classList.remove("busy");
      }
      if (this.result !== result || this.settings.method !== method) return;
      if (this.settings.index !== index || this.settings.label !== label || this.settings.layer !== layer) return this.show(this.settings);
    }
    const found = maps.get(key);
    this.stage.patch = null;
    this.stage.show(view, Float32Array.from(found.map.flat()), this.settings.opacity ?? opacity);
    const what = byClass ? ` for “${found.class.label}” (${percent(found.class.score)})` : ` to layer ${query.layer + 1}`;
    this.about.textContent = `${method[0].toUpperCase()}${method.slice(1)}${what}`;
  }
}
