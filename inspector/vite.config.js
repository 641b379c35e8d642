// How the page is built: one script and one sheet of styles, named by their contents, with addresses relative to the
// page, so that a proxy may serve the gateway under a path of its own.
import { defineConfig } from "vite";

export default defineConfig({
  base: "./",
  build: {
    target: "es2023",
    cssTarget: ["chrome123", "firefox120", "safari17.5"],
    outDir: process.env.MEW_INSPECTOR_OUT ?? "../src/mew/inspector/static",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: false,
    reportCompressedSize: false,
    license: { fileName: "licenses.md" },
    rolldownOptions: { output: { entryFileNames: "assets/[name]-[hash].js", assetFileNames: "assets/[name]-[hash][extname]" } },
  },
});
