// The events of a space in order, for the timeline. Frames and `stream/data` are not events: `activity.ts` counts them.
//
// The ledger stores the received text of each envelope, up to a limit. It deletes the oldest first.

import { sourceOf } from "./exact";
import type { Envelope } from "./fold";

export const FAMILIES = ["chat", "mcp", "reasoning", "capability", "stream", "participant", "space", "system", "other"] as const;
export type Family = (typeof FAMILIES)[number];

export const MAX_EVENTS = 20_000;
const MAX_TEXT = 48 * 1024 * 1024;

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

/** An event that is not in the ledger yet. */
export type NewEvent = Omit<Event, "key">;

/** The remaining capacity. */
export interface Room {
  events: number;
  text: number;
}

/** The newest of these events that fit into the capacity, in order. */
export function fitting(events: NewEvent[], room: Room): NewEvent[] {
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

// Shared by all ledgers of the page, so that no two events have the same key.
let keys = 0;

export class Ledger {
  events: Event[] = [];
  readonly byId = new Map<string, Event>();
  private readonly answers = new Map<string, Event[]>();
  private text = 0;
  /** Earlier events were omitted or deleted. */
  private truncated = false;
  /** The number of deleted events. */
  deleted = 0;

  /** Add a new event at its time: an event from the journal can arrive after later envelopes. */
  add(event: NewEvent): void {
    const added = { ...event, key: (keys += 1) };
    let at = this.events.length;
    while (at > 0 && this.events[at - 1]!.time > added.time) at -= 1;
    this.events.splice(at, 0, added);
    this.index(added);
    if (this.events.length > MAX_EVENTS * 1.1 || this.text > MAX_TEXT) this.deleteOldest();
  }

  /** Add earlier events, in order; `complete` says that none of them was omitted. */
  prepend(events: NewEvent[], complete: boolean): void {
    const fits = fitting(events, this.room());
    if (!complete || fits.length < events.length) this.truncated = true;
    const added = fits.map((event) => ({ ...event, key: (keys += 1) }));
    this.events = [...added, ...this.events];
    added.forEach((event) => this.index(event));
  }

  room(): Room {
    // Earlier events would leave a gap before the deleted ones.
    if (this.truncated) return { events: 0, text: 0 };
    return { events: Math.max(0, MAX_EVENTS - this.events.length), text: Math.max(0, MAX_TEXT - this.text) };
  }

  /** Whether no earlier events can be added. */
  get full(): boolean {
    const { events, text } = this.room();
    return events === 0 || text === 0;
  }

  /** The journal position of the oldest event; null if it is unknown. */
  get oldest(): number | null {
    return this.events[0]?.position ?? null;
  }

  private index(event: Event): void {
    this.text += event.text.length;
    if (event.id !== null) this.byId.set(event.id, event);
    for (const cause of event.causes) {
      const answers = this.answers.get(cause);
      if (answers) answers.push(event);
      else this.answers.set(cause, [event]);
    }
  }

  private deleteOldest(): void {
    const count = Math.ceil(this.events.length * 0.15);
    for (const event of this.events.splice(0, count)) {
      this.text -= event.text.length;
      if (event.id !== null && this.byId.get(event.id) === event) this.byId.delete(event.id);
      for (const cause of event.causes) {
        const left = this.answers.get(cause)?.filter((answer) => answer !== event) ?? [];
        if (left.length) this.answers.set(cause, left);
        else this.answers.delete(cause);
      }
    }
    this.deleted += count;
    this.truncated = true;
  }

  /** The events that this event answers, and its answers. */
  related(event: Event): Event[] {
    const causes = event.causes.map((id) => this.byId.get(id)).filter((cause) => cause !== undefined);
    const answers = event.id === null ? [] : (this.answers.get(event.id) ?? []);
    return [...causes, ...answers].filter((other) => other !== event);
  }
}

export function fromEnvelope(envelope: Envelope, text: string, time: number): NewEvent {
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

/** One line about an envelope. */
function summaryOf(envelope: Envelope, source: string): string {
  const payload = envelope.payload ?? {};
  const text = (name: string): string | null => (typeof payload[name] === "string" ? (payload[name] as string) : null);
  const parts: (string | null)[] = [];
  switch (envelope.kind) {
    case "system/presence": {
      const participant = payload["participant"] as { id?: unknown } | undefined;
      parts.push(String(participant?.id ?? ""), text("event"), text("reason"));
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
      parts.push(text("recipient"), sourceOf(source, "payload", "capabilities") ?? text("grant_id"));
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
  const summary = parts.filter((part) => part).join(" · ");
  const line = summary || (Object.keys(payload).length ? (sourceOf(source, "payload") ?? "").slice(0, LINE + 1) : "");
  return line.length > LINE ? `${line.slice(0, LINE - 1)}…` : line;
}
