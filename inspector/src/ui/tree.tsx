// JSON as a tree that expands and collapses. Children are created when their parent expands.

import { useMemo, useState } from "preact/hooks";
import { Exact, parseExact } from "../model/exact";
import * as formatting from "./formatting";

const MAX_CHILDREN = 100;
const MAX_TEXT = 4000;
const MAX_EXPANDED = 500;
const LINE = 80;
/** A longer text is not parsed. */
export const MAX_READ = 1024 * 1024;
/** The part that is shown of a text that is not parsed. */
export const MAX_SHOWN = 256 * 1024;

type Expanded = ReadonlySet<object>;

/** Expands the first `open` levels, within a limit for the number of lines. */
export function Tree({ value, open = 2 }: { value: unknown; open?: number }) {
  const expanded = useMemo(() => initiallyExpanded(value, open), [value, open]);
  return <Node value={value} expanded={expanded} />;
}

/** Shows a JSON text as a tree. If it is not JSON or too long, shows the text. */
export function Json({ text, open }: { text: string; open: number }) {
  const value = useMemo(() => (text.length > MAX_READ ? undefined : parseExact(text)), [text]);
  return value === undefined ? <pre class="verbatim">{formatting.truncate(text, MAX_SHOWN)}</pre> : <Tree value={value} open={open} />;
}

function isBranch(value: unknown): value is object {
  return value !== null && typeof value === "object" && !(value instanceof Exact);
}

function firstEntries(value: object, limit: number): [string, unknown][] {
  if (Array.isArray(value)) return value.slice(0, limit).map((item: unknown, index) => [String(index), item]);
  return Object.keys(value)
    .slice(0, limit)
    .map((key) => [key, (value as { [key: string]: unknown })[key]]);
}

/** The approximate number of lines. */
function weight(value: unknown): number {
  return typeof value === "string" ? 1 + Math.floor(Math.min(value.length, MAX_TEXT) / LINE) : 1;
}

/** The branches to expand, level by level, within a limit: four levels of a hundred children are a hundred million lines. */
function initiallyExpanded(value: unknown, open: number): Expanded {
  const expanded = new Set<object>();
  let left = MAX_EXPANDED;
  let level = [value].filter(isBranch);
  for (let depth = 0; depth < open && left > 0; depth += 1) {
    const next: object[] = [];
    for (const branch of level) {
      const children = firstEntries(branch, MAX_CHILDREN).map(([, child]) => child);
      const needed = children.reduce<number>((sum, child) => sum + weight(child), 0);
      if (depth > 0 && needed > left) continue;
      left -= needed;
      expanded.add(branch);
      next.push(...children.filter(isBranch));
    }
    level = next;
  }
  return expanded;
}

function Node({ value, name, expanded }: { value: unknown; name?: string; expanded: Expanded }) {
  if (isBranch(value)) return <Branch value={value} name={name} expanded={expanded} />;
  return (
    <div class="leaf">
      {name !== undefined && <Key name={name} />}
      <Leaf value={value} />
    </div>
  );
}

function Key({ name }: { name: string }) {
  return (
    <>
      <bdi class="key">{formatting.oneLine(name, MAX_TEXT)}</bdi>
      <span class="colon">: </span>
    </>
  );
}

function Branch({ value, name, expanded }: { value: object; name: string | undefined; expanded: Expanded }) {
  // A branch that the user expanded or collapsed stays so while values change.
  const [chosen, setChosen] = useState<boolean | null>(null);
  const [limit, setLimit] = useState(MAX_CHILDREN);
  const list = Array.isArray(value);
  const count = list ? value.length : Object.keys(value).length;
  const [before, after] = list ? ["[", "]"] : ["{", "}"];
  const shown = chosen ?? expanded.has(value);
  if (!count) {
    return (
      <div class="leaf">
        {name !== undefined && <Key name={name} />}
        <span class="brace">
          {before}
          {after}
        </span>
      </div>
    );
  }
  return (
    <div class="branch">
      <button type="button" class="twist" aria-expanded={shown} onClick={() => setChosen(!shown)}>
        <span class="arrow" aria-hidden="true" />
        {name !== undefined && <Key name={name} />}
        <span class="brace">
          {before}
          {!shown && <span class="count"> {count} </span>}
          {!shown && after}
        </span>
      </button>
      {shown && (
        <div class="children">
          {firstEntries(value, limit).map(([key, child]) => (
            <Node key={key} name={key} value={child} expanded={expanded} />
          ))}
          {count > limit && (
            <button type="button" class="quiet" onClick={() => setLimit(limit + 1000)}>
              {count - limit} more
            </button>
          )}
        </div>
      )}
      {shown && <span class="brace">{after}</span>}
    </div>
  );
}

function Leaf({ value }: { value: unknown }) {
  if (value instanceof Exact) return <span class="number">{formatting.truncate(value.source, MAX_TEXT)}</span>;
  if (typeof value === "string") {
    if (value.length <= MAX_TEXT) return <bdi class="string">{formatting.visible(JSON.stringify(value))}</bdi>;
    return (
      <>
        <bdi class="string">{formatting.visible(JSON.stringify(`${value.slice(0, MAX_TEXT)}…`))}</bdi> <span class="count">{formatting.inAll(value)}</span>
      </>
    );
  }
  if (typeof value === "number") return <span class="number">{String(value)}</span>;
  return <span class="literal">{String(value)}</span>;
}

const COLUMNS = 16;
const MAX_ROWS = 64;

/** Bytes in hexadecimal and as ASCII characters. */
export function Hex({ bytes }: { bytes: Uint8Array }) {
  const rows: string[] = [];
  for (let at = 0; at < bytes.length && rows.length < MAX_ROWS; at += COLUMNS) {
    const part = [...bytes.subarray(at, at + COLUMNS)];
    const hex = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const letters = part.map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : "·")).join("");
    rows.push(`${at.toString(16).padStart(6, "0")}  ${hex.padEnd(COLUMNS * 3 - 1)}  ${letters}`);
  }
  const left = bytes.length - rows.length * COLUMNS;
  return (
    <pre class="hex" tabIndex={0} aria-label="Bytes of the frame">
      {rows.join("\n")}
      {left > 0 && `\n… ${left} more bytes`}
    </pre>
  );
}
