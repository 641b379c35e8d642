// A long list that renders only its visible rows.

import type { ComponentChildren, RefObject } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

const BEYOND = 6;

interface VirtualProps<T> {
  items: readonly T[];
  height: number;
  label: string;
  keyOf: (item: T) => string | number;
  row: (item: T, index: number) => ComponentChildren;
  /** New items are added at the top. The scroll position of a reader who has scrolled down does not change. */
  newestFirst?: boolean;
  kind?: string;
  /** The height of the head. If given, the list is not higher than its rows. */
  fit?: number;
  role?: "table" | "listbox" | "list";
  head?: ComponentChildren;
  /** The selected item, and the element id of its row. */
  active?: T | null;
  idOf?: (item: T) => string;
  /** Scroll to the selected item when the selection changes. */
  reveal?: boolean;
  onKey?: (event: KeyboardEvent) => void;
}

const STEPS: { [key: string]: number } = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 };

/** The item that a key selects in a list, newest first. A selected item that has left the list counts at its former place. */
export function itemAfterKey<T>(items: readonly T[], from: T | null, event: KeyboardEvent, order: (one: T, two: T) => number): T | undefined {
  const by = STEPS[event.key];
  if (by === undefined) return undefined;
  event.preventDefault();
  let at = from === null ? -1 : items.indexOf(from);
  if (from !== null && at < 0) {
    const older = items.findIndex((item) => order(item, from) <= 0);
    const place = older < 0 ? items.length : older;
    at = by > 0 ? place - 1 : place;
  }
  return items[Math.max(0, Math.min(items.length - 1, at + by))];
}

/** Scroll to the selected row when the selection changes or a key selects it again. */
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
    // The row is rendered now. With the keyboard, it is scrolled into view; with a pointer, the page does not move.
    if (id !== undefined && document.activeElement === box.current) document.getElementById(id)?.scrollIntoView({ block: "nearest" });
  }, [id, keys]);
}

export function Virtual<T>(props: VirtualProps<T>) {
  const { items, height, label, keyOf, row, newestFirst, kind, fit, role = "list", head, active, idOf, reveal, onKey } = props;
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [viewHeight, setViewHeight] = useState(600);
  const [keys, setKeys] = useState(0);
  const first = useRef<string | number | undefined>(undefined);
  const waiting = useRef(false);

  useEffect(() => {
    const element = box.current!;
    const watcher = new ResizeObserver(() => setViewHeight(element.clientHeight));
    watcher.observe(element);
    return () => watcher.disconnect();
  }, []);

  useLayoutEffect(() => {
    const element = box.current!;
    const previous = first.current;
    first.current = items.length ? keyOf(items[0]!) : undefined;
    if (!newestFirst || previous === undefined || element.scrollTop < height / 2 || previous === first.current) return;
    const index = items.findIndex((item) => keyOf(item) === previous);
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
  const to = Math.min(items.length, Math.ceil((top + viewHeight) / height) + BEYOND);
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
          {rows.map((item, index) => row(item, from + index))}
        </div>
      </div>
    </div>
  );
}
