"use strict";

/* Tables: clicking a heading sorts by its column, ascending first. Empty cells stay last. */
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const heading = button.parentElement, row = heading.parentElement, column = [...row.children].indexOf(heading);
    const up = heading.getAttribute("aria-sort") !== "ascending";
    for (const other of row.children) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", up ? "ascending" : "descending");
    const body = row.closest("table").tBodies[0];
    const key = (line) => line.children[column].dataset.sort ?? line.children[column].textContent;
    const order = (a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x === "" || y === "") return (x === "") - (y === "");
      const sign = isNaN(x) || isNaN(y) ? x.localeCompare(y, undefined, { numeric: true }) : x - y;
      return up ? sign : -sign;
    };
    body.append(...[...body.rows].sort(order));
  });
}

/* Charts: values under the pointer or at the position of the arrow keys; adjustable smoothing. */
const short = (value) => (value !== 0 && Math.abs(value) < 1e-3 ? value.toExponential(2) : String(+value.toPrecision(4)));

function movingAverage(points, share) {
  const half = Math.floor((points.length * share) / 2 + 1e-9);
  return points.map(([x], i) => {
    const near = points.slice(Math.max(i - half, 0), i + half + 1);
    return [x, near.reduce((sum, point) => sum + point[1], 0) / near.length];
  });
}

class Chart {
  constructor(figure) {
    Object.assign(this, JSON.parse(figure.dataset.chart));
    this.svg = figure.querySelector("svg");
    this.cursor = figure.querySelector(".cursor");
    this.output = figure.querySelector("output");
    this.place = -1;
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => this.hide());
    this.svg.addEventListener("blur", () => this.hide());
    this.svg.addEventListener("keydown", (event) => this.key(event));
  }
  xAt(x) { return this.left + ((x - this.x[0]) / (this.x[1] - this.x[0])) * (this.right - this.left); }
  yAt(y) { return this.bottom - ((y - this.y[0]) / (this.y[1] - this.y[0])) * (this.bottom - this.top); }
  smooth(share) {
    this.lines.forEach((line, i) => {
      if (!line.smooth) return;
      const path = movingAverage(line.points, share).map(([x, y]) => `${this.xAt(x).toFixed(1)},${this.yAt(y).toFixed(1)}`);
      this.svg.querySelector(`[data-line="${i}"]`).setAttribute("d", "M" + path.join("L"));
    });
  }
  point(event) {
    const box = this.svg.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * this.svg.viewBox.baseVal.width;
    this.show(this.x[0] + ((at - this.left) / (this.right - this.left)) * (this.x[1] - this.x[0]));
  }
  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const points = this.lines.reduce((most, line) => (line.points.length > most.length ? line.points : most), []);
    this.place = Math.min(Math.max(this.place + step, 0), points.length - 1);
    this.show(points[this.place][0]);
  }
  show(wanted) {
    const near = (line) => line.points.reduce((a, b) => (Math.abs(b[0] - wanted) < Math.abs(a[0] - wanted) ? b : a));
    const found = this.lines.map(near), x = found.reduce((a, b) => (Math.abs(b[0] - wanted) < Math.abs(a[0] - wanted) ? b : a))[0];
    this.cursor.setAttribute("x1", this.xAt(x));
    this.cursor.setAttribute("x2", this.xAt(x));
    this.cursor.classList.add("on");
    const values = found.map((point, i) => `${this.lines[i].name} ${short(point[1])}`);
    this.output.textContent = `${this.axis} ${short(x)}: ${values.join(" · ")}`;
  }
  hide() {
    this.cursor.classList.remove("on");
    this.output.textContent = "";
  }
}

const charts = [...document.querySelectorAll("figure[data-chart]")].map((figure) => new Chart(figure));
for (const slider of document.querySelectorAll(".slider input")) {
  slider.addEventListener("input", () => {
    slider.parentElement.querySelector("output").textContent = `${slider.value} %`;
    for (const chart of charts) chart.smooth(slider.value / 100);
  });
}

/* Age of the last update of an unfinished run. */
for (const time of document.querySelectorAll("time[data-ago]")) {
  const minutes = Math.round((Date.now() - Date.parse(time.dateTime)) / 60000);
  time.textContent += minutes < 1 ? " (just now)" : minutes < 120 ? ` (${minutes} min ago)` : ` (${Math.round(minutes / 60)} h ago)`;
}
