// Hooks that views share: notifications, intervals, the route, media queries, the theme.

import { createContext, type RefObject } from "preact";
import { useContext, useEffect, useLayoutEffect, useReducer, useState } from "preact/hooks";
import type { Session, Topic } from "../session";

export const SessionContext = createContext<Session | null>(null);

export function useSession(): Session {
  const session = useContext(SessionContext);
  if (!session) throw new Error("no session: sign in first");
  return session;
}

function useRerender(): () => void {
  const [, rerender] = useReducer((count: number) => count + 1, 0);
  return () => rerender(undefined);
}

/** Render again when one of these topics changes. Subscribes before the page is painted, so no change is missed. */
export function useTopics(...topics: Topic[]): Session {
  const session = useSession();
  const rerender = useRerender();
  useLayoutEffect(() => {
    const stops = topics.map((topic) => session.listen(topic, rerender));
    return () => stops.forEach((stop) => stop());
  }, [session, topics.join()]);
  return session;
}

const intervals = new Map<number, Set<() => void>>();

/** Render again periodically, on an animation frame. All components with the same interval render together. */
export function useInterval(milliseconds: number): void {
  const rerender = useRerender();
  useEffect(() => onInterval(milliseconds, rerender), [milliseconds]);
}

export function onInterval(milliseconds: number, callback: () => void): () => void {
  let callbacks = intervals.get(milliseconds);
  if (!callbacks) {
    const started = new Set<() => void>();
    intervals.set(milliseconds, (callbacks = started));
    let waiting = false;
    setInterval(() => {
      // A hidden page draws no frames, so requests would accumulate.
      if (!started.size || waiting || document.hidden) return;
      waiting = true;
      requestAnimationFrame(() => {
        waiting = false;
        [...started].forEach((callback) => callback());
      });
    }, milliseconds);
  }
  callbacks.add(callback);
  return () => callbacks.delete(callback);
}

export interface Route {
  view: string;
  subject: string | null;
}

function currentRoute(): Route {
  const [view = "", ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  let subject: string | null = null;
  try {
    subject = rest.length ? decodeURIComponent(rest.join("/")) : null;
  } catch {
    subject = null;
  }
  return { view: view || "space", subject };
}

export function useRoute(): Route {
  const [route, setRoute] = useState(currentRoute);
  useLayoutEffect(() => {
    const update = (): void => setRoute(currentRoute());
    addEventListener("hashchange", update);
    return () => removeEventListener("hashchange", update);
  }, []);
  return route;
}

export function hrefOf(view: string, subject?: string): string {
  return subject === undefined ? `#/${view}` : `#/${view}/${encodeURIComponent(subject)}`;
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

/** Whether an element is in the viewport. */
export function useInView(box: RefObject<Element | null>): boolean {
  const [visible, setVisible] = useState(false);
  useEffect(() => {
    const watcher = new IntersectionObserver((entries) => setVisible(entries[entries.length - 1]!.isIntersecting));
    watcher.observe(box.current!);
    return () => watcher.disconnect();
  }, []);
  return visible;
}

export type Theme = "auto" | "light" | "dark";

export function useTheme(): [Theme, (theme: Theme) => void] {
  const [theme, setTheme] = useState<Theme>((document.documentElement.dataset["theme"] as Theme | undefined) ?? "auto");
  return [
    theme,
    (selected) => {
      if (selected === "auto") delete document.documentElement.dataset["theme"];
      else document.documentElement.dataset["theme"] = selected;
      forgetColours();
      setTheme(selected);
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

/** A colour of the page as the browser resolves it, because a canvas does not support CSS variables. */
export function colour(name: string): string {
  let value = colours.get(name);
  if (value === undefined) {
    if (!probe) {
      probe = document.createElement("i");
      probe.hidden = true;
      document.body.append(probe);
    }
    probe.style.color = `var(--${name})`;
    value = getComputedStyle(probe).color;
    colours.set(name, value);
  }
  return value;
}

const HUES = [0, 1, 2, 3, 5, 6, 7]; // red is for what is refused

/** The same participant has the same colour everywhere. */
export function hueOf(name: string): number {
  let hash = 2166136261;
  for (let index = 0; index < name.length; index += 1) hash = Math.imul(hash ^ name.charCodeAt(index), 16777619);
  return HUES[(hash >>> 0) % HUES.length]!;
}
