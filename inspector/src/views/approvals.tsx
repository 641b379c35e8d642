// Proposals: what somebody may not do and asks others to do. Whoever may, decides here.

import { useMemo, useRef, useState } from "preact/hooks";
import { parseExact } from "../model/exact";
import type { JsonObject } from "../model/fold";
import type { Proposal } from "../model/proposals";
import type { Draft } from "../net/http";
import { useExplained } from "../ui/explained";
import { useInView, useSession, useTopics } from "../ui/hooks";
import { Ago, Doing, Empty, Name, Pick } from "../ui/parts";
import { MOST_READ, Tree } from "../ui/tree";
import * as words from "../ui/words";

const MOST_DECIDED = 50;
const MOST_NAMED = 200;
const MOST_REASON = 1000;

export function Approvals() {
  const session = useTopics("proposals", "history");
  const all = session.proposals.all();
  const waiting = all.filter((each) => each.state === "waiting");
  const decided = all.filter((each) => each.state !== "waiting").slice(0, MOST_DECIDED);
  return (
    <div class="view approvals">
      <header class="view-head">
        <h1>Approvals</h1>
        <span class="soft">{waiting.length} waiting</span>
      </header>
      {!session.acts && waiting.length > 0 && <p class="notice">An observer only looks. Sign in with a participant’s token to decide.</p>}
      {waiting.length ? (
        <ul class="cards">
          {waiting.map((each) => (
            <li key={each.envelope.id}>
              <Waiting proposal={each} />
            </li>
          ))}
        </ul>
      ) : (
        <Empty title="Nothing waits for approval">A proposal appears here when a participant asks for what it may not do itself.</Empty>
      )}
      {decided.length > 0 && <Decided proposals={decided} />}
    </div>
  );
}

function describe(proposal: Proposal): { method: string; tool: string; title: string } {
  const { method, params } = proposal.envelope.payload as { method?: unknown; params?: unknown };
  const given = params !== null && typeof params === "object" && !Array.isArray(params) ? (params as JsonObject) : {};
  const found = { method: String(method ?? ""), tool: typeof given["name"] === "string" ? given["name"] : "" };
  return { ...found, title: words.cut(found.tool || found.method, MOST_NAMED) };
}

/** What is proposed, its numbers as they were written: what is shown is what is sent. */
function exactly(proposal: Proposal): JsonObject {
  const read = parseExact(proposal.text) as { payload?: JsonObject } | undefined;
  return read?.payload ?? proposal.envelope.payload;
}

function Waiting({ proposal }: { proposal: Proposal }) {
  const session = useSession();
  const { envelope } = proposal;
  const box = useRef<HTMLElement>(null);
  const seen = useInView(box);
  const met = useRef(false);
  met.current ||= seen;
  const large = proposal.text.length > MOST_READ;
  const payload = useMemo(() => (large ? envelope.payload : exactly(proposal)), [proposal]);
  // Made once, and when it is first looked at: a proposal may be megabytes, and there may be hundreds.
  const tree = useMemo(() => met.current && <Tree value={payload} open={4} />, [payload, met.current]);
  return (
    <article ref={box} class="panel card" aria-label={`Proposal of ${envelope.from}`}>
      <header class="panel-head">
        <h2 class="said">{describe(proposal).title || "proposal"}</h2>
        <span class="soft">
          proposed by{" "}
          <Name id={envelope.from} />
          {envelope.to?.length ? (
            <>
              {" "}
              to <bdi class="said">{words.cut(envelope.to.join(", "), MOST_NAMED)}</bdi>
            </>
          ) : null}
          , <Ago time={proposal.time} />
        </span>
      </header>
      {large && <p class="notice">This is large, {words.count(proposal.text.length)} characters: not all of it is opened here.</p>}
      <div class="code">{tree}</div>
      {session.acts && <Decide proposal={proposal} payload={payload} seen={seen} />}
    </article>
  );
}

interface Deciding {
  proposal: Proposal;
  payload: JsonObject;
  /** What is not in view is not asked about. */
  seen: boolean;
}

