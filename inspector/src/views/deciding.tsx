// The buttons of an open proposal. What is sent is what was shown: it names the position and the digest that were seen.

import { useState } from "preact/hooks";
import type { JSX, RefObject } from "preact";
import type { JsonObject, OpenProposal } from "../model/fold";
import { sentOf, toolIn } from "../model/proposals";
import type { Draft } from "../net/http";
import { type Answers, useExplained } from "../ui/explained";
import { useInert } from "../ui/ground";
import { useSession, useTopics } from "../ui/hooks";
import { Doing, Pick } from "../ui/parts";
import * as words from "../ui/words";

const HOUR = 3600;
const SPANS: readonly [label: string, seconds: number][] = [
  ["15 minutes", HOUR / 4],
  ["one hour", HOUR],
  ["8 hours", 8 * HOUR],
  ["one day", 24 * HOUR],
  ["until it is revoked", 0],
];
/** In a capability these are no letters, and nothing makes them letters. */
const PATTERN = /[*!]/;

interface Deciding {
  box: RefObject<Element | null>;
  entry: OpenProposal;
  payload: JsonObject;
  /** What is not in view is not asked about. */
  seen: boolean;
}

export function Decide(deciding: Deciding) {
  const session = useTopics("space");
  const { entry } = deciding;
  const [to, setTo] = useState("");
  const [reason, setReason] = useState("");
  if (entry.from === session.view.you.id) return <Own {...deciding} />;
  const named = entry.to.length ? entry.to : to ? [to] : [];
  return (
    <div class="decide">
      {!entry.to.length && <Pick label="Ask whom" options={[...session.view.participants.keys()]} value={to} onPick={setTo} />}
      <Buttons key={to} {...deciding} named={named} reason={reason} onReason={setReason} />
    </div>
  );
}

type Button = (label: string, work: () => Promise<unknown>, tone?: "primary" | "danger") => JSX.Element;

/** Buttons that do nothing while they have not stood still, or come too late. */
function useButton({ box, entry }: Deciding, answers: Answers, offered: unknown): Button {
  useTopics("phase");
  const shape = JSON.stringify([entry.position, entry.digest, offered, answers.map((each) => [each?.allowed, each?.error])]);
  const isInert = useInert(box, entry.position, shape, Date.parse(entry.expires_at));
  const inert = isInert();
  return (label, work, tone) => (
    <Doing label={label} {...(tone ? { tone } : {})} disabled={inert} work={() => (isInert() ? Promise.resolve() : work())} />
  );
}

function Own(deciding: Deciding) {
  const session = useSession();
  const { withdraw } = draftsOf(deciding.entry, [], deciding.payload);
  const answers = useExplained([withdraw], deciding.seen);
  const button = useButton(deciding, answers, "own");
  return (
    <div class="decide">
      <p class="soft">You proposed this yourself; somebody else decides.</p>
      {answers[0]?.allowed && button("Withdraw", () => session.send(withdraw))}
    </div>
  );
}

interface Choosing extends Deciding {
  /** Whom to ask; nobody yet where the proposal does not say and nobody was picked. */
  named: string[];
  reason: string;
  onReason: (reason: string) => void;
}

function Buttons(choosing: Choosing) {
  const session = useSession();
  const { entry, payload, seen, named, reason, onReason } = choosing;
  const [span, setSpan] = useState(HOUR);
  const { request, reject, vote } = draftsOf(entry, named, payload);
  const grant = grantFor(entry, named, payload, span);
  const answers = useExplained([reject, named.length ? request : null, vote, grant], seen);
  const [mayReject, mayRequest, mayVote, mayGrant] = answers.map((each) => each?.allowed === true);
  const needsVotes = answers[1]?.error === "approval_required";
  const button = useButton(choosing, answers, [named, span, entry.votes]);
  const approve = (): Promise<unknown> => session.send(request);
  if (!answers.length) return null;
  return (
    <>
      {mayRequest && button("Approve", approve, "primary")}
      {mayRequest && mayGrant && grant && button("Approve and grant", () => approve().then(() => session.send(grant)))}
      {!mayRequest && needsVotes && mayVote && !entry.votes.includes(session.view.you.id) && button("Vote for it", () => session.send(vote), "primary")}
      {mayReject && (
        <span class="reject">
          <input aria-label="Why not" placeholder="Why not (optional)" value={reason} onInput={(event) => onReason(event.currentTarget.value)} />
          {button("Reject", () => session.send(reason.trim() ? { ...reject, payload: { reason: reason.trim() } } : reject), "danger")}
        </span>
      )}
      {!mayRequest && <WhyNot named={named} isOpen={!entry.to.length} needsVotes={needsVotes} mayReject={mayReject === true} />}
      {entry.votes.length > 0 && <p class="soft hint">Votes for it: {words.shown(entry.votes.join(", "))}</p>}
      {mayRequest && !grant && <NoGrant />}
      {mayRequest && grant && mayGrant && <Granting entry={entry} named={named} payload={payload} span={span} onPick={setSpan} />}
    </>
  );
}

