// What one reading of the journal found, apart until all of it is there: a reading that fails leaves nothing behind.

import type { JournalRecord } from "../net/journal";
import { GATEWAY, type Envelope } from "./fold";
import { familyOf, fitting, fromEnvelope, type Room, type Told } from "./ledger";
import { Ownership } from "./ownership";
import { Pauses } from "./pauses";
import { Proposals } from "./proposals";

/** Cut in lumps: for each event it would cost too much. */
const LUMP_EVENTS = 2000;
const LUMP_TEXT = 4 * 1024 * 1024;
const QUIET = new Set(["welcome", "checkpoint", "frame", "consumed", "envelope"]);

export class Recall {
  events: Told[] = [];
  /** Whether everything that was found is in `events`. */
  whole = true;
  readonly ownership = new Ownership();
  readonly proposals = new Proposals();
  readonly pauses = new Pauses();
  /** Who left last when, and why. */
  readonly left = new Map<string, { time: number; why: string }>();
  private readonly room: Room;
  private text = 0;

  constructor(room: Room) {
    this.room = room;
  }

  /** The next record, and its text: of an envelope the envelope's. */
  take(record: JournalRecord, text: string): void {
    const time = Date.parse(record.time);
    if (record.event === "envelope" && record.payload) this.envelope(record, text, time);
    else if (!QUIET.has(record.event)) this.keep(fromRecord(record, text, time));
    if (record.event === "leave" && record.participant) {
      this.left.set(record.participant, { time, why: record.reason ?? "left" });
      if (record.reason === "kicked") this.pauses.end(record.participant, time);
    }
  }

  private envelope(record: JournalRecord, text: string, time: number): void {
    const envelope = record.payload as Envelope;
    envelope.payload ??= {};
    this.ownership.heed(envelope, time);
    this.proposals.heed(envelope, time);
    this.pauses.heed(envelope, time);
    this.keep({ ...fromEnvelope(envelope, text, time), position: record.position });
  }

  private keep(event: Told): void {
    this.events.push(event);
    this.text += event.text.length;
    if (this.events.length > this.room.events + LUMP_EVENTS || this.text > this.room.text + LUMP_TEXT) this.cut();
  }

  private cut(): void {
    this.events = fitting(this.events, this.room);
    this.text = this.events.reduce((sum, each) => sum + each.text.length, 0);
    this.whole = false;
  }
}

export function isRefusal(record: JournalRecord): boolean {
  return record.event.endsWith("rejected");
}

export function fromRecord(record: JournalRecord, text: string, time: number): Told {
  const refused = isRefusal(record);
  const kind = refused ? (record.kind ?? (record.event === "frame_rejected" ? "frame" : "message")) : record.event;
  const said = refused ? `refused: ${record.reason ?? "?"}` : record.reason;
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
    summary: [said, record.stream_id].filter(Boolean).join(" · "),
    text,
    position: record.position,
  };
}
