// JSON as it was written. A double cannot hold every number, nor tell 1.0 from 1: what is shown, kept and sent has the
// numbers that somebody wrote, not those that this page made of them.

interface Raw {
  rawJSON?: (source: string) => unknown;
}

/** A number that a double cannot hold as it was written. Whatever writes JSON writes it as it was. */
export class Exact {
  readonly source: string;
  constructor(source: string) {
    this.source = source;
  }

  toString(): string {
    return this.source;
  }

  /** Browsers that tell how a number was written can write it so, too. */
  toJSON(): unknown {
    return (JSON as Raw).rawJSON?.(this.source) ?? Number(this.source);
  }
}

type Reviver = (this: unknown, key: string, value: unknown, context?: { source?: string }) => unknown;

const exactly: Reviver = (_key, value, context) =>
  typeof value === "number" && context?.source !== undefined && String(value) !== context.source
    ? new Exact(context.source)
    : value;

/** JSON with its numbers as they were written, where the browser can tell; `SyntaxError` where it is none. */
export function readExact(text: string): unknown {
  return JSON.parse(text, exactly);
}

/** The same, and undefined where it is none. */
export function parseExact(text: string): unknown {
  const first = text.trimStart()[0];
  if (first === undefined || !'{["-0123456789tfn'.includes(first)) return undefined;
  try {
    return readExact(text);
  } catch {
    return undefined;
  }
}

/** What `parseExact` has read, with its numbers as they were. */
export function write(value: unknown): string {
  return JSON.stringify(value);
}

// Parts of a text that is known to be JSON. To cut them out costs less than to parse all of it exactly.

/** The part under these keys, as it stands there. */
export function sourceOf(text: string, ...keys: string[]): string | undefined {
  let part: Part | undefined = { key: "", from: blank(text, 0), to: text.length };
  for (const key of keys) {
    part = parts(text, part.from).findLast((each) => each.key === key);
    if (!part) return undefined;
  }
  return text.slice(part.from, part.to).trimEnd();
}

/** The items of the list under this key, as they stand there. */
export function sourcesOf(text: string, key: string): string[] {
  const list = parts(text, blank(text, 0)).findLast((each) => each.key === key);
  return list ? parts(text, list.from).map((each) => text.slice(each.from, each.to)) : [];
}

interface Part {
  key: string;
  from: number;
  to: number;
}

/** What the object or the list that begins here is made of. */
function parts(text: string, at: number): Part[] {
  const found: Part[] = [];
  const list = text[at] === "[";
  if (!list && text[at] !== "{") return found;
  let next = blank(text, at + 1);
  while (next < text.length && text[next] !== "]" && text[next] !== "}") {
    let key = "";
    if (!list) {
      const end = over(text, next);
      key = JSON.parse(text.slice(next, end)) as string;
      next = blank(text, blank(text, end) + 1);
    }
    const to = over(text, next);
    found.push({ key, from: next, to });
    next = blank(text, to);
    if (text[next] === ",") next = blank(text, next + 1);
  }
  return found;
}

const SPACE = /\s*/y;
const WORD = /[^\s,\]}]*/y;

function blank(text: string, at: number): number {
  SPACE.lastIndex = at;
  SPACE.test(text);
  return SPACE.lastIndex;
}

/** Where the value that begins here ends. */
function over(text: string, at: number): number {
  if (!'"{['.includes(text[at] ?? "")) {
    WORD.lastIndex = at;
    WORD.test(text);
    return WORD.lastIndex;
  }
  let depth = 0;
  for (let index = at; index < text.length; index += 1) {
    const unit = text[index];
    if (unit === '"') index = quoted(text, index);
    else if (unit === "{" || unit === "[") depth += 1;
    else if (unit === "}" || unit === "]") depth -= 1;
    if (depth === 0) return index + 1;
  }
  return text.length;
}

/** Where the string that begins here has its last quote. */
function quoted(text: string, at: number): number {
  for (let end = text.indexOf('"', at + 1); end > 0; end = text.indexOf('"', end + 1)) {
    let slashes = 0;
    while (text[end - 1 - slashes] === "\\") slashes += 1;
    if (slashes % 2 === 0) return end;
  }
  return text.length;
}
