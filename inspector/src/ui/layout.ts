// Protects buttons against a moving layout. A button does nothing for half a second after the layout above it, or its own
// content, has changed, because the click was aimed at the previous content.

import { createContext, type RefObject } from "preact";
import { useContext, useEffect, useLayoutEffect, useReducer, useRef } from "preact/hooks";
import { useInterval, useSession } from "./hooks";

const SETTLE_TIME = 500;
/** Buttons are inert for this many milliseconds before the end of a proposal, because a click would be too late. */
const FINAL_TIME = 2000;
const MAX_TIMEOUT = 86_400_000;

/** Notifies every card at or after a place of a layout change there. A card that is added at the end moves no other card. */
export class LayoutMonitor {
  private readonly listeners = new Map<number, () => void>();

  register(place: number, listener: () => void): () => void {
    this.listeners.set(place, listener);
    return () => {
      this.listeners.delete(place);
      this.changed(place);
    };
  }

  changed(place: number): void {
    for (const [at, listener] of this.listeners) if (at >= place) listener();
  }
}

export const LayoutContext = createContext(new LayoutMonitor());

/** Whether the card at this place must ignore clicks now; `shape` identifies its content, `ends` is its end. */
export function useInert(box: RefObject<Element | null>, place: number, shape: string, ends: number): () => boolean {
  const session = useSession();
  const layout = useContext(LayoutContext);
  const [, rerender] = useReducer((count: number) => count + 1, 0);
  const lastChange = useRef({ shape, at: performance.now() });
  if (lastChange.current.shape !== shape) lastChange.current = { shape, at: performance.now() };
  useLayoutEffect(() => {
    const stop = layout.register(place, () => {
      lastChange.current.at = performance.now();
      rerender(undefined);
    });
    const watcher = new ResizeObserver(() => layout.changed(place));
    watcher.observe(box.current!);
    return () => {
      watcher.disconnect();
      stop();
    };
  }, [layout, place]);
  useInterval(1000); // the clock may have been set, and the machine may have been suspended
  const settling = (): number => lastChange.current.at + SETTLE_TIME - performance.now();
  const left = (): number => ends - FINAL_TIME - session.now();
  useEffect(() => {
    const next = [settling(), left()].filter((milliseconds) => milliseconds > 0);
    if (!next.length) return undefined;
    const timer = setTimeout(rerender, Math.min(MAX_TIMEOUT, ...next) + 1, undefined);
    return () => clearTimeout(timer);
  });
  return () => settling() > 0 || left() <= 0 || session.phaseNow !== "live";
}
