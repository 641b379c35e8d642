// What was said, in order: what the timeline shows. Frames and `stream/data` are not in it; they are their streams'.
//
// An envelope is kept as the text it came as, within a budget; the oldest go first.

import { sourceOf } from "./exact";
import type { Envelope } from "./fold";

export const FAMILIES = ["chat", "mcp", "reasoning", "capability", "stream", "participant", "space", "system", "other"] as const;
export type Family = (typeof FAMILIES)[number];

export const MOST_EVENTS = 20_000;
const MOST_TEXT = 48 * 1024 * 1024;

export interface Event {
  key: number;
  /** Milliseconds since 1970, by the gateway's clock. */
  time: number;
  lane: string;
  kind: string;
  family: Family;
  refused: boolean;
  id: string | null;
  to: string[];
  causes: string[];
  streamId: string | null;
  /** One line for a list. */
  summary: string;
  /** The envelope's text, or the record's. */
  text: string;
  position: number | null;
}

/** Before the ledger has it. */
export type Told = Omit<Event, "key">;

/** What can still be held. */
export interface Room {
  events: number;
  text: number;
}

/** Of these, in order, the newest for which there is room. */
export function fitting(events: Told[], room: Room): Told[] {
  let from = events.length;
  let text = 0;
  while (from > 0 && events.length - from < room.events && text + events[from - 1]!.text.length <= room.text) {
    from -= 1;
    text += events[from]!.text.length;
  }
  return from ? events.slice(from) : events;
}

export function familyOf(kind: string): Family {
  const first = kind.split("/", 1)[0] as Family;
  return FAMILIES.includes(first) ? first : "other";
}

// For all ledgers of the page: what one shows and its successor too is drawn anew.
let keys = 0;

export class Ledger {
  events: Event[] = [];
  readonly byId = new Map<string, Event>();
  private readonly answers = new Map<string, Event[]>();
  private text = 0;
  private leftOut = false;
  /** How many were let go. */
  gone = 0;

  /** Something new. What the journal tells comes a moment later than what was said after it. */
  add(event: Told): void {
    const added = { ...event, key: (keys += 1) };
    let at = this.events.length;
    while (at > 0 && this.events[at - 1]!.time > added.time) at -= 1;
    this.events.splice(at, 0, added);
    this.index(added);
    if (this.events.length > MOST_EVENTS * 1.1 || this.text > MOST_TEXT) this.letGo();
  }

  /** What was before all there is: given in order; `whole` where nothing of it was left out already. */
  prepend(events: Told[], whole: boolean): void {
    const fits = fitting(events, this.room());
    if (!whole || fits.length < events.length) this.leftOut = true;
    const taken = fits.map((each) => ({ ...each, key: (keys += 1) }));
    this.events = [...taken, ...this.events];
    taken.forEach((each) => this.index(each));
  }

  room(): Room {
    // Behind what was let go there would be a hole.
    if (this.leftOut) return { events: 0, text: 0 };
    return { events: Math.max(0, MOST_EVENTS - this.events.length), text: Math.max(0, MOST_TEXT - this.text) };
  }

  /** Whether nothing can be put before what is held. */
  get full(): boolean {
    const { events, text } = this.room();
    return events === 0 || text === 0;
  }

  /** Where in the journal the oldest stands that is held; null where that is not known. */
  get oldest(): number | null {
    return this.events[0]?.position ?? null;
  }

  private index(event: Event): void {
    this.text += event.text.length;
    if (event.id !== null) this.byId.set(event.id, event);
    for (const cause of event.causes) {
      const known = this.answers.get(cause);
      if (known) known.push(event);
      else this.answers.set(cause, [event]);
    }
  }

  private letGo(): void {
    const count = Math.ceil(this.events.length * 0.15);
    for (const event of this.events.splice(0, count)) {
      this.text -= event.text.length;
      if (event.id !== null && this.byId.get(event.id) === event) this.byId.delete(event.id);
      for (const cause of event.causes) {
        const left = this.answers.get(cause)?.filter((each) => each !== event) ?? [];
        if (left.length) this.answers.set(cause, left);
        else this.answers.delete(cause);
      }
    }
    this.gone += count;
    this.leftOut = true;
  }

  /** What an event answers, and what answers it. */
  related(event: Event): Event[] {
    const causes = event.causes.map((id) => this.byId.get(id)).filter((each) => each !== undefined);
    const answers = event.id === null ? [] : (this.answers.get(event.id) ?? []);
    return [...causes, ...answers].filter((each) => each !== event);
  }
}

export function fromEnvelope(envelope: Envelope, text: string, time: number): Told {
  const reference = envelope.payload?.["stream"];
  const inside = reference && typeof reference === "object" && !Array.isArray(reference) ? reference["stream_id"] : undefined;
  const streamId = inside ?? envelope.payload?.["stream_id"];
  return {
    time,
    lane: String(envelope.from),
    kind: String(envelope.kind),
    family: familyOf(String(envelope.kind)),
    refused: envelope.kind === "system/error" || envelope.kind === "stream/error" || envelope.kind === "mcp/reject",
    id: typeof envelope.id === "string" ? envelope.id : null,
    to: Array.isArray(envelope.to) ? envelope.to.map(String) : [],
    causes: Array.isArray(envelope.correlation_id) ? envelope.correlation_id.map(String) : [],
    streamId: typeof streamId === "string" ? streamId : null,
    summary: summaryOf(envelope, text),
    text,
    position: null,
  };
}

const LINE = 160;

/** What an envelope says, in a line. */
function summaryOf(envelope: Envelope, whole: string): string {
  const payload = envelope.payload ?? {};
  const text = (name: string): string | null => (typeof payload[name] === "string" ? (payload[name] as string) : null);
  const parts: (string | null)[] = [];
  switch (envelope.kind) {
    case "system/presence": {
      const about = payload["participant"] as { id?: unknown } | undefined;
      parts.push(String(about?.id ?? ""), text("event"), text("reason"));
      break;
    }
    case "system/welcome": {
      const { participants, active_streams } = payload as { participants?: unknown[]; active_streams?: unknown[] };
      parts.push(`${participants?.length ?? 0} others`, `${active_streams?.length ?? 0} streams`);
      break;
    }
    case "system/error":
      parts.push(text("error"), text("message"));
      break;
    case "mcp/request":
    case "mcp/proposal": {
      const params = payload["params"] as { name?: unknown } | undefined;
      parts.push(text("method"), typeof params?.name === "string" ? params.name : null);
      break;
    }
    case "capability/grant":
    case "capability/revoke":
      parts.push(text("recipient"), sourceOf(whole, "payload", "capabilities") ?? text("grant_id"));
      break;
    case "stream/ownership-transferred":
      parts.push(text("stream_id"), `${text("previous_owner")} → ${text("new_owner")}`, text("reason"));
      break;
    default:
      parts.push(
        text("text") ?? text("message"),
        text("stream_id") ?? ((payload["stream"] as { stream_id?: string } | undefined)?.stream_id ?? null),
        text("participant_id"),
        text("description") ?? text("intent"),
        text("reason"),
      );
  }
  const said = parts.filter((each) => each).join(" · ");
  const line = said || (Object.keys(payload).length ? (sourceOf(whole, "payload") ?? "").slice(0, LINE + 1) : "");
  return line.length > LINE ? `${line.slice(0, LINE - 1)}…` : line;
}
