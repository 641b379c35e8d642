// Loads the page's sources as Node modules, through the bundler of the page. The importing script must close it.
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { createServer } from "vite";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");

export const vite = await createServer({
  root,
  configFile: false,
  appType: "custom",
  logLevel: "error",
  // One folder per process, because two can run concurrently.
  cacheDir: join(root, "node_modules", `.vite-vectors-${process.pid}`),
  optimizeDeps: { noDiscovery: true },
  server: { middlewareMode: true, watch: null, ws: false },
});
