// What an observer of a space knows, and how every envelope changes it: the same fold as `mew.view`.
//
// It believes the gateway, and nobody who speaks in its name. `vectors/` holds what `mew.view` makes of the same
// envelopes; a test compares. Unlike there, a view is changed in place: two thousand frames a second are counted here.

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };

export interface Envelope {
  protocol?: string;
  id: string;
  ts: string;
  from: string;
  to?: string[] | null;
  kind: string;
  correlation_id?: string[] | null;
  context?: Json;
  /** On the kinds about proposals the gateway sets it or removes it: nobody can forge it. */
  proposal?: { position: number; digest: string; expires_at?: string };
  payload: JsonObject;
}

export interface Participant {
  id: string;
  capabilities: JsonObject[];
}

export interface Format {
  id: string;
  description?: string;
  mime_type?: string;
  schema?: Json;
}

export interface StreamCore {
  stream_id: string;
  namespace: string;
  status: string;
  creator: string;
  formats: Format[];
  owner_connected: boolean;
  frames: number;
}

export interface StreamEntry {
  stream_id: string;
  owner: string;
  authorized_writers: string[];
  created: string;
  direction: Json;
  encoding: Json;
  stream: StreamCore;
  [field: string]: unknown;
}

/** An open proposal: everything but what it asks for, which the gateway is asked for when somebody looks. */
export interface OpenProposal {
  position: number;
  id: string;
  from: string;
  to: string[];
  method: string;
  digest: string;
  expires_at: string;
  votes: string[];
}

export interface View {
  you: Participant;
  participants: Map<string, Participant>;
  streams: Map<string, StreamEntry>;
  position: number;
  /** The open ones by position, in order of opening; null where one may send no `mcp/request`. */
  proposals: Map<number, OpenProposal> | null;
}

export const GATEWAY = "system:gateway";

type Change = (view: View, envelope: Envelope) => void;

export function emptyView(): View {
  return { you: { id: "", capabilities: [] }, participants: new Map(), streams: new Map(), position: -1, proposals: null };
}

/** The view after an envelope; kinds that only the gateway sends count only from the gateway. */
export function apply(view: View, envelope: Envelope): void {
  const table = envelope.from === GATEWAY ? BY_GATEWAY : BY_PARTICIPANT;
  table.get(envelope.kind)?.(view, envelope);
}

/** The view after a raw frame. */
export function applyFrame(view: View, streamId: string): void {
  counted(view, streamId, 1);
}

function welcome(view: View, envelope: Envelope): void {
  const payload = envelope.payload as unknown as {
    you: Participant;
    participants: Participant[];
    active_streams: StreamEntry[];
    open_proposals?: OpenProposal[];
    position: number;
  };
  view.you = person(payload.you);
  view.participants = new Map(payload.participants.map((each) => [each.id, person(each)]));
  view.streams = new Map(payload.active_streams.map((each) => [each.stream_id, each]));
  view.position = payload.position;
  view.proposals = payload.open_proposals ? new Map(payload.open_proposals.map((each) => [each.position, entryOf(each)])) : null;
}

function entryOf({ position, id, from, to, method, digest, expires_at, votes }: OpenProposal): OpenProposal {
  return { position, id, from, to, method, digest, expires_at, votes };
}

function person(value: Participant): Participant {
  return { id: value.id, capabilities: value.capabilities };
}

function presence(view: View, envelope: Envelope): void {
  const about = person(envelope.payload["participant"] as unknown as Participant);
  const event = envelope.payload["event"];
  if (event === "leave") {
    view.participants.delete(about.id);
    if (envelope.payload["reason"] === "kicked") withoutVotes(view, about.id);
  } else if (event === "join" || view.participants.has(about.id)) view.participants.set(about.id, about);
  const connected = view.participants.has(about.id);
  for (const stream of view.streams.values()) {
    if (stream.owner === about.id) stream.stream.owner_connected = connected;
  }
}

function opened(view: View, envelope: Envelope): void {
  const entry = envelope.payload as unknown as StreamEntry;
  view.streams.set(entry.stream_id, entry);
}

function readied(view: View, envelope: Envelope): void {
  const payload = envelope.payload;
  const known = payload["stream"] as unknown as StreamCore & { owner: string; authorized_writers: string[] };
  view.streams.set(known.stream_id, {
    ...payload,
    stream_id: known.stream_id,
    owner: known.owner,
    authorized_writers: known.authorized_writers,
    created: envelope.ts,
    direction: payload["direction"] ?? "upload",
    encoding: payload["encoding"] ?? "utf-8",
    stream: {
      stream_id: known.stream_id,
      namespace: known.namespace,
      status: known.status,
      creator: known.creator,
      formats: known.formats,
      owner_connected: true,
      frames: 0,
    },
  });
}

