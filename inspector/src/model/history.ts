// The history of a space: its events, the owners of its streams, its proposals, its pauses. `fold.ts` has the present.

import type { Envelope } from "./fold";
import { Ledger, type NewEvent } from "./ledger";
import { Ownership } from "./ownership";
import { Pauses } from "./pauses";
import { Proposals } from "./proposals";
import type { JournalExcerpt } from "./excerpt";

export class SpaceHistory {
  readonly ledger = new Ledger();
  readonly ownership = new Ownership();
  readonly proposals = new Proposals();
  pauses = new Pauses();

  /** Add an envelope that was just received. */
  update(envelope: Envelope, event: NewEvent): void {
    this.pauses.update(envelope, event.time);
    this.ownership.update(envelope, event.time);
    this.proposals.update(envelope, event.time);
    this.ledger.add(event);
  }

  /** Add an earlier part of the journal. */
  addEarlier(excerpt: JournalExcerpt): void {
    this.ledger.prepend(excerpt.events, excerpt.complete);
    this.ownership.addEarlier(excerpt.ownership);
    this.proposals.addEarlier(excerpt.proposals);
    this.pauses.addEarlier(excerpt.pauses);
  }
}
