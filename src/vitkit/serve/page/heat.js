// The "plasma" colour map, whose lightness grows with the value.

const ANCHORS = [
  [13, 8, 135], [75, 3, 161], [125, 3, 168], [168, 34, 150], [203, 70, 121],
  [229, 107, 93], [248, 148, 65], [253, 195, 40], [240, 249, 33],
];

const TABLE = new Uint8Array(256 * 3);
for (let i = 0; i < 256; i++) {
  const position = (i / 255) * (ANCHORS.length - 1);
  const low = Math.min(Math.floor(position), ANCHORS.length - 2);
  for (let c = 0; c < 3; c++) TABLE[3 * i + c] = ANCHORS[low][c] + (position - low) * (ANCHORS[low + 1][c] - ANCHORS[low][c]);
}

// Paints a map into an image at (left, top), scaled to its minimum and maximum. With `opacity` below 1, small values
// are more transparent than large ones.
export function paint(image, values, width, opacity = 1, left = 0, top = 0) {
  const min = Math.max(0, values.reduce((a, b) => Math.min(a, b))), max = values.reduce((a, b) => Math.max(a, b));
  for (let i = 0; i < values.length; i++) {
    const level = max > min ? Math.max(0, (values[i] - min) / (max - min)) : 0;
    const colour = 3 * Math.round(255 * level);
    const at = 4 * ((top + Math.floor(i / width)) * image.width + left + (i % width));
    image.data[at] = TABLE[colour];
    image.data[at + 1] = TABLE[colour + 1];
    image.data[at + 2] = TABLE[colour + 2];
    image.data[at + 3] = opacity >= 1 ? 255 : 255 * opacity * (0.22 + 0.78 * level);
  }
}

// Returns a canvas with one pixel per patch.
export function heatCanvas(values, [height, width], opacity) {
  const canvas = new OffscreenCanvas(width, height);
  const image = new ImageData(width, height);
  paint(image, values, width, opacity);
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}
