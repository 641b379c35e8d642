// The page's sources as modules of Node, through the builder that makes the page of them. Whoever imports this closes it.
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { createServer } from "vite";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");

export const vite = await createServer({
  root,
  configFile: false,
  appType: "custom",
  logLevel: "error",
  // Of each process its own: two may run at the same time.
  cacheDir: join(root, "node_modules", `.vite-vectors-${process.pid}`),
  optimizeDeps: { noDiscovery: true },
  server: { middlewareMode: true, watch: null, ws: false },
});
