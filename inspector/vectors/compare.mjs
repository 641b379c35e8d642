// Compares the page's fold with `mew.view`, envelope by envelope: node vectors/compare.mjs fold.json
// `python -m tools.inspector_vectors fold.json` writes the file. Prints each difference, and exits with 1 if there is one.
import { readFileSync } from "node:fs";
import { isDeepStrictEqual } from "node:util";
import { vite } from "./sources.mjs";

let wrong = 0;
let steps = 0;
try {
  const { apply, applyFrame, emptyView } = await vite.ssrLoadModule("/src/model/fold.ts");
  const dumped = (view) => ({
    you: view.you,
    participants: [...view.participants.values()],
    streams: [...view.streams.values()],
    position: view.position,
    proposals: view.proposals && [...view.proposals.values()],
  });
  for (const { name, steps: all } of JSON.parse(readFileSync(process.argv[2], "utf8"))) {
    const view = emptyView();
    for (const [index, step] of all.entries()) {
      if ("frame" in step) applyFrame(view, step.frame);
      else apply(view, JSON.parse(step.envelope));
      steps += 1;
      if (isDeepStrictEqual(structuredClone(dumped(view)), step.view)) continue;
      wrong += 1;
      console.error(`${name}, step ${index}: ${step.envelope ?? step.frame}`);
      console.error(`  is     ${JSON.stringify(dumped(view))}\n  not    ${JSON.stringify(step.view)}`);
      break;
    }
  }
} finally {
  await vite.close();
}
console.log(`${steps} steps, ${wrong} wrong`);
process.exit(wrong ? 1 : 0);
