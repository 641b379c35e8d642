// Proposals: what somebody may not do and asks others to do. Whoever may, decides here.
//
// What is open is the space's state, as the gateway tells it; what became of the others is what was seen.

import { useLayoutEffect, useMemo } from "preact/hooks";
import type { Proposal } from "../model/proposals";
import { Ground, GroundContext } from "../ui/ground";
import { useTopics } from "../ui/hooks";
import { Empty, Name } from "../ui/parts";
import * as words from "../ui/words";
import { ProposalCard } from "./proposal";

const MOST_DECIDED = 50;
const MOST_NAMED = 200;
const MOST_REASON = 1000;

export function Approvals() {
  const session = useTopics("proposals", "history", "phase");
  const waiting = session.openProposals();
  const decided = session.proposals.decided().slice(0, MOST_DECIDED);
  const ground = useMemo(() => new Ground(), []);
  // The banner above comes and goes with the connection.
  useLayoutEffect(() => ground.moved(0), [session.phaseNow, session.past.state]);
  return (
    <GroundContext.Provider value={ground}>
      <div class="view approvals">
        <header class="view-head">
          <h1>Approvals</h1>
          <span class="soft">{waiting.length} waiting</span>
        </header>
        {!session.acts && waiting.length > 0 && <p class="notice">An observer only looks. Sign in with a participant’s token to decide.</p>}
        {waiting.length ? (
          <ul class="cards">
            {waiting.map((each) => (
              <li key={each.position}>
                <ProposalCard entry={each} />
              </li>
            ))}
          </ul>
        ) : (
          <Nothing isTold={session.view.proposals !== null} />
        )}
        {decided.length > 0 && <Decided proposals={decided} />}
      </div>
    </GroundContext.Provider>
  );
}

/** Who is not told the state must not read that there is nothing. */
function Nothing({ isTold }: { isTold: boolean }) {
  if (!isTold) return <Empty title="No open proposal was seen">The gateway lists open proposals only for those who may send some mcp/request.</Empty>;
  return <Empty title="Nothing waits for approval">A proposal appears here when a participant asks for what it may not do itself.</Empty>;
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
              <tr key={each.entry.position}>
                <td>{words.clock(each.time, false)}</td>
                <td class="said">{words.shown(each.title, MOST_NAMED)}</td>
                <td>
                  <Name id={each.entry.from} />
                </td>
                <td>
                  <Outcome proposal={each} />
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
  expired: "expired: nobody decided in time",
  dropped: "dropped: its proposer made too many",
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
          by <bdi class="said">{words.shown(by)}</bdi>
        </>
      )}
      {reason && <bdi class="soft said"> · {words.shown(reason, MOST_REASON)}</bdi>}
    </>
  );
}
