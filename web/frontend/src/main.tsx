import { signal } from "@preact/signals";
import { render } from "preact";

const cluster = signal("Reprieve");
render(<h1>{cluster}</h1>, document.getElementById("page")!);