function started(view: View, envelope: Envelope): void {
  const stream = named(view, envelope);
  if (stream) stream.stream.status = "live";
}

function ended(view: View, envelope: Envelope): void {
  const stream = named(view, envelope);
  if (stream) view.streams.delete(stream.stream_id);
}

function writersChanged(view: View, envelope: Envelope): void {
  const stream = named(view, envelope);
  if (stream) stream.authorized_writers = envelope.payload["authorized_writers"] as string[];
}

function ownershipTransferred(view: View, envelope: Envelope): void {
  const stream = named(view, envelope);
  if (!stream) return;
  stream.owner = envelope.payload["new_owner"] as string;
  stream.authorized_writers = envelope.payload["authorized_writers"] as string[];
  stream.stream.owner_connected = true;
}

function data(view: View, envelope: Envelope): void {
  const stream = named(view, envelope);
  if (stream) stream.stream.frames += 1;
}

function gap(view: View, envelope: Envelope): void {
  counted(view, envelope.payload["stream_id"] as string, envelope.payload["dropped"] as number);
}

function counted(view: View, streamId: string, count: number): void {
  const stream = view.streams.get(streamId);
  if (stream) stream.stream.frames += count;
}

/** The stream an envelope is about: the gateway has completed the reference before it sent it. */
export function referenced(envelope: Envelope): string | null {
  const reference = envelope.payload?.["stream"];
  if (reference === null || typeof reference !== "object" || Array.isArray(reference)) return null;
  const id = reference["stream_id"];
  return typeof id === "string" ? id : null;
}

function named(view: View, envelope: Envelope): StreamEntry | undefined {
  const id = referenced(envelope);
  return id === null ? undefined : view.streams.get(id);
}

/** The entry of a proposal, from its own envelope. */
export function proposalIn(envelope: Envelope): OpenProposal | null {
  const stamp = envelope.kind === "mcp/proposal" ? envelope.proposal : undefined;
  if (!stamp?.expires_at) return null;
  const { position, digest, expires_at } = stamp;
  const { id, from } = envelope;
  return { position, id, from, to: envelope.to ?? [], method: String(envelope.payload["method"]), digest, expires_at, votes: [] };
}

function proposed(view: View, envelope: Envelope): void {
  const entry = proposalIn(envelope);
  if (entry) view.proposals?.set(entry.position, entry);
}

function approved(view: View, envelope: Envelope): void {
  const entry = envelope.proposal && view.proposals?.get(envelope.proposal.position);
  if (!entry || entry.votes.includes(envelope.from)) return;
  view.proposals!.set(entry.position, { ...entry, votes: [...entry.votes, envelope.from] });
}

/** A vote ends with its voter's kick. */
function withoutVotes(view: View, id: string): void {
  for (const entry of view.proposals?.values() ?? []) {
    if (entry.votes.includes(id)) view.proposals!.set(entry.position, { ...entry, votes: entry.votes.filter((each) => each !== id) });
  }
}

/** Which proposal an envelope ends: a participant's by its stamp, the gateway's own by what it says. */
export function endedBy(envelope: Envelope): number | undefined {
  if (envelope.from !== GATEWAY) return ENDS.has(envelope.kind) ? envelope.proposal?.position : undefined;
  return envelope.kind === "mcp/proposal-closed" ? Number(envelope.payload["position"]) : undefined;
}
const ENDS = new Set(["mcp/request", "mcp/response", "mcp/reject", "mcp/withdraw"]);

function proposalEnded(view: View, envelope: Envelope): void {
  const position = endedBy(envelope);
  if (position !== undefined) view.proposals?.delete(position);
}

const BY_GATEWAY: ReadonlyMap<string, Change> = new Map([
  ["system/welcome", welcome],
  ["system/presence", presence],
  ["stream/open", opened],
  ["stream/ready", readied],
  ["stream/close", ended],
  ["stream/gap", gap],
  ["stream/write-granted", writersChanged],
  ["stream/write-revoked", writersChanged],
  ["stream/ownership-transferred", ownershipTransferred],
  ["mcp/proposal-closed", proposalEnded],
]);

// What participants say about a stream is relayed only where they may.
const BY_PARTICIPANT: ReadonlyMap<string, Change> = new Map([
  ["stream/start", started],
  ["stream/data", data],
  ["stream/close", ended],
  ["stream/complete", ended],
  ["stream/error", ended],
  ["mcp/proposal", proposed],
  ["mcp/approve", approved],
  ["mcp/request", proposalEnded],
  ["mcp/response", proposalEnded],
  ["mcp/reject", proposalEnded],
  ["mcp/withdraw", proposalEnded],
]);
