// Charts: Chart.js, last released October 2026; uPlot is a third of its size, but its last release was May 2025. Of
// Chart.js only lines are registered (src/charts/setup.ts), which is 158 of its 210 kB.
import { defineConfig } from "vite";

export default defineConfig({
  build: {
    outDir: "../codezero/login/static",
    emptyOutDir: true,
    license: { fileName: "licenses.txt" }, // MIT asks for the notice of what is bundled
    target: "es2023",
    assetsInlineLimit: 0, // files, never data: addresses
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  server: { host: "localhost", proxy: { "/api": "http://localhost:3000" } },
});
