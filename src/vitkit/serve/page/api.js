// Requests to the server, and the binary format of /v1/attention.

let token = "";
export const setToken = (value) => { token = value; };

export class APIError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

async function request(path, query = {}, body = undefined) {
  const parameters = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
  const address = parameters.length ? `${path}?${new URLSearchParams(parameters)}` : path;
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  let response;
  try {
    response = await fetch(address, { method: body ? "POST" : "GET", body, headers });
  } catch {
    throw new APIError(0, "unreachable", "The server does not respond. Is it still running?");
  }
  if (response.ok) return response;
  const { error } = await response.json().catch(() => ({ error: { code: "unknown", message: response.statusText } }));
  throw new APIError(response.status, error.code, error.message);
}

export const models = async () => (await (await request("/v1/models")).json()).models;
export const samples = async () => (await (await request("/v1/samples")).json()).samples;
export const card = async (model) => (await request(`/v1/models/${encodeURIComponent(model)}/card`)).text();
export const blob = async (path) => (await request(path)).blob();
export const predict = async (image, query) => (await (await request("/v1/predict", query, image)).json());
export const explain = async (image, query) => (await request("/v1/explain", query, image)).json();
export const modelInput = async (image, model) =>
  (await request("/v1/explain", { model, method: "attention", format: "png", opacity: 0 }, image)).blob();

export async function attention(image, query) {
  return unpack(await (await request("/v1/attention", query, image)).arrayBuffer());
}

// Format: four bytes of length, a JSON header, float32 scales (layers, heads, rows), uint8 codes (layers, heads, rows, patches).
export function unpack(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const patches = head.grid[0] * head.grid[1];
  const rows = head.rows === "all" ? patches + 1 : 1;
  const count = head.layers * head.heads * rows;
  const scale = new Float32Array(buffer, 4 + length, count);
  const code = new Uint8Array(buffer, 4 + length + 4 * count, count * patches);
  return { ...head, patches, allRows: head.rows === "all", rowCount: rows, scale, code };
}

// Returns the attention of a row: the weights of one head, or the mean of all (head < 0). Row 0 is the class token or the pooled tokens.
export function weights(data, layer, head, row) {
  const values = new Float32Array(data.patches);
  const heads = head < 0 ? [...Array(data.heads).keys()] : [head];
  for (const h of heads) {
    const index = (layer * data.heads + h) * data.rowCount + row;
    const factor = data.scale[index] / 255 / heads.length;
    const start = index * data.patches;
    for (let i = 0; i < data.patches; i++) values[i] += factor * data.code[start + i];
  }
  return values;
}
