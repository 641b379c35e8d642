// The buttons of an open proposal. A decision carries the position and the digest of the proposal that was shown.

import { useState } from "preact/hooks";
import type { JSX, RefObject } from "preact";
import type { JsonObject, OpenProposal } from "../model/fold";
import { sentOf, toolIn } from "../model/proposals";
import type { Draft } from "../net/http";
import { type Answers, useExplained } from "../ui/explained";
import { useInert } from "../ui/layout";
import { useSession, useTopics } from "../ui/hooks";
import { ActionButton, ParticipantSelect } from "../ui/parts";
import * as formatting from "../ui/formatting";

const HOUR = 3600;
const SPANS: readonly [label: string, seconds: number][] = [
  ["15 minutes", HOUR / 4],
  ["one hour", HOUR],
  ["8 hours", 8 * HOUR],
  ["one day", 24 * HOUR],
  ["until it is revoked", 0],
];
/** A capability treats these characters as patterns, and they cannot be escaped. */
const PATTERN = /[*!]/;

interface DecideProps {
  box: RefObject<Element | null>;
  entry: OpenProposal;
  payload: JsonObject;
  /** Whether the card is visible; explanations are requested only then. */
  visible: boolean;
}

export function Decide(props: DecideProps) {
  const session = useTopics("space");
  const { entry } = props;
  const [to, setTo] = useState("");
  const [reason, setReason] = useState("");
  if (entry.from === session.view.you.id) return <OwnProposal {...props} />;
  const recipients = entry.to.length ? entry.to : to ? [to] : [];
  return (
    <div class="decide">
      {!entry.to.length && <ParticipantSelect label="Recipient" options={[...session.view.participants.keys()]} value={to} onPick={setTo} />}
      <Buttons key={to} {...props} recipients={recipients} reason={reason} onReason={setReason} />
    </div>
  );
}

type Button = (label: string, work: () => Promise<unknown>, tone?: "primary" | "danger") => JSX.Element;

/** Buttons that do nothing while the layout settles, and shortly before the proposal ends. */
function useButton({ box, entry }: DecideProps, answers: Answers, offered: unknown): Button {
  useTopics("phase");
  const shape = JSON.stringify([entry.position, entry.digest, offered, answers.map((answer) => [answer?.allowed, answer?.error])]);
  const isInert = useInert(box, entry.position, shape, Date.parse(entry.expires_at));
  const inert = isInert();
  return (label, work, tone) => (
    <ActionButton label={label} {...(tone ? { tone } : {})} disabled={inert} work={() => (isInert() ? Promise.resolve() : work())} />
  );
}

function OwnProposal(props: DecideProps) {
  const session = useSession();
  const { withdraw } = draftsOf(props.entry, [], props.payload);
  const answers = useExplained([withdraw], props.visible);
  const button = useButton(props, answers, "own");
  return (
    <div class="decide">
      <p class="soft">This is your own proposal. Another participant decides.</p>
      {answers[0]?.allowed && button("Withdraw", () => session.send(withdraw))}
    </div>
  );
}

interface ButtonsProps extends DecideProps {
  /** The recipients of the request; empty if the proposal names none and none is selected. */
  recipients: string[];
  reason: string;
  onReason: (reason: string) => void;
}

