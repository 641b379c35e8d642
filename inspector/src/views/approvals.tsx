// Proposals: a participant asks others to do what it may not do. Participants with the capability decide here.
//
// Open proposals come from the space's state. The outcomes of other proposals are those that this page has seen.

import { useLayoutEffect, useMemo } from "preact/hooks";
import type { Proposal } from "../model/proposals";
import { LayoutMonitor, LayoutContext } from "../ui/layout";
import { useTopics } from "../ui/hooks";
import { EmptyState, Name } from "../ui/parts";
import * as formatting from "../ui/formatting";
import { ProposalCard } from "./proposal";

const MAX_DECIDED = 50;
const MAX_TITLE = 200;
const MAX_REASON = 1000;

export function Approvals() {
  const session = useTopics("proposals", "history", "phase");
  const waiting = session.openProposals();
  const decided = session.proposals.decided().slice(0, MAX_DECIDED);
  const layout = useMemo(() => new LayoutMonitor(), []);
  // The banner above appears and disappears with the connection.
  useLayoutEffect(() => layout.changed(0), [session.phaseNow, session.past.state]);
  return (
    <LayoutContext.Provider value={layout}>
      <div class="view approvals">
        <header class="view-head">
          <h1>Approvals</h1>
          <span class="soft">{waiting.length} waiting</span>
        </header>
        {!session.canAct && waiting.length > 0 && <p class="notice">An observer only reads. Sign in with a participant’s token to decide.</p>}
        {waiting.length ? (
          <ul class="cards">
            {waiting.map((entry) => (
              <li key={entry.position}>
                <ProposalCard entry={entry} />
              </li>
            ))}
          </ul>
        ) : (
          <NoProposals isListed={session.view.proposals !== null} />
        )}
        {decided.length > 0 && <Decided proposals={decided} />}
      </div>
    </LayoutContext.Provider>
  );
}

/** Without access to the list of open proposals, the page must not claim that there are none. */
function NoProposals({ isListed }: { isListed: boolean }) {
  if (!isListed) return <EmptyState title="No open proposal was seen">The gateway lists open proposals only for participants that may send some mcp/request.</EmptyState>;
  return <EmptyState title="No open proposals">A proposal appears here when a participant proposes an action that it may not do itself.</EmptyState>;
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
              <th scope="col">Action</th>
              <th scope="col">Proposed by</th>
              <th scope="col">Outcome</th>
            </tr>
          </thead>
          <tbody>
            {proposals.map((proposal) => (
              <tr key={proposal.entry.position}>
                <td>{formatting.clock(proposal.time, false)}</td>
                <td class="verbatim">{formatting.oneLine(proposal.title, MAX_TITLE)}</td>
                <td>
                  <Name id={proposal.entry.from} />
                </td>
                <td>
                  <Outcome proposal={proposal} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

const ENDED: { [state: string]: string } = {
  expired: "expired: no decision in time",
  dropped: "dropped: its proposer had too many open proposals",
  kicked: "closed: its proposer was removed",
  left: "closed: its proposer left",
};

function Outcome({ proposal: { state, by, reason } }: { proposal: Proposal }) {
  return (
    <>
      <span class={state === "approved" ? "good" : state === "rejected" ? "bad" : "soft"}>{ENDED[state] ?? state}</span>
      {by !== null && (
        <>
          {" "}
          by <bdi class="verbatim">{formatting.oneLine(by)}</bdi>
        </>
      )}
      {reason && <bdi class="soft verbatim"> · {formatting.oneLine(reason, MAX_REASON)}</bdi>}
    </>
  );
}
