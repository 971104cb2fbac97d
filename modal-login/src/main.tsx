import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

import { App } from "./app";
import { Boundary } from "./boundary";
import "./style/base.css";
import "./style/frame.css";
import "./style/parts.css";
import "./style/tables.css";
import "./style/charts.css";
import "./style/overview.css";
import "./style/pages.css";

const root = document.getElementById("page");
if (root !== null) {
  createRoot(root).render(
    <StrictMode>
      <Boundary>
        <App />
      </Boundary>
    </StrictMode>,
  );
}