function Decide({ proposal, payload, seen }: Deciding) {
  const session = useTopics("space");
  const { envelope } = proposal;
  const [to, setTo] = useState("");
  const [reason, setReason] = useState("");
  const reject: Draft = { kind: "mcp/reject", to: [envelope.from], correlation_id: [envelope.id], payload: {} };
  const own = envelope.from === session.view.you.id;
  const [rejecting] = useExplained([reject], seen && !own);
  if (own) return <p class="soft">You proposed this yourself; somebody else decides.</p>;
  const open = !envelope.to?.length;
  const named = open ? (to ? [to] : []) : envelope.to!;
  const mayReject = rejecting === undefined ? undefined : rejecting?.allowed === true;
  return (
    <div class="decide">
      {open && <Pick label="Ask whom" options={[...session.view.participants.keys()]} value={to} onPick={setTo} />}
      <Approve key={to} proposal={proposal} payload={payload} seen={seen} named={named} mayReject={mayReject} />
      {mayReject && (
        <span class="reject">
          <input aria-label="Why not" placeholder="Why not (optional)" value={reason} onInput={(event) => setReason(event.currentTarget.value)} />
          <Doing label="Reject" tone="danger" work={() => session.send(reason.trim() ? { ...reject, payload: { reason: reason.trim() } } : reject)} />
        </span>
      )}
    </div>
  );
}

interface Approving extends Deciding {
  /** Whom to ask; nobody yet where the proposal does not say and nobody was picked. */
  named: string[];
  mayReject: boolean | undefined;
}

function Approve({ proposal, payload, seen, named, mayReject }: Approving) {
  const session = useSession();
  const { envelope } = proposal;
  const { method, tool } = describe(proposal);
  const request: Draft = { kind: "mcp/request", to: named, correlation_id: [envelope.id], payload };
  // What would have let the proposer ask by itself.
  const pattern: JsonObject = { kind: "mcp/request", payload: tool ? { method, params: { name: tool } } : { method } };
  const grant: Draft = {
    kind: "capability/grant",
    payload: { recipient: envelope.from, capabilities: [pattern], reason: "approved in the inspector" },
  };
  const nobody = !named.length;
  const answers = useExplained([nobody ? null : request, grant], seen);
  const [mayRequest, mayGrant] = answers.map((each) => each?.allowed === true);
  const approve = (): Promise<unknown> => session.send({ ...request, payload: exactly(proposal) });
  if (!answers.length) return null;
  if (!nobody && !mayRequest) {
    if (!envelope.to?.length) return <p class="soft">You may not ask {named[0]} for this.</p>;
    return mayReject === undefined ? null : <p class="soft">You may {mayReject ? "not approve" : "neither approve nor reject"} this.</p>;
  }
  return (
    <>
      <Doing label="Approve" tone="primary" disabled={nobody} work={approve} />
      {mayGrant && <Doing label="Approve and grant" disabled={nobody} work={() => session.send(grant).then(approve)} />}
      {mayGrant && (
        <p class="soft hint">
          “Approve and grant” also lets {envelope.from} do this by itself from now on:{" "}
          <code class="said">{words.cut(JSON.stringify(pattern), MOST_NAMED)}</code>
        </p>
      )}
    </>
  );
}

function Decided({ proposals }: { proposals: Proposal[] }) {
  return (
    <section class="panel" aria-labelledby="decided-title">
      <header class="panel-head">
        <h2 id="decided-title">Decided</h2>
      </header>
      <div class="table-wrap" tabIndex={0} role="region" aria-label="Decided proposals">
        <table class="table">
          <thead>
            <tr>
              <th scope="col">Time</th>
              <th scope="col">What</th>
              <th scope="col">Proposed by</th>
              <th scope="col">Outcome</th>
            </tr>
          </thead>
          <tbody>
            {proposals.map((each) => (
              <tr key={each.envelope.id}>
                <td>{words.clock(each.time, false)}</td>
                <td class="said">{describe(each).title}</td>
                <td>
                  <Name id={each.envelope.from} />
                </td>
                <td>
                  <span class={each.state === "approved" ? "good" : each.state === "rejected" ? "bad" : "soft"}>{each.state}</span> by{" "}
                  <bdi class="said">{each.by}</bdi>
                  {each.reason && <bdi class="soft said"> · {words.cut(each.reason, MOST_REASON)}</bdi>}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
