// Raw frames, `#<stream_id>#<bytes>`, and what can be read in them.

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

/** The parts of a frame, or null where the message is none. */
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

/** What a body is, by what its format says and by what it turns out to be. */
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

/** The type that a stream declares for its data; of several formats the one that is named. */
export function mimeOf(entry: StreamEntry, formatId?: string): string {
  const formats = entry.stream.formats;
  const format: Format | undefined = formats.length === 1 ? formats[0] : formats.find((each) => each.id === formatId);
  if (typeof format?.mime_type === "string") return format.mime_type;
  if (format?.schema !== undefined) return "application/json";
  for (const name of ["content_type", "format"]) {
    const given = entry[name];
    if (typeof given === "string") return given;
  }
  return "";
}

/** What a list shows as a stream's format. */
export function formatName(entry: StreamEntry): string {
  const formats = entry.stream.formats;
  if (formats.length > 1) return `${formats.length} formats`;
  return formats[0]?.id ?? (mimeOf(entry) || "raw");
}

/** Numbers in a value, by the path to each; not more than are worth a line. */
export function numbersIn(value: unknown, most = 12): [string, number][] {
  const found: [string, number][] = [];
  const walk = (each: unknown, path: string, depth: number): void => {
    if (found.length >= most) return;
    if (typeof each === "number") found.push([path || "value", each]);
    else if (each instanceof Exact) found.push([path || "value", Number(each.source)]);
    else if (each !== null && typeof each === "object" && depth < 5) {
      if (Array.isArray(each)) {
        if (each.length <= 8) each.forEach((item, index) => walk(item, `${path}[${index}]`, depth + 1));
        return;
      }
      for (const [key, item] of Object.entries(each)) walk(item, path ? `${path}.${key}` : key, depth + 1);
    }
  };
  walk(value, "", 0);
  return found;
}
