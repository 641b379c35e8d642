// JSON as a tree that opens and closes; children are made when they are looked at.

import { useMemo, useState } from "preact/hooks";
import { Exact, parseExact } from "../model/exact";
import * as words from "./words";

const MOST_CHILDREN = 100;
const MOST_TEXT = 4000;
const MOST_OPENED = 500;
const LINE = 80;
/** What is longer is not parsed for being looked at, */
export const MOST_READ = 1024 * 1024;
/** and so much of it is shown. */
export const MOST_SHOWN = 256 * 1024;

type Opened = ReadonlySet<object>;

/** `open` levels are open at first, of those as many as can be drawn at once. */
export function Tree({ value, open = 2 }: { value: unknown; open?: number }) {
  const opened = useMemo(() => openedAtFirst(value, open), [value, open]);
  return <Node value={value} opened={opened} />;
}

/** JSON from the text it came as; where that is none, or too much, the text. */
export function Json({ text, open }: { text: string; open: number }) {
  const value = useMemo(() => (text.length > MOST_READ ? undefined : parseExact(text)), [text]);
  return value === undefined ? <pre class="said">{words.cut(text, MOST_SHOWN)}</pre> : <Tree value={value} open={open} />;
}

function isBranch(value: unknown): value is object {
  return value !== null && typeof value === "object" && !(value instanceof Exact);
}

function firstOf(value: object, most: number): [string, unknown][] {
  if (Array.isArray(value)) return value.slice(0, most).map((each: unknown, index) => [String(index), each]);
  return Object.keys(value)
    .slice(0, most)
    .map((key) => [key, (value as { [key: string]: unknown })[key]]);
}

/** About how many lines it takes. */
function weight(value: unknown): number {
  return typeof value === "string" ? 1 + Math.floor(Math.min(value.length, MOST_TEXT) / LINE) : 1;
}

/** A level after the other, as far as the budget goes: four levels of a hundred each are a hundred million. */
function openedAtFirst(value: unknown, open: number): Opened {
  const opened = new Set<object>();
  let left = MOST_OPENED;
  let level = [value].filter(isBranch);
  for (let depth = 0; depth < open && left > 0; depth += 1) {
    const next: object[] = [];
    for (const each of level) {
      const children = firstOf(each, MOST_CHILDREN).map(([, child]) => child);
      const needed = children.reduce<number>((sum, child) => sum + weight(child), 0);
      if (depth > 0 && needed > left) continue;
      left -= needed;
      opened.add(each);
      next.push(...children.filter(isBranch));
    }
    level = next;
  }
  return opened;
}

function Node({ value, name, opened }: { value: unknown; name?: string; opened: Opened }) {
  if (isBranch(value)) return <Branch value={value} name={name} opened={opened} />;
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
      <bdi class="key">{words.shown(name, MOST_TEXT)}</bdi>
      <span class="colon">: </span>
    </>
  );
}

function Branch({ value, name, opened }: { value: object; name: string | undefined; opened: Opened }) {
  // What somebody has opened or closed stays so while values change; the rest is as the budget says.
  const [turned, setTurned] = useState<boolean | null>(null);
  const [most, setMost] = useState(MOST_CHILDREN);
  const list = Array.isArray(value);
  const count = list ? value.length : Object.keys(value).length;
  const [before, after] = list ? ["[", "]"] : ["{", "}"];
  const shown = turned ?? opened.has(value);
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
      <button type="button" class="twist" aria-expanded={shown} onClick={() => setTurned(!shown)}>
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
          {firstOf(value, most).map(([key, each]) => (
            <Node key={key} name={key} value={each} opened={opened} />
          ))}
          {count > most && (
            <button type="button" class="quiet" onClick={() => setMost(most + 1000)}>
              {count - most} more
            </button>
          )}
        </div>
      )}
      {shown && <span class="brace">{after}</span>}
    </div>
  );
}

function Leaf({ value }: { value: unknown }) {
  if (value instanceof Exact) return <span class="number">{words.cut(value.source, MOST_TEXT)}</span>;
  if (typeof value === "string") {
    if (value.length <= MOST_TEXT) return <bdi class="string">{words.visible(JSON.stringify(value))}</bdi>;
    return (
      <>
        <bdi class="string">{words.visible(JSON.stringify(`${value.slice(0, MOST_TEXT)}…`))}</bdi> <span class="count">{words.inAll(value)}</span>
      </>
    );
  }
  if (typeof value === "number") return <span class="number">{String(value)}</span>;
  return <span class="literal">{String(value)}</span>;
}

const COLUMNS = 16;
const MOST_ROWS = 64;

/** Bytes, as they are and as letters. */
export function Hex({ bytes }: { bytes: Uint8Array }) {
  const rows: string[] = [];
  for (let at = 0; at < bytes.length && rows.length < MOST_ROWS; at += COLUMNS) {
    const part = [...bytes.subarray(at, at + COLUMNS)];
    const hex = part.map((each) => each.toString(16).padStart(2, "0")).join(" ");
    const letters = part.map((each) => (each >= 0x20 && each < 0x7f ? String.fromCharCode(each) : "·")).join("");
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
