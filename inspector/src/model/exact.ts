// JSON with its numbers unchanged. A double cannot represent every number and does not distinguish 1.0 from 1. What the
// page shows, stores and sends has the numbers as their author wrote them.

interface Raw {
  rawJSON?: (source: string) => unknown;
}

/** A number that a double cannot represent exactly. `JSON.stringify` writes its source text. */
export class Exact {
  readonly source: string;
  constructor(source: string) {
    this.source = source;
  }

  toString(): string {
    return this.source;
  }

  /** Browsers that give a reviver the source of a number also support `rawJSON`. */
  toJSON(): unknown {
    return (JSON as Raw).rawJSON?.(this.source) ?? Number(this.source);
  }
}

type Reviver = (this: unknown, key: string, value: unknown, context?: { source?: string }) => unknown;

const exactly: Reviver = (_key, value, context) =>
  typeof value === "number" && context?.source !== undefined && String(value) !== context.source
    ? new Exact(context.source)
    : value;

/** Parse JSON with its numbers unchanged, if the browser supports it. Throws `SyntaxError` for invalid JSON. */
export function readExact(text: string): unknown {
  return JSON.parse(text, exactly);
}

/** The same, but undefined for invalid JSON. */
export function parseExact(text: string): unknown {
  const first = text.trimStart()[0];
  if (first === undefined || !'{["-0123456789tfn'.includes(first)) return undefined;
  try {
    return readExact(text);
  } catch {
    return undefined;
  }
}

/** The JSON text of a value, with the numbers of `parseExact` unchanged. */
export function write(value: unknown): string {
  return JSON.stringify(value);
}

// Parts of a valid JSON text. Extracting a part is cheaper than parsing the whole text exactly.

/** The source text of the value under these keys. */
export function sourceOf(text: string, ...keys: string[]): string | undefined {
  let part: Part | undefined = { key: "", from: skipSpace(text, 0), to: text.length };
  for (const key of keys) {
    part = parts(text, part.from).findLast((candidate) => candidate.key === key);
    if (!part) return undefined;
  }
  return text.slice(part.from, part.to).trimEnd();
}

/** The source texts of the items of the list under this key. */
export function sourcesOf(text: string, key: string): string[] {
  const list = parts(text, skipSpace(text, 0)).findLast((candidate) => candidate.key === key);
  return list ? parts(text, list.from).map((item) => text.slice(item.from, item.to)) : [];
}

interface Part {
  key: string;
  from: number;
  to: number;
}

/** The members of the object, or the items of the list, that begins at this index. */
function parts(text: string, at: number): Part[] {
  const members: Part[] = [];
  const list = text[at] === "[";
  if (!list && text[at] !== "{") return members;
  let next = skipSpace(text, at + 1);
  while (next < text.length && text[next] !== "]" && text[next] !== "}") {
    let key = "";
    if (!list) {
      const end = endOfValue(text, next);
      key = JSON.parse(text.slice(next, end)) as string;
      next = skipSpace(text, skipSpace(text, end) + 1);
    }
    const to = endOfValue(text, next);
    members.push({ key, from: next, to });
    next = skipSpace(text, to);
    if (text[next] === ",") next = skipSpace(text, next + 1);
  }
  return members;
}

const SPACE = /\s*/y;
const WORD = /[^\s,\]}]*/y;

function skipSpace(text: string, at: number): number {
  SPACE.lastIndex = at;
  SPACE.test(text);
  return SPACE.lastIndex;
}

/** The index after the value that begins at `at`. */
function endOfValue(text: string, at: number): number {
  if (!'"{['.includes(text[at] ?? "")) {
    WORD.lastIndex = at;
    WORD.test(text);
    return WORD.lastIndex;
  }
  let depth = 0;
  for (let index = at; index < text.length; index += 1) {
    const unit = text[index];
    if (unit === '"') index = closingQuote(text, index);
    else if (unit === "{" || unit === "[") depth += 1;
    else if (unit === "}" || unit === "]") depth -= 1;
    if (depth === 0) return index + 1;
  }
  return text.length;
}

/** The index of the closing quote of the string that begins at `at`. */
function closingQuote(text: string, at: number): number {
  for (let end = text.indexOf('"', at + 1); end > 0; end = text.indexOf('"', end + 1)) {
    let slashes = 0;
    while (text[end - 1 - slashes] === "\\") slashes += 1;
    if (slashes % 2 === 0) return end;
  }
  return text.length;
}
