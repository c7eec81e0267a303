// State of the page, and the handlers of its controls.

import * as api from "./api.js";
import { byId, make } from "./dom.js";
import { Pane } from "./pane.js";

const MAX_HISTORY = 12; // images
const CLASS_METHOD = "attribution"; // shown after a click on a class

const state = { method: "attention", layer: 1, head: -1, point: null, label: null, index: null, opacity: 0.7 };
let models = [], panes = [], pictures = [], current = null;

const settings = () => ({ ...state, byClass: document.querySelector(`[value="${state.method}"]`).dataset.byClass !== undefined });

function showError(error) {
  const line = byId("error");
  line.hidden = !error;
  line.textContent = error ? error.message : "";
  if (error && error.status === undefined) console.error(error);
}

async function openBlob(blob, name) {
  showError(null);
  document.body.classList.add("busy");
  const picture = { blob, name, results: new Map(), url: URL.createObjectURL(blob) };
  picture.bitmap = await createImageBitmap(blob).catch(() => null);
  await open(picture);
}

async function open(picture) {
  current = picture;
  state.point = null;
  document.body.classList.add("busy");
  for (const pane of panes) Object.assign(pane.stage, { patch: null, pinned: false });
  try {
    await Promise.all(panes.map((pane) => pane.load(picture)));
    if (current !== picture) return;
    showError(null);
    Object.assign(state, { label: panes[0].result.predictions[0].label, index: panes[0].result.predictions[0].index });
    byId("result").hidden = false;
    addToHistory(picture);
    setRanges();
    await refresh();
  } catch (error) {
    if (current === picture) showError(error);
  } finally {
    if (current === picture) document.body.classList.remove("busy");
    document.body.dataset.results = Number(document.body.dataset.results ?? 0) + 1;
  }
}

function addToHistory(picture) {
  pictures = [picture, ...pictures.filter((one) => one !== picture)];
  for (const old of pictures.splice(MAX_HISTORY)) URL.revokeObjectURL(old.url);
  byId("history-part").hidden = pictures.length < 2;
  byId("history").replaceChildren(...pictures.slice(1).map((one) => thumbnail(one.bitmap ? one.url : "", one.name, () => open(one))));
}

function thumbnail(url, name, onClick) {
  const inside = url ? make("img", { src: url, alt: name }) : make("span", { textContent: name.slice(0, 8) });
  const button = make("button", { type: "button", title: name, className: "thumbnail" }, inside);
  button.addEventListener("click", onClick);
  return button;
}

function setRanges() {
  const data = panes[0].result?.data;
  byId("controls").hidden = !data;
  if (!data) return;
  byId("layer").max = data.layers;
  byId("head").max = data.heads;
  state.head = Math.min(state.head, data.heads - 1);
  byId("layer").value = 1 + Math.round(state.layer * (data.layers - 1));
  byId("head").value = state.head + 1;
}

async function refresh() {
  byId("layer-value").textContent = `${byId("layer").value} / ${byId("layer").max}`;
  byId("head-value").textContent = state.head < 0 ? "mean" : `${state.head + 1} / ${byId("head").max}`;
  byId("opacity-value").textContent = `${Math.round(100 * state.opacity)} %`;
  byId("layer").disabled = !["attention", "rollout"].includes(state.method);
  byId("head").disabled = state.method !== "attention";
  document.querySelector(`[name="method"][value="${state.method}"]`).checked = true;
  await Promise.all(panes.map((pane) => pane.show(settings())));
}

// The patches of two models differ: the other model shows its patch at the same position in the image.
function onPatch(patch, from) {
  const [rows, columns] = from.result.data.grid;
  state.point = patch && { x: (patch.column + 0.5) / columns, y: (patch.row + 0.5) / rows };
  for (const pane of panes) if (pane !== from) Object.assign(pane.stage, { pinned: Boolean(patch?.pinned), patch: state.point && pane.result?.data ? pane.patchAt(state.point) : null });
  refresh();
}

function onSelect(layer, head) {
  byId("layer").value = layer + 1;
  byId("head").value = head + 1;
  readSliders();
}

function readSliders() {
  const layers = Number(byId("layer").max);
  state.layer = layers > 1 ? (Number(byId("layer").value) - 1) / (layers - 1) : 1;
  state.head = Number(byId("head").value) - 1;
  state.opacity = Number(byId("opacity").value) / 100;
  refresh();
}

function onClass(label, index) {
  Object.assign(state, { label, index });
  if (!settings().byClass) state.method = CLASS_METHOD;
  refresh();
}

function setPanes() {
  const names = [byId("model").value, byId("compare").value].filter((name, i, all) => name && all.indexOf(name) === i);
  panes = names.map((name) => new Pane(models.find((model) => model.name === name), { onPatch, onSelect, onClass, onError: showError }));
  byId("panes").replaceChildren(...panes.map((pane) => pane.element));
  byId("panes").classList.toggle("two", panes.length === 2);
  if (current) open(current);
}

function listModels() {
  const options = (first) => [...first, ...models.map(({ name }) => make("option", { value: name, textContent: name }))];
  byId("model").replaceChildren(...options([]));
  byId("compare").replaceChildren(...options([make("option", { value: "", textContent: "none" })]));
  byId("compare-label").hidden = models.length < 2;
}

async function listSamples() {
  const found = await api.samples();
  const buttons = await Promise.all(found.map(async ({ name, address }) => {
    const blob = await api.blob(address);
    return thumbnail(URL.createObjectURL(blob), name, () => openBlob(blob, name));
  }));
  byId("samples").replaceChildren(...buttons);
}

function askForToken() {
  const dialog = byId("token-dialog");
  dialog.showModal();
  dialog.addEventListener("close", () => { api.setToken(byId("token").value); start(); }, { once: true });
}

async function start() {
  try {
    models = await api.models();
    listModels();
    setPanes();
    await listSamples();
    document.body.dataset.ready = "yes";
  } catch (error) {
    if (error.status === 401) askForToken();
    else showError(error);
  }
}

function openFirst(files) {
  const file = [...(files ?? [])][0];
  if (file) openBlob(file, file.name || "pasted");
}

byId("file").addEventListener("change", (event) => { openFirst(event.target.files); event.target.value = ""; });
document.addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("over"); });
document.addEventListener("dragleave", (event) => event.relatedTarget ?? document.body.classList.remove("over"));
document.addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("over");
  openFirst(event.dataTransfer.files);
});
document.addEventListener("paste", (event) => openFirst(event.clipboardData.files));
document.addEventListener("keydown", (event) => {
  const slider = { "[": ["layer", -1], "]": ["layer", 1], ",": ["head", -1], ".": ["head", 1] }[event.key];
  if (!slider || event.target.matches("select, input[type=password]") || byId("result").hidden) return;
  byId(slider[0]).value = Number(byId(slider[0]).value) + slider[1];
  readSliders();
});
for (const id of ["layer", "head", "opacity"]) byId(id).addEventListener("input", readSliders);
byId("methods").addEventListener("change", (event) => { state.method = event.target.value; refresh(); });
byId("model").addEventListener("change", setPanes);
byId("compare").addEventListener("change", setPanes);
byId("card").addEventListener("click", async () => {
  try {
    byId("card-text").textContent = await api.card(byId("model").value);
    byId("card-dialog").showModal();
  } catch (error) {
    showError(error);
  }
});

start();
