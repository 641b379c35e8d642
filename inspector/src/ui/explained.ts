// The gateway decides which actions are allowed. A view requests explanations when it opens and when the space changes.

import { useEffect, useRef, useState } from "preact/hooks";
import type { Draft, Explanation } from "../net/http";
import type { Session } from "../session";
import { useSession } from "./hooks";

export type Answers = (Explanation | null)[];
type Drafts = readonly (Draft | null)[];

const MIN_DELAY = 50;
const MIN_INTERVAL = 1000;
/** The pause between requests, as a multiple of the duration of a request. */
const PAUSE_FACTOR = 4;
/** The default limit of a gateway for an envelope to explain, in bytes. */
const MAX_EXPLAINED = 256 * 1024;

/** Sends one request at a time. New drafts are requested after the running request. Its answer is dropped if the drafts
 * have changed, so a late answer never replaces a newer one. */
class ExplanationLoader {
  private readonly session: Session;
  private readonly onAnswers: (answers: Answers) => void;
  private drafts: Drafts | null = null;
  private answered: Drafts | null = null;
  private busy = false;
  private stale = false;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private next = 0;

  constructor(session: Session, onAnswers: (answers: Answers) => void) {
    this.session = session;
    this.onAnswers = onAnswers;
  }

  /** Replace the drafts; null stops the requests. */
  setDrafts(drafts: Drafts | null): void {
    this.drafts = drafts;
    clearTimeout(this.timer);
    this.timer = undefined;
    if (!drafts || this.busy) return;
    if (drafts === this.answered) this.refresh();
    else void this.load();
  }

  /** Request again after a delay, because changes of a space come in bursts. A running timer is not restarted. */
  refresh(): void {
    if (this.busy) this.stale = true;
    else if (this.drafts) this.timer ??= setTimeout(() => void this.load(), Math.max(MIN_DELAY, this.next - Date.now()));
  }

  /** A draft that is too large to be explained counts as allowed: the gateway decides when it is sent. */
  private async explain(me: string, draft: Draft): Promise<Explanation> {
    const size = new TextEncoder().encode(JSON.stringify(draft)).length;
    if (size > MAX_EXPLAINED) return { allowed: true, kind: draft.kind, error: null, reason: "", capability: null, source: null, nearest: null };
    return this.session.api.explain(me, draft);
  }

  private async load(): Promise<void> {
    const drafts = this.drafts!;
    const me = this.session.view.you.id;
    const started = Date.now();
    this.timer = undefined;
    this.busy = true;
    this.stale = false;
    const answers = await Promise.all(
      drafts.map((draft) => (draft && me ? this.explain(me, draft).catch(() => null) : Promise.resolve(null))),
    );
    this.busy = false;
    // Slow requests, such as those of several megabytes, are repeated less often.
    this.next = Math.max(started + MIN_INTERVAL, Date.now() + (Date.now() - started) * PAUSE_FACTOR);
    if (this.drafts !== drafts) this.setDrafts(this.drafts);
    else {
      this.answered = drafts;
      this.onAnswers(answers);
      if (this.stale) this.refresh();
    }
  }
}

/** The explanation of each draft; `enabled` is false while the result is not visible. */
export function useExplained(drafts: Drafts, enabled = true): Answers {
  const session = useSession();
  const [answers, setAnswers] = useState<Answers>([]);
  const loader = useRef<ExplanationLoader | null>(null);
  const stableDrafts = useStable(drafts);
  useEffect(() => {
    if (!session.canAct) return undefined;
    const current = (loader.current = new ExplanationLoader(session, setAnswers));
    const stop = session.listen("space", () => current.refresh());
    return () => {
      stop();
      current.setDrafts(null);
    };
  }, [session]);
  useEffect(() => loader.current?.setDrafts(enabled ? stableDrafts : null), [session, stableDrafts, enabled]);
  return answers;
}

/** The previous object while the value is equal to it. The same object is not compared, however large it is. */
function useStable<T>(value: T): T {
  const previous = useRef(value);
  if (!isEqual(previous.current, value)) previous.current = value;
  return previous.current;
}

function isEqual(one: unknown, two: unknown): boolean {
  if (Object.is(one, two)) return true;
  if (one === null || two === null || typeof one !== "object" || typeof two !== "object") return false;
  if (Array.isArray(one) !== Array.isArray(two)) return false;
  const keys = Object.keys(one);
  if (keys.length !== Object.keys(two).length) return false;
  const [left, right] = [one as { [key: string]: unknown }, two as { [key: string]: unknown }];
  return keys.every((key) => Object.hasOwn(right, key) && isEqual(left[key], right[key]));
}
