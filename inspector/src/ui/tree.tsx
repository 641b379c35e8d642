// JSON as a tree that opens and closes; children are made when they are looked at.

import { useState } from "preact/hooks";
import { Exact } from "../model/frames";

const MOST_CHILDREN = 100;
const MOST_TEXT = 4000;

export function Tree({ value, name, depth = 0, open = 2 }: { value: unknown; name?: string; depth?: number; open?: number }) {
  if (value !== null && typeof value === "object" && !(value instanceof Exact)) {
    return <Branch value={value} name={name} depth={depth} open={open} />;
  }
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
      <bdi class="key">{name}</bdi>
      <span class="colon">: </span>
    </>
  );
}

function Branch({ value, name, depth, open }: { value: object; name: string | undefined; depth: number; open: number }) {
  const [shown, setShown] = useState(depth < open);
  const [most, setMost] = useState(MOST_CHILDREN);
  const list = Array.isArray(value);
  const entries: [string, unknown][] = list ? value.map((each, index) => [String(index), each]) : Object.entries(value);
  const [before, after] = list ? ["[", "]"] : ["{", "}"];
  if (!entries.length) {
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
      <button type="button" class="twist" aria-expanded={shown} onClick={() => setShown(!shown)}>
        <span class="arrow" aria-hidden="true" />
        {name !== undefined && <Key name={name} />}
        <span class="brace">
          {before}
          {!shown && <span class="count"> {entries.length} </span>}
          {!shown && after}
        </span>
      </button>
      {shown && (
        <div class="children">
          {entries.slice(0, most).map(([key, each]) => (
            <Tree key={key} name={key} value={each} depth={depth + 1} open={open} />
          ))}
          {entries.length > most && (
            <button type="button" class="quiet" onClick={() => setMost(most + 1000)}>
              {entries.length - most} more
            </button>
          )}
        </div>
      )}
      {shown && <span class="brace">{after}</span>}
    </div>
  );
}

function Leaf({ value }: { value: unknown }) {
  if (value instanceof Exact) return <span class="number">{value.source}</span>;
  if (typeof value === "string") {
    const text = value.length > MOST_TEXT ? `${value.slice(0, MOST_TEXT)}…` : value;
    return <bdi class="string">{JSON.stringify(text)}</bdi>;
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
