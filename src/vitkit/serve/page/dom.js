// Creates elements without HTML strings, so that text is never parsed as markup.

export const byId = (id) => document.getElementById(id);

export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-") || name === "role") element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children);
  return element;
}

export const percent = (share) =>
  share >= 0.9995 ? "100 %" : share >= 0.0995 ? `${(100 * share).toFixed(1)} %` : `${(100 * share).toPrecision(2)} %`;
