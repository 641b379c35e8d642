// What is remembered of a space beyond how it is now: what was said, who owned what, what waits, who is paused.

import type { Envelope } from "./fold";
import { Ledger, type Told } from "./ledger";
import { Ownership } from "./ownership";
import { Pauses } from "./pauses";
import { Proposals } from "./proposals";
import type { Recall } from "./recall";

export class Books {
  readonly ledger = new Ledger();
  readonly ownership = new Ownership();
  readonly proposals = new Proposals();
  pauses = new Pauses();

  /** An envelope that came now. */
  heed(envelope: Envelope, event: Told): void {
    this.pauses.heed(envelope, event.time);
    this.ownership.heed(envelope, event.time);
    this.proposals.heed(envelope, event.time);
    this.ledger.add(event);
  }

  /** What was before all there is. */
  absorb(recall: Recall): void {
    this.ledger.prepend(recall.events, recall.whole);
    this.ownership.absorb(recall.ownership);
    this.proposals.absorb(recall.proposals);
    this.pauses.absorb(recall.pauses);
  }
}
