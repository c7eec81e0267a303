// Numbers as colours: the "plasma" scale, whose lightness grows with the value.

const ANCHORS = [
  [13, 8, 135], [75, 3, 161], [125, 3, 168], [168, 34, 150], [203, 70, 121],
  [229, 107, 93], [248, 148, 65], [253, 195, 40], [240, 249, 33],
];

const TABLE = new Uint8Array(256 * 3);
for (let i = 0; i < 256; i++) {
  const place = (i / 255) * (ANCHORS.length - 1);
  const low = Math.min(Math.floor(place), ANCHORS.length - 2);
  for (let c = 0; c < 3; c++) TABLE[3 * i + c] = ANCHORS[low][c] + (place - low) * (ANCHORS[low + 1][c] - ANCHORS[low][c]);
}

// Writes a map into an image at (left, top), from its least value to its largest. `opacity` 1 paints opaque; less lets
// the small values fade first.
export function paint(image, values, width, opacity = 1, left = 0, top = 0) {
  const least = Math.max(0, values.reduce((a, b) => Math.min(a, b))), most = values.reduce((a, b) => Math.max(a, b));
  for (let i = 0; i < values.length; i++) {
    const level = most > least ? Math.max(0, (values[i] - least) / (most - least)) : 0;
    const colour = 3 * Math.round(255 * level);
    const at = 4 * ((top + Math.floor(i / width)) * image.width + left + (i % width));
    image.data[at] = TABLE[colour];
    image.data[at + 1] = TABLE[colour + 1];
    image.data[at + 2] = TABLE[colour + 2];
    image.data[at + 3] = opacity >= 1 ? 255 : 255 * opacity * (0.22 + 0.78 * level);
  }
}

// A canvas of one pixel per patch, to be drawn at any size.
export function heatCanvas(values, [height, width], opacity) {
  const canvas = new OffscreenCanvas(width, height);
  const image = new ImageData(width, height);
  paint(image, values, width, opacity);
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}