function draftsOf(entry: OpenProposal, named: string[], payload: JsonObject) {
  const about = { correlation_id: [entry.id] };
  const claimed = { ...about, proposal: { position: entry.position, digest: entry.digest } };
  const request: Draft = { kind: "mcp/request", to: named, payload: sentOf(payload), ...claimed };
  const vote: Draft = { kind: "mcp/approve", payload: {}, ...claimed };
  const reject: Draft = { kind: "mcp/reject", to: [entry.from], payload: {}, ...about };
  const withdraw: Draft = { kind: "mcp/withdraw", payload: {}, ...about };
  return { request, vote, reject, withdraw };
}

/** What would have let the proposer ask by itself, and no more; null where a name would be read as a pattern. */
function grantFor(entry: OpenProposal, named: string[], payload: JsonObject, span: number): Draft | null {
  const tool = toolIn(payload);
  const isCall = entry.method === "tools/call";
  if (!named.length || (isCall && tool === null) || [entry.method, tool ?? "", ...named].some((each) => PATTERN.test(each))) return null;
  const pattern: JsonObject = isCall ? { method: entry.method, params: { name: tool } } : { method: entry.method };
  const capability: JsonObject = { kind: "mcp/request", to: named, payload: pattern };
  const end = span ? { timeout_seconds: span } : {};
  const reason = "approved in the inspector";
  return { kind: "capability/grant", payload: { recipient: entry.from, capabilities: [capability], reason, ...end } };
}

function WhyNot({ named, isOpen, needsVotes, mayReject }: { named: string[]; isOpen: boolean; needsVotes: boolean; mayReject: boolean }) {
  if (!named.length) return mayReject ? null : <p class="soft">Choose whom to ask.</p>;
  if (needsVotes) return <p class="soft">This needs more votes before it can be approved.</p>;
  if (isOpen) return <p class="soft">You may not ask {words.shown(named[0]!)} for this.</p>;
  return <p class="soft">You may {mayReject ? "not approve" : "neither approve nor reject"} this.</p>;
}

interface Grant {
  entry: OpenProposal;
  named: string[];
  payload: JsonObject;
  span: number;
  onPick: (seconds: number) => void;
}

/** In words, what the proposer could do from then on. */
function Granting({ entry, named, payload, span, onPick }: Grant) {
  const tool = toolIn(payload);
  const what = tool === null ? `send requests of the method “${words.shown(entry.method)}”` : `call the tool “${words.shown(tool)}”`;
  return (
    <p class="soft hint">
      “Approve and grant” also lets <bdi class="said">{words.shown(entry.from)}</bdi> <bdi class="said">{what}</bdi> of{" "}
      <bdi class="said">{words.shown(named.join(" or "))}</bdi> by itself, with any arguments,{" "}
      <select aria-label="For how long" value={String(span)} onChange={(event) => onPick(Number(event.currentTarget.value))}>
        {SPANS.map(([label, seconds]) => (
          <option key={seconds} value={String(seconds)}>
            {seconds ? `for ${label}` : label}
          </option>
        ))}
      </select>
      .
    </p>
  );
}

function NoGrant() {
  return <p class="soft hint">This cannot be granted for longer: a name in it is missing or holds * or !, which a capability reads as a pattern.</p>;
}
