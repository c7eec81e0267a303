// One model's answer: its ranked classes, the picture with the map, and all heads.

import * as api from "./api.js";
import { make, percent } from "./dom.js";
import { Heads } from "./heads.js";
import { Stage } from "./stage.js";

const PAUSE = 60; // milliseconds that the pointer rests before a row is asked for

export class Pane {
  constructor(model, { onPatch, onChoose, onClass, onError }) {
    this.model = model;
    this.onClass = onClass;
    this.onError = onError;
    this.stage = new Stage((patch) => onPatch(patch, this));
    this.heads = new Heads(onChoose);
    this.classes = make("ol", { className: "classes" });
    this.about = make("p", { className: "about", role: "status" });
    this.facts = make("p", { className: "facts" });
    this.headsPart = make("details", { className: "heads-part", open: true }, make("summary", { textContent: "Layers across, heads down; the first row is their mean" }), this.heads.element);
    this.element = make(
      "article",
      { className: "pane", "aria-label": model.name },
      make("h2", { textContent: model.name }),
      make("div", { className: "look" }, this.stage.element, this.about),
      make("div", { className: "answer" }, this.classes, this.facts, this.headsPart),
    );
  }

  // Ask the server about a new picture. `picture.answers` keeps what is known, by model.
  async ask(picture) {
    this.picture = picture;
    this.element.classList.add("busy");
    try {
      if (!picture.answers.has(this.model.name)) picture.answers.set(this.model.name, await this.fetch(picture));
      if (this.picture !== picture) return;
      this.answer = picture.answers.get(this.model.name);
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
    const bitmap = picture.bitmap ?? (await createImageBitmap(await api.asSeen(picture.blob, this.model.name)));
    // What a browser cannot decode is shown as the model saw it.
    const view = picture.bitmap
      ? { bitmap, size: data.size, region: data.region, grid: data.grid }
      : { bitmap, size: [bitmap.height, bitmap.width], region: [0, 0, bitmap.width, bitmap.height], grid: data.grid };
    return { predictions: data.predictions, data, view, maps: new Map(), rows: new Map(), ms: performance.now() - started };
  }

  listClasses() {
    const best = this.answer.predictions[0]?.score || 1;
    this.classes.replaceChildren(...this.answer.predictions.map(({ label, score }) => {
      const bar = make("span", { className: "bar" });
      bar.style.width = `${(100 * score) / Math.max(best, 0.25)}%`;
      const button = make("button", { type: "button", title: `Why ${label}?`, "aria-pressed": "false" },
        bar, make("span", { className: "label", textContent: label }), make("span", { className: "score", textContent: percent(score) }));
      button.addEventListener("click", () => this.onClass(label));
      return make("li", {}, button);
    }));
    this.facts.textContent = `answered in ${Math.round(this.answer.ms)} ms`;
  }

  // `settings`: method, layer and head as shares of the first model's, patch as shares of the picture, class, opacity.
  async show(settings) {
    this.settings = settings;
    const { answer } = this;
    if (!answer?.data) return;
    for (const button of this.classes.querySelectorAll("button")) {
      button.setAttribute("aria-pressed", String(settings.byClass && button.querySelector(".label").textContent === settings.label));
    }
    this.headsPart.hidden = settings.method !== "attention";
    if (settings.method === "attention") this.showAttention(settings);
    else await this.showMap(settings);
  }

  showAttention({ layer, head, spot, opacity }) {
    const { answer: { data, view, rows } } = this;
    const patch = spot && this.patchAt(spot);
    let source = data, row = 0;
    if (patch && data.whole) row = 1 + patch.row * data.grid[1] + patch.column;
    if (patch && !data.whole) source = rows.get(`${patch.row},${patch.column}`) ?? this.fetchRow(patch);
    const l = Math.round(layer * (data.layers - 1)), h = head < 0 ? -1 : Math.min(head, data.heads - 1);
    const values = api.weights(source, l, h, row);
    if (this.stage.kept === false) this.stage.patch = patch;
    this.stage.show(view, values, opacity);
    this.heads.show(source, row, l, h);
    const sum = values.reduce((a, b) => a + b, 0);
    const who = patch ? `patch ${patch.row + 1}, ${patch.column + 1}` : data.summary;
    this.about.textContent = `Layer ${l + 1} of ${data.layers}, ${h < 0 ? `mean of ${data.heads} heads` : `head ${h + 1}`}: ${who}` +
      (patch ? " looks here" : " attention") + (sum < 0.995 ? `; ${percent(1 - sum)} goes to other tokens` : "");
  }

  patchAt({ x, y }) {
    const [rows, columns] = this.answer.data.grid;
    return { row: Math.min(rows - 1, Math.floor(y * rows)), column: Math.min(columns - 1, Math.floor(x * columns)) };
  }

  // Of a large grid the rows come one by one, when the pointer rests; until then the summary stands in.
  fetchRow(patch) {
    clearTimeout(this.timer);
    const { picture, answer, settings } = this;
    this.timer = setTimeout(async () => {
      try {
        const query = `${patch.row},${patch.column}`;
        answer.rows.set(query, await api.attention(picture.blob, { model: this.model.name, query, top: 1 }));
        if (this.answer === answer) this.show({ ...this.settings, spot: this.settings.spot ?? settings.spot });
      } catch (error) {
        this.onError(error);
      }
    }, PAUSE);
    return answer.data;
  }

  async showMap({ method, layer, label, byClass, opacity }) {
    const { answer, picture, answer: { data, view, maps } } = this;
    const query = { model: this.model.name, method };
    if (byClass && this.model.classes.includes(label)) query.class = label;
    if (method === "rollout") query.layer = Math.round(layer * (data.layers - 1));
    const key = JSON.stringify(query);
    if (!maps.has(key)) {
      this.element.classList.add("busy");
      this.about.textContent = "…";
      try {
        maps.set(key, await api.explain(picture.blob, query));
      } catch (error) {
        this.onError(error);
        return;
      } finally {
        this.element.classList.remove("busy");
      }
      if (this.answer !== answer || this.settings.method !== method) return;
      if (this.settings.label !== label || this.settings.layer !== layer) return this.show(this.settings);
    }
    const found = maps.get(key);
    this.stage.patch = null;
    this.stage.show(view, Float32Array.from(found.map.flat()), this.settings.opacity ?? opacity);
    const what = byClass ? ` for “${found.class.label}” (${percent(found.class.score)})` : ` to layer ${query.layer + 1}`;
    this.about.textContent = `${method[0].toUpperCase()}${method.slice(1)}${what}`;
  }
}
