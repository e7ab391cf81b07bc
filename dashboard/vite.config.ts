import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

const service = process.env.ACKER_SERVICE ?? "http://127.0.0.1:8080";

export default defineConfig({
  plugins: [react()],
  // The service's policy allows no data: scripts or fonts, and its files are few.
  build: {
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: "es2022",
    chunkSizeWarningLimit: 800,
  },
  server: { proxy: { "/api": service } },
});
