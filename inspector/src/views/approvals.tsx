// Proposals: what somebody may not do and asks others to do. Whoever may, decides here.

import { useState } from "preact/hooks";
import { parseExact } from "../model/frames";
import type { JsonObject } from "../model/fold";
import type { Proposal } from "../model/proposals";
import type { Draft } from "../net/http";
import { useExplained, usePulse, useSession, useTopics } from "../ui/hooks";
import { Doing, Empty, Name, Pick } from "../ui/parts";
import { Tree } from "../ui/tree";
import * as words from "../ui/words";

const MOST_DECIDED = 50;

export function Approvals() {
  const session = useTopics("proposals", "history");
  usePulse(1000);
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

function describe(proposal: Proposal): { method: string; tool: string; params: JsonObject } {
  const { method, params } = proposal.envelope.payload as { method?: unknown; params?: unknown };
  const given = params !== null && typeof params === "object" && !Array.isArray(params) ? (params as JsonObject) : {};
  return { method: String(method ?? ""), tool: typeof given["name"] === "string" ? given["name"] : "", params: given };
}

function Waiting({ proposal }: { proposal: Proposal }) {
  const session = useSession();
  const { envelope } = proposal;
  const { method, tool } = describe(proposal);
  const payload = parseExact(proposal.text) as { payload?: unknown } | undefined;
  return (
    <article class="panel card" aria-label={`Proposal of ${envelope.from}`}>
      <header class="panel-head">
        <h2 class="said">{tool || method || "proposal"}</h2>
        <span class="soft">
          proposed by{" "}
          <Name id={envelope.from} />
          {envelope.to?.length ? (
            <>
              {" "}
              to <bdi class="said">{envelope.to.join(", ")}</bdi>
            </>
          ) : null}
          , {words.ago(session.now() - proposal.time)} ago
        </span>
      </header>
      <div class="code">
        <Tree value={payload?.payload ?? envelope.payload} open={4} />
      </div>
      {session.acts && <Decide proposal={proposal} />}
    </article>
  );
}

function Decide({ proposal }: { proposal: Proposal }) {
  const session = useTopics("space");
  const { envelope } = proposal;
  const me = session.view.you.id;
  const [to, setTo] = useState(envelope.to?.length === 1 ? envelope.to[0]! : "");
  const [reason, setReason] = useState("");
  const { method, tool } = describe(proposal);
  const named = to ? [to] : (envelope.to ?? []);
  const request: Draft = {
    kind: "mcp/request",
    ...(named.length ? { to: named } : {}),
    correlation_id: [envelope.id],
    payload: envelope.payload,
  };
  // What would have let the proposer ask by itself.
  const pattern: JsonObject = { kind: "mcp/request", payload: tool ? { method, params: { name: tool } } : { method } };
  const grant: Draft = {
    kind: "capability/grant",
    payload: { recipient: envelope.from, capabilities: [pattern], reason: "approved in the inspector" },
  };
  const reject: Draft = {
    kind: "mcp/reject",
    to: [envelope.from],
    correlation_id: [envelope.id],
    payload: reason.trim() ? { reason: reason.trim() } : {},
  };
  const own = envelope.from === me;
  const [mayRequest, mayGrant, mayReject] = useExplained([request, grant, { ...reject, payload: {} }]).map((each) => each?.allowed === true);
  const send = (draft: Draft): Promise<unknown> => session.door.send(me, draft);
  if (own) return <p class="soft">You proposed this yourself; somebody else decides.</p>;
  if (!mayRequest && !mayReject) return <p class="soft">You may neither approve nor reject this.</p>;
  const nobody = !named.length;
  return (
    <div class="decide">
      {mayRequest && !envelope.to?.length && (
        <Pick label="Ask whom" options={[...session.view.participants.keys()]} value={to} onPick={setTo} />
      )}
      {mayRequest && <Doing label="Approve" tone="primary" disabled={nobody} work={() => send(request)} />}
      {mayRequest && mayGrant && (
        <Doing label="Approve and grant" disabled={nobody} work={() => send(grant).then(() => send(request))} />
      )}
      {mayReject && (
        <span class="reject">
          <input aria-label="Why not" placeholder="Why not (optional)" value={reason} onInput={(event) => setReason(event.currentTarget.value)} />
          <Doing label="Reject" tone="danger" work={() => send(reject)} />
        </span>
      )}
      {mayRequest && mayGrant && (
        <p class="soft hint">
          “Approve and grant” also lets {envelope.from} do this by itself from now on: <code class="said">{JSON.stringify(pattern)}</code>
        </p>
      )}
    </div>
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
                <td class="said">{describe(each).tool || describe(each).method}</td>
                <td>
                  <Name id={each.envelope.from} />
                </td>
                <td>
                  <span class={each.state === "approved" ? "good" : each.state === "rejected" ? "bad" : "soft"}>{each.state}</span> by{" "}
                  <bdi class="said">{each.by}</bdi>
                  {each.reason && <bdi class="soft said"> · {each.reason}</bdi>}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
