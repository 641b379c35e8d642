// A part of the journal that is being read. It is added to the history when it is complete, so a failed read changes nothing.

import type { JournalRecord } from "../net/journal";
import { GATEWAY, type Envelope } from "./fold";
import { familyOf, fitting, fromEnvelope, type Room, type NewEvent } from "./ledger";
import { Ownership } from "./ownership";
import { Pauses } from "./pauses";
import { Proposals } from "./proposals";

/** Truncated in batches, because truncating for each event would be slow. */
const BATCH_EVENTS = 2000;
const BATCH_TEXT = 4 * 1024 * 1024;
const NOT_EVENTS = new Set(["welcome", "checkpoint", "frame", "consumed", "envelope"]);

export class JournalExcerpt {
  events: NewEvent[] = [];
  /** Whether `events` has all events of this part. */
  complete = true;
  readonly ownership = new Ownership();
  readonly proposals = new Proposals();
  readonly pauses = new Pauses();
  /** The last leave of each participant: its time and reason. */
  readonly left = new Map<string, { time: number; why: string }>();
  private readonly room: Room;
  private text = 0;

  constructor(room: Room) {
    this.room = room;
  }

  /** Add the next record and its text; for an envelope, the text of the envelope. */
  add(record: JournalRecord, text: string): void {
    const time = Date.parse(record.time);
    if (record.event === "envelope" && record.payload) this.envelope(record, text, time);
    else if (!NOT_EVENTS.has(record.event)) this.keep(fromRecord(record, text, time));
    if (record.event === "leave" && record.participant) {
      this.left.set(record.participant, { time, why: record.reason ?? "left" });
      if (record.reason === "kicked") this.pauses.end(record.participant, time);
    }
  }

  private envelope(record: JournalRecord, text: string, time: number): void {
    const envelope = record.payload as Envelope;
    envelope.payload ??= {};
    this.ownership.update(envelope, time);
    this.proposals.update(envelope, time);
    this.pauses.update(envelope, time);
    this.keep({ ...fromEnvelope(envelope, text, time), position: record.position });
  }

  private keep(event: NewEvent): void {
    this.events.push(event);
    this.text += event.text.length;
    if (this.events.length > this.room.events + BATCH_EVENTS || this.text > this.room.text + BATCH_TEXT) this.truncate();
  }

  private truncate(): void {
    this.events = fitting(this.events, this.room);
    this.text = this.events.reduce((sum, event) => sum + event.text.length, 0);
    this.complete = false;
  }
}

export function isRefusal(record: JournalRecord): boolean {
  return record.event.endsWith("rejected");
}

export function fromRecord(record: JournalRecord, text: string, time: number): NewEvent {
  const refused = isRefusal(record);
  const kind = refused ? (record.kind ?? (record.event === "frame_rejected" ? "frame" : "message")) : record.event;
  const outcome = refused ? `rejected: ${record.reason ?? "?"}` : record.reason;
  return {
    time,
    lane: record.participant ?? GATEWAY,
    kind,
    family: refused ? familyOf(kind) : "system",
    refused,
    id: record.envelope_id,
    to: [],
    causes: [],
    streamId: record.stream_id,
    summary: [outcome, record.stream_id].filter(Boolean).join(" · "),
    text,
    position: record.position,
  };
}
