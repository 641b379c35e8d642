// A long list of which only what is seen exists.

import type { ComponentChildren, RefObject } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

const BEYOND = 6;

interface Shown<T> {
  items: readonly T[];
  height: number;
  label: string;
  keyOf: (item: T) => string | number;
  row: (item: T, index: number) => ComponentChildren;
  /** What comes is put on top: whoever has scrolled down stays where they are. */
  newestFirst?: boolean;
  kind?: string;
  /** Not higher than its rows need, with so much for the head. */
  fit?: number;
  role?: "table" | "listbox" | "list";
  head?: ComponentChildren;
  /** Which one is chosen, and the id that its row has. */
  active?: T | null;
  idOf?: (item: T) => string;
  /** Scroll to another that is chosen; not while the newest is chosen because it is the newest. */
  reveal?: boolean;
  onKey?: (event: KeyboardEvent) => void;
}

const STEPS: { [key: string]: number } = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 };

/** Where a key leads in a list that has the newest first; who has gone from it stands where they would be. */
export function stepped<T>(items: readonly T[], from: T | null, event: KeyboardEvent, order: (one: T, two: T) => number): T | undefined {
  const by = STEPS[event.key];
  if (by === undefined) return undefined;
  event.preventDefault();
  let at = from === null ? -1 : items.indexOf(from);
  if (from !== null && at < 0) {
    const older = items.findIndex((each) => order(each, from) <= 0);
    const there = older < 0 ? items.length : older;
    at = by > 0 ? there - 1 : there;
  }
  return items[Math.max(0, Math.min(items.length - 1, at + by))];
}

/** Scroll so that the chosen row is seen, whenever another is chosen or a key leads to it again. */
function useReveal(
  box: RefObject<HTMLDivElement | null>,
  id: string | undefined,
  keys: number,
  at: number,
  height: number,
  onTop: (top: number) => void,
): void {
  useLayoutEffect(() => {
    const element = box.current!;
    if (id === undefined) return;
    const bottom = (at + 1) * height - element.clientHeight;
    if (at * height < element.scrollTop) element.scrollTop = at * height;
    else if (bottom > element.scrollTop) element.scrollTop = bottom;
    onTop(element.scrollTop);
  }, [id, keys]);
  useEffect(() => {
    // It is drawn by now. Whoever uses keys sees it on a small screen too; whoever points stays where they point.
    if (id !== undefined && document.activeElement === box.current) document.getElementById(id)?.scrollIntoView({ block: "nearest" });
  }, [id, keys]);
}

export function Virtual<T>(shown: Shown<T>) {
  const { items, height, label, keyOf, row, newestFirst, kind, fit, role = "list", head, active, idOf, reveal, onKey } = shown;
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [seen, setSeen] = useState(600);
  const [keys, setKeys] = useState(0);
  const first = useRef<string | number | undefined>(undefined);
  const waiting = useRef(false);

  useEffect(() => {
    const element = box.current!;
    const watcher = new ResizeObserver(() => setSeen(element.clientHeight));
    watcher.observe(element);
    return () => watcher.disconnect();
  }, []);

  useLayoutEffect(() => {
    const element = box.current!;
    const was = first.current;
    first.current = items.length ? keyOf(items[0]!) : undefined;
    if (!newestFirst || was === undefined || element.scrollTop < height / 2 || was === first.current) return;
    const index = items.findIndex((each) => keyOf(each) === was);
    if (index > 0) element.scrollTop += index * height;
  }, [items]);

  const at = active ? items.indexOf(active) : -1;
  useReveal(box, reveal && at >= 0 ? idOf?.(active!) : undefined, keys, at, height, setTop);

  const scrolled = (): void => {
    if (waiting.current) return;
    waiting.current = true;
    requestAnimationFrame(() => {
      waiting.current = false;
      if (box.current) setTop(box.current.scrollTop);
    });
  };

  const from = Math.max(0, Math.floor(top / height) - BEYOND);
  const to = Math.min(items.length, Math.ceil((top + seen) / height) + BEYOND);
  const rows = items.slice(from, to);
  return (
    <div
      ref={box}
      class={`virtual ${kind ?? ""}`}
      tabIndex={0}
      role={role}
      aria-label={label}
      aria-rowcount={role === "table" ? items.length : undefined}
      aria-activedescendant={at >= from && at < to ? idOf?.(active!) : undefined}
      onScroll={scrolled}
      onKeyDown={(event) => {
        onKey?.(event);
        if (event.key in STEPS) setKeys((count) => count + 1);
      }}
      style={fit === undefined ? undefined : { maxHeight: `${items.length * height + fit}px` }}
    >
      {head}
      <div class="virtual-room" role="presentation" style={{ height: `${items.length * height}px` }}>
        <div class="virtual-rows" role={role === "table" ? "rowgroup" : "presentation"} style={{ transform: `translateY(${from * height}px)` }}>
          {rows.map((each, index) => row(each, from + index))}
        </div>
      </div>
    </div>
  );
}