function Buttons(props: ButtonsProps) {
  const session = useSession();
  const { entry, payload, visible, recipients, reason, onReason } = props;
  const [span, setSpan] = useState(HOUR);
  const { request, reject, vote } = draftsOf(entry, recipients, payload);
  const grant = grantFor(entry, recipients, payload, span);
  const answers = useExplained([reject, recipients.length ? request : null, vote, grant], visible);
  const [mayReject, mayRequest, mayVote, mayGrant] = answers.map((answer) => answer?.allowed === true);
  const needsVotes = answers[1]?.error === "approval_required";
  const button = useButton(props, answers, [recipients, span, entry.votes]);
  const approve = (): Promise<unknown> => session.send(request);
  if (!answers.length) return null;
  return (
    <>
      {mayRequest && button("Approve", approve, "primary")}
      {mayRequest && mayGrant && grant && button("Approve and grant", () => approve().then(() => session.send(grant)))}
      {!mayRequest && needsVotes && mayVote && !entry.votes.includes(session.view.you.id) && button("Vote for it", () => session.send(vote), "primary")}
      {mayReject && (
        <span class="reject">
          <input aria-label="Reason" placeholder="Reason (optional)" value={reason} onInput={(event) => onReason(event.currentTarget.value)} />
          {button("Reject", () => session.send(reason.trim() ? { ...reject, payload: { reason: reason.trim() } } : reject), "danger")}
        </span>
      )}
      {!mayRequest && <WhyNot recipients={recipients} isOpen={!entry.to.length} needsVotes={needsVotes} mayReject={mayReject === true} />}
      {entry.votes.length > 0 && <p class="soft hint">Votes for it: {formatting.oneLine(entry.votes.join(", "))}</p>}
      {mayRequest && !grant && <NoGrant />}
      {mayRequest && grant && mayGrant && <GrantHint entry={entry} recipients={recipients} payload={payload} span={span} onPick={setSpan} />}
    </>
  );
}

function draftsOf(entry: OpenProposal, recipients: string[], payload: JsonObject) {
  const correlation = { correlation_id: [entry.id] };
  const stamped = { ...correlation, proposal: { position: entry.position, digest: entry.digest } };
  const request: Draft = { kind: "mcp/request", to: recipients, payload: sentOf(payload), ...stamped };
  const vote: Draft = { kind: "mcp/approve", payload: {}, ...stamped };
  const reject: Draft = { kind: "mcp/reject", to: [entry.from], payload: {}, ...correlation };
  const withdraw: Draft = { kind: "mcp/withdraw", payload: {}, ...correlation };
  return { request, vote, reject, withdraw };
}

/** The narrowest grant that allows the proposer to do the same; null if a name would be read as a pattern. */
function grantFor(entry: OpenProposal, recipients: string[], payload: JsonObject, span: number): Draft | null {
  const tool = toolIn(payload);
  const isCall = entry.method === "tools/call";
  if (!recipients.length || (isCall && tool === null) || [entry.method, tool ?? "", ...recipients].some((name) => PATTERN.test(name))) return null;
  const pattern: JsonObject = isCall ? { method: entry.method, params: { name: tool } } : { method: entry.method };
  const capability: JsonObject = { kind: "mcp/request", to: recipients, payload: pattern };
  const end = span ? { timeout_seconds: span } : {};
  const reason = "approved in the inspector";
  return { kind: "capability/grant", payload: { recipient: entry.from, capabilities: [capability], reason, ...end } };
}

function WhyNot({ recipients, isOpen, needsVotes, mayReject }: { recipients: string[]; isOpen: boolean; needsVotes: boolean; mayReject: boolean }) {
  if (!recipients.length) return mayReject ? null : <p class="soft">Choose a recipient.</p>;
  if (needsVotes) return <p class="soft">This needs more votes before it can be approved.</p>;
  if (isOpen) return <p class="soft">You may not send this request to {formatting.oneLine(recipients[0]!)}.</p>;
  return <p class="soft">You may {mayReject ? "not approve" : "neither approve nor reject"} this.</p>;
}

interface GrantHintProps {
  entry: OpenProposal;
  recipients: string[];
  payload: JsonObject;
  span: number;
  onPick: (seconds: number) => void;
}

/** Describes what the grant allows. */
function GrantHint({ entry, recipients, payload, span, onPick }: GrantHintProps) {
  const tool = toolIn(payload);
  const action = tool === null ? `send requests of the method “${formatting.oneLine(entry.method)}”` : `call the tool “${formatting.oneLine(tool)}”`;
  return (
    <p class="soft hint">
      “Approve and grant” also lets <bdi class="verbatim">{formatting.oneLine(entry.from)}</bdi> <bdi class="verbatim">{action}</bdi> of{" "}
      <bdi class="verbatim">{formatting.oneLine(recipients.join(" or "))}</bdi> by itself, with any arguments,{" "}
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
  return <p class="soft hint">This cannot be granted: a name is missing or contains * or !, which a capability treats as a pattern.</p>;
}
