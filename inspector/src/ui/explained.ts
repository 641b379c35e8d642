// What one may do is the gateway's word. It is asked when a view comes, and again when the space has changed.

import { useEffect, useRef, useState } from "preact/hooks";
import type { Draft, Explanation } from "../net/http";
import type { Session } from "../session";
import { useSession } from "./hooks";

export type Answers = (Explanation | null)[];
type Drafts = readonly (Draft | null)[];

const AT_LEAST = 50;
const ASK_AGAIN = 1000;
const REST = 4;
/** Bytes of an envelope that a gateway explains, unless its operator allows more. */
const MOST_EXPLAINED = 256 * 1024;

/** One question at a time. What is asked for meanwhile is asked afterwards, and an answer to what is not asked any more
 * is dropped: a late one never takes the place of a newer. */
class Asker {
  private readonly session: Session;
  private readonly tell: (answers: Answers) => void;
  private drafts: Drafts | null = null;
  private answered: Drafts | null = null;
  private busy = false;
  private stale = false;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private next = 0;

  constructor(session: Session, tell: (answers: Answers) => void) {
    this.session = session;
    this.tell = tell;
  }

  /** These from now on, or nothing. */
  about(drafts: Drafts | null): void {
    this.drafts = drafts;
    clearTimeout(this.timer);
    this.timer = undefined;
    if (!drafts || this.busy) return;
    if (drafts === this.answered) this.again();
    else void this.ask();
  }

  /** Soon, not at once: whatever changes a space changes it often. A timer that runs is left alone. */
  again(): void {
    if (this.busy) this.stale = true;
    else if (this.drafts) this.timer ??= setTimeout(() => void this.ask(), Math.max(AT_LEAST, this.next - Date.now()));
  }

  /** What is too large to be explained is offered: the gateway decides when it is sent. */
  private async explain(me: string, draft: Draft): Promise<Explanation> {
    const size = new TextEncoder().encode(JSON.stringify(draft)).length;
    if (size > MOST_EXPLAINED) return { allowed: true, kind: draft.kind, error: null, reason: "", capability: null, source: null, nearest: null };
    return this.session.door.explain(me, draft);
  }

  private async ask(): Promise<void> {
    const asked = this.drafts!;
    const me = this.session.view.you.id;
    const begun = Date.now();
    this.timer = undefined;
    this.busy = true;
    this.stale = false;
    const found = await Promise.all(
      asked.map((each) => (each && me ? this.explain(me, each).catch(() => null) : Promise.resolve(null))),
    );
    this.busy = false;
    // What takes long, as megabytes do, is asked seldom.
    this.next = Math.max(begun + ASK_AGAIN, Date.now() + (Date.now() - begun) * REST);
    if (this.drafts !== asked) this.about(this.drafts);
    else {
      this.answered = asked;
      this.tell(found);
      if (this.stale) this.again();
    }
  }
}

/** What would come of each of these, were we to send them; `wanted` is false while nobody sees it. */
export function useExplained(drafts: Drafts, wanted = true): Answers {
  const session = useSession();
  const [answers, setAnswers] = useState<Answers>([]);
  const asker = useRef<Asker | null>(null);
  const asked = useSteady(drafts);
  useEffect(() => {
    if (!session.acts) return undefined;
    const made = (asker.current = new Asker(session, setAnswers));
    const stop = session.listen("space", () => made.again());
    return () => {
      stop();
      made.about(null);
    };
  }, [session]);
  useEffect(() => asker.current?.about(wanted ? asked : null), [session, asked, wanted]);
  return answers;
}

/** The value as it was, while it says the same. What is the same object is not looked into, however large it is. */
function useSteady<T>(value: T): T {
  const kept = useRef(value);
  if (!same(kept.current, value)) kept.current = value;
  return kept.current;
}

function same(one: unknown, two: unknown): boolean {
  if (Object.is(one, two)) return true;
  if (one === null || two === null || typeof one !== "object" || typeof two !== "object") return false;
  if (Array.isArray(one) !== Array.isArray(two)) return false;
  const keys = Object.keys(one);
  if (keys.length !== Object.keys(two).length) return false;
  const [left, right] = [one as { [key: string]: unknown }, two as { [key: string]: unknown }];
  return keys.every((key) => Object.hasOwn(right, key) && same(left[key], right[key]));
}
