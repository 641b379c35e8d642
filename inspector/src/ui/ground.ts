// Buttons that a person trusts stand still: they do nothing while what is above them, or what they are about, has moved
// within half a second. A click is meant for what was there when the hand began to move.

import { createContext, type RefObject } from "preact";
import { useContext, useEffect, useLayoutEffect, useReducer, useRef } from "preact/hooks";
import { usePulse, useSession } from "./hooks";

const SETTLES = 500;
/** Milliseconds before an end from which on nothing is offered any more: it would come too late. */
const LAST = 2000;
const LONGEST = 86_400_000;

/** Tells every card at or below a place that something moved there; a card that comes last moves no other. */
export class Ground {
  private readonly cards = new Map<number, () => void>();

  stand(place: number, tell: () => void): () => void {
    this.cards.set(place, tell);
    return () => {
      this.cards.delete(place);
      this.moved(place);
    };
  }

  moved(place: number): void {
    for (const [at, tell] of this.cards) if (at >= place) tell();
  }
}

export const GroundContext = createContext(new Ground());

/** Whether what stands at this place must not be clicked now; `shape` says what it offers, `ends` when it is over. */
export function useInert(box: RefObject<Element | null>, place: number, shape: string, ends: number): () => boolean {
  const session = useSession();
  const ground = useContext(GroundContext);
  const [, again] = useReducer((count: number) => count + 1, 0);
  const moved = useRef({ shape, at: performance.now() });
  if (moved.current.shape !== shape) moved.current = { shape, at: performance.now() };
  useLayoutEffect(() => {
    const stop = ground.stand(place, () => {
      moved.current.at = performance.now();
      again(undefined);
    });
    const watcher = new ResizeObserver(() => ground.moved(place));
    watcher.observe(box.current!);
    return () => {
      watcher.disconnect();
      stop();
    };
  }, [ground, place]);
  usePulse(1000); // the clock may be set, and the machine may have slept
  const settling = (): number => moved.current.at + SETTLES - performance.now();
  const left = (): number => ends - LAST - session.now();
  useEffect(() => {
    const next = [settling(), left()].filter((each) => each > 0);
    if (!next.length) return undefined;
    const timer = setTimeout(again, Math.min(LONGEST, ...next) + 1, undefined);
    return () => clearTimeout(timer);
  });
  return () => settling() > 0 || left() <= 0 || session.phaseNow !== "live";
}
