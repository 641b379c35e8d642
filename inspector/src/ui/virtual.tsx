// A long list of which only what is seen exists.

import type { ComponentChildren } from "preact";
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
  active?: string | undefined;
  onKey?: (event: KeyboardEvent) => void;
}

export function Virtual<T>({ items, height, label, keyOf, row, newestFirst, kind, fit, role = "list", head, active, onKey }: Shown<T>) {
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [seen, setSeen] = useState(600);
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
      aria-activedescendant={active}
      onScroll={scrolled}
      onKeyDown={onKey}
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
