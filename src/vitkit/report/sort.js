for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const heading = button.parentElement, row = heading.parentElement, column = [...row.children].indexOf(heading);
    const up = heading.getAttribute("aria-sort") !== "ascending";
    for (const other of row.children) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", up ? "ascending" : "descending");
    const body = row.closest("table").tBodies[0];
    const key = (line) => line.children[column].dataset.sort ?? line.children[column].textContent;
    const order = (a, b) => (isNaN(key(a)) || isNaN(key(b)) ? key(a).localeCompare(key(b)) : key(a) - key(b));
    body.append(...[...body.rows].sort((a, b) => (up ? order(a, b) : order(b, a))));
  });
}
