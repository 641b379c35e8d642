// Builds the page as one script and one style sheet, named by their content. URLs are relative to the page, so that a
// proxy can serve the gateway under a path.
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
