// What views share: being told of changes, pulses, the address, media, the theme.

import { createContext, type RefObject } from "preact";
import { useContext, useEffect, useLayoutEffect, useReducer, useState } from "preact/hooks";
import type { Session, Topic } from "../session";

export const SessionContext = createContext<Session | null>(null);

export function useSession(): Session {
  const session = useContext(SessionContext);
  if (!session) throw new Error("nobody has signed in");
  return session;
}

function useAgain(): () => void {
  const [, again] = useReducer((count: number) => count + 1, 0);
  return () => again(undefined);
}

/** Render again whenever one of these changed. Listens before the page is painted: what comes meanwhile is not missed. */
export function useTopics(...topics: Topic[]): Session {
  const session = useSession();
  const again = useAgain();
  useLayoutEffect(() => {
    const stops = topics.map((topic) => session.listen(topic, again));
    return () => stops.forEach((stop) => stop());
  }, [session, topics.join()]);
  return session;
}

const beats = new Map<number, Set<() => void>>();

/** Render again every so many milliseconds, all who ask for the same at once, on an animation frame. */
export function usePulse(milliseconds: number): void {
  const again = useAgain();
  useEffect(() => onPulse(milliseconds, again), [milliseconds]);
}

export function onPulse(milliseconds: number, beat: () => void): () => void {
  let known = beats.get(milliseconds);
  if (!known) {
    const started = new Set<() => void>();
    beats.set(milliseconds, (known = started));
    let waiting = false;
    setInterval(() => {
      // A hidden page draws no frames: what is asked of it would pile up.
      if (!started.size || waiting || document.hidden) return;
      waiting = true;
      requestAnimationFrame(() => {
        waiting = false;
        [...started].forEach((each) => each());
      });
    }, milliseconds);
  }
  known.add(beat);
  return () => known.delete(beat);
}

export interface Place {
  view: string;
  about: string | null;
}

function placeNow(): Place {
  const [view = "", ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  let about: string | null = null;
  try {
    about = rest.length ? decodeURIComponent(rest.join("/")) : null;
  } catch {
    about = null;
  }
  return { view: view || "space", about };
}

export function usePlace(): Place {
  const [place, setPlace] = useState(placeNow);
  useLayoutEffect(() => {
    const moved = (): void => setPlace(placeNow());
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  return place;
}

export function hrefOf(view: string, about?: string): string {
  return about === undefined ? `#/${view}` : `#/${view}/${encodeURIComponent(about)}`;
}

export function useMedia(query: string): boolean {
  const [matches, setMatches] = useState(() => matchMedia(query).matches);
  useEffect(() => {
    const media = matchMedia(query);
    const changed = (): void => setMatches(media.matches);
    changed();
    media.addEventListener("change", changed);
    return () => media.removeEventListener("change", changed);
  }, [query]);
  return matches;
}

/** Whether an element is in view. */
export function useInView(box: RefObject<Element | null>): boolean {
  const [seen, setSeen] = useState(false);
  useEffect(() => {
    const watcher = new IntersectionObserver((entries) => setSeen(entries[entries.length - 1]!.isIntersecting));
    watcher.observe(box.current!);
    return () => watcher.disconnect();
  }, []);
  return seen;
}

export type Theme = "auto" | "light" | "dark";

export function useTheme(): [Theme, (theme: Theme) => void] {
  const [theme, setTheme] = useState<Theme>((document.documentElement.dataset["theme"] as Theme | undefined) ?? "auto");
  return [
    theme,
    (wanted) => {
      if (wanted === "auto") delete document.documentElement.dataset["theme"];
      else document.documentElement.dataset["theme"] = wanted;
      forgetColours();
      setTheme(wanted);
      dispatchEvent(new Event("themechange"));
    },
  ];
}

const colours = new Map<string, string>();

function forgetColours(): void {
  colours.clear();
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  forgetColours();
  dispatchEvent(new Event("themechange"));
});

let probe: HTMLElement | null = null;

/** A colour of the page as the browser has resolved it: a canvas knows no variables. */
export function colour(name: string): string {
  let known = colours.get(name);
  if (known === undefined) {
    if (!probe) {
      probe = document.createElement("i");
      probe.hidden = true;
      document.body.append(probe);
    }
    probe.style.color = `var(--${name})`;
    known = getComputedStyle(probe).color;
    colours.set(name, known);
  }
  return known;
}

const HUES = [0, 1, 2, 3, 5, 6, 7]; // red is for what is refused

/** The same participant has the same colour everywhere. */
export function hueOf(name: string): number {
  let hash = 2166136261;
  for (let index = 0; index < name.length; index += 1) hash = Math.imul(hash ^ name.charCodeAt(index), 16777619);
  return HUES[(hash >>> 0) % HUES.length]!;
}
