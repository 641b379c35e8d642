// The state of a space that an observer can know, and how each envelope changes it: the same fold as `mew.view`.
//
// Kinds of the gateway count only if the gateway sent them. A test compares this fold with `mew.view`, by the vectors in
// `vectors/`. Unlike `mew.view`, it changes the view in place, because it counts thousands of frames per second.

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
  /** For the kinds about proposals the gateway sets or removes this field, so it cannot be forged. */
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

/** An open proposal without its payload. The page requests the payload when it shows the proposal. */
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
  /** Open proposals by position, oldest first; null if this participant may send no `mcp/request`. */
  proposals: Map<number, OpenProposal> | null;
}

export const GATEWAY = "system:gateway";

type Change = (view: View, envelope: Envelope) => void;

export function emptyView(): View {
  return { you: { id: "", capabilities: [] }, participants: new Map(), streams: new Map(), position: -1, proposals: null };
}

/** Update the view with an envelope. Kinds that only the gateway sends are ignored from other senders. */
export function apply(view: View, envelope: Envelope): void {
  const table = envelope.from === GATEWAY ? BY_GATEWAY : BY_PARTICIPANT;
  table.get(envelope.kind)?.(view, envelope);
}

/** Update the view with a raw frame. */
export function applyFrame(view: View, streamId: string): void {
  countFrames(view, streamId, 1);
}

function welcome(view: View, envelope: Envelope): void {
  const payload = envelope.payload as unknown as {
    you: Participant;
    participants: Participant[];
    active_streams: StreamEntry[];
    open_proposals?: OpenProposal[];
    position: number;
  };
  view.you = participantOf(payload.you);
  view.participants = new Map(payload.participants.map((participant) => [participant.id, participantOf(participant)]));
  view.streams = new Map(payload.active_streams.map((stream) => [stream.stream_id, stream]));
  view.position = payload.position;
  view.proposals = payload.open_proposals ? new Map(payload.open_proposals.map((proposal) => [proposal.position, entryOf(proposal)])) : null;
}

function entryOf({ position, id, from, to, method, digest, expires_at, votes }: OpenProposal): OpenProposal {
  return { position, id, from, to, method, digest, expires_at, votes };
}

function participantOf(value: Participant): Participant {
  return { id: value.id, capabilities: value.capabilities };
}

function presence(view: View, envelope: Envelope): void {
  const participant = participantOf(envelope.payload["participant"] as unknown as Participant);
  const event = envelope.payload["event"];
  if (event === "leave") {
    view.participants.delete(participant.id);
    if (envelope.payload["reason"] === "kicked") removeVotes(view, participant.id);
  } else if (event === "join" || view.participants.has(participant.id)) view.participants.set(participant.id, participant);
  const connected = view.participants.has(participant.id);
  for (const stream of view.streams.values()) {
    if (stream.owner === participant.id) stream.stream.owner_connected = connected;
  }
}

function opened(view: View, envelope: Envelope): void {
  const entry = envelope.payload as unknown as StreamEntry;
  view.streams.set(entry.stream_id, entry);
}

function readied(view: View, envelope: Envelope): void {
  const payload = envelope.payload;
  const core = payload["stream"] as unknown as StreamCore & { owner: string; authorized_writers: string[] };
  view.streams.set(core.stream_id, {
    ...payload,
    stream_id: core.stream_id,
    owner: core.owner,
    authorized_writers: core.authorized_writers,
    created: envelope.ts,
    direction: payload["direction"] ?? "upload",
    encoding: payload["encoding"] ?? "utf-8",
    stream: {
      stream_id: core.stream_id,
      namespace: core.namespace,
      status: core.status,
      creator: core.creator,
      formats: core.formats,
      owner_connected: true,
      frames: 0,
    },
  });
}

function started(view: View, envelope: Envelope): void {
  const stream = streamOf(view, envelope);
  if (stream) stream.stream.status = "live";
}

function ended(view: View, envelope: Envelope): void {
  const stream = streamOf(view, envelope);
  if (stream) view.streams.delete(stream.stream_id);
}

function writersChanged(view: View, envelope: Envelope): void {
  const stream = streamOf(view, envelope);
  if (stream) stream.authorized_writers = envelope.payload["authorized_writers"] as string[];
}

function ownershipTransferred(view: View, envelope: Envelope): void {
  const stream = streamOf(view, envelope);
  if (!stream) return;
  stream.owner = envelope.payload["new_owner"] as string;
  stream.authorized_writers = envelope.payload["authorized_writers"] as string[];
  stream.stream.owner_connected = true;
}

function data(view: View, envelope: Envelope): void {
  const stream = streamOf(view, envelope);
  if (stream) stream.stream.frames += 1;
}

function gap(view: View, envelope: Envelope): void {
  countFrames(view, envelope.payload["stream_id"] as string, envelope.payload["dropped"] as number);
}

function countFrames(view: View, streamId: string, count: number): void {
  const stream = view.streams.get(streamId);
  if (stream) stream.stream.frames += count;
}

/** The id of the stream that an envelope concerns. The gateway has completed the reference before it sent the envelope. */
export function referenced(envelope: Envelope): string | null {
  const reference = envelope.payload?.["stream"];
  if (reference === null || typeof reference !== "object" || Array.isArray(reference)) return null;
  const id = reference["stream_id"];
  return typeof id === "string" ? id : null;
}

function streamOf(view: View, envelope: Envelope): StreamEntry | undefined {
  const id = referenced(envelope);
  return id === null ? undefined : view.streams.get(id);
}

/** The entry of a proposal, built from its envelope. */
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

/** The votes of a kicked participant do not count. */
function removeVotes(view: View, id: string): void {
  for (const entry of view.proposals?.values() ?? []) {
    if (entry.votes.includes(id)) view.proposals!.set(entry.position, { ...entry, votes: entry.votes.filter((voter) => voter !== id) });
  }
}

/** The position of the proposal that an envelope ends: from the stamp of a participant's envelope, or the gateway's payload. */
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
