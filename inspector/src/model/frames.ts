// Raw frames, `#<stream_id>#<bytes>`, and the decoding of their content.

import { Exact, parseExact } from "./exact";
import type { Format, StreamEntry } from "./fold";

export type Body = string | Uint8Array;

const HASH = 0x23;
const utf8 = new TextDecoder("utf-8", { fatal: true });
const lenient = new TextDecoder("utf-8");

export interface Split {
  streamId: string;
  body: Body;
}

/** The parts of a frame, or null if the message is not a frame. */
export function split(message: string | ArrayBuffer): Split | null {
  if (typeof message === "string") {
    if (message.charCodeAt(0) !== HASH) return null;
    const end = message.indexOf("#", 1);
    return end < 2 ? null : { streamId: message.slice(1, end), body: message.slice(end + 1) };
  }
  const bytes = new Uint8Array(message);
  if (bytes[0] !== HASH) return null;
  const end = bytes.indexOf(HASH, 1);
  return end < 2 ? null : { streamId: lenient.decode(bytes.subarray(1, end)), body: bytes.subarray(end + 1) };
}

/** How many bytes a body has on the wire. Counting the bytes of a text costs a pass over it; most are ASCII. */
export function sizeOf(body: Body): number {
  if (typeof body !== "string") return body.byteLength;
  let size = body.length;
  for (let index = 0; index < body.length; index += 1) {
    const unit = body.charCodeAt(index);
    if (unit < 0x80) continue;
    if (unit < 0x800) size += 1;
    else if (unit >= 0xd800 && unit < 0xdc00) {
      size += 2;
      index += 1;
    } else size += 2;
  }
  return size;
}

export type Decoded = { as: "json"; value: unknown } | { as: "text"; text: string } | { as: "hex"; bytes: Uint8Array };

/** Decode a body by the declared type and by its content. */
export function decode(body: Body, mime: string): Decoded {
  let text: string;
  if (typeof body === "string") text = body;
  else {
    if (/octet-stream|^(image|audio|video)\//.test(mime)) return { as: "hex", bytes: body };
    try {
      text = utf8.decode(body);
    } catch {
      return { as: "hex", bytes: body };
    }
    if (hasControls(text)) return { as: "hex", bytes: body };
  }
  if (mime.startsWith("text/") && !mime.includes("json")) return { as: "text", text };
  const value = parseExact(text);
  return value === undefined ? { as: "text", text } : { as: "json", value };
}

function hasControls(text: string): boolean {
  for (let index = 0; index < text.length && index < 512; index += 1) {
    const unit = text.charCodeAt(index);
    if (unit < 0x20 && unit !== 9 && unit !== 10 && unit !== 13) return true;
  }
  return false;
}

/** The type that a stream declares for its data; with several formats, the type of the given format. */
export function mimeOf(entry: StreamEntry, formatId?: string): string {
  const formats = entry.stream.formats;
  const format: Format | undefined = formats.length === 1 ? formats[0] : formats.find((candidate) => candidate.id === formatId);
  if (typeof format?.mime_type === "string") return format.mime_type;
  if (format?.schema !== undefined) return "application/json";
  for (const name of ["content_type", "format"]) {
    const declared = entry[name];
    if (typeof declared === "string") return declared;
  }
  return "";
}

/** The text of a stream's format in a list. */
export function formatName(entry: StreamEntry): string {
  const formats = entry.stream.formats;
  if (formats.length > 1) return `${formats.length} formats`;
  return formats[0]?.id ?? (mimeOf(entry) || "raw");
}

/** The numbers in a value, with the path of each; at most as many as one plot can show. */
export function numbersIn(value: unknown, most = 12): [string, number][] {
  const numbers: [string, number][] = [];
  const walk = (node: unknown, path: string, depth: number): void => {
    if (numbers.length >= most) return;
    if (typeof node === "number") numbers.push([path || "value", node]);
    else if (node instanceof Exact) numbers.push([path || "value", Number(node.source)]);
    else if (node !== null && typeof node === "object" && depth < 5) {
      if (Array.isArray(node)) {
        if (node.length <= 8) node.forEach((item, index) => walk(item, `${path}[${index}]`, depth + 1));
        return;
      }
      for (const [key, item] of Object.entries(node)) walk(item, path ? `${path}.${key}` : key, depth + 1);
    }
  };
  walk(value, "", 0);
  return numbers;
}
