// The official client of AG-UI: one conversation with a tool, an approval, and a tool of its own.
import { createRequire } from "node:module";

const require = createRequire(process.env.MODULES + "/");
const { HttpAgent } = require("@ag-ui/client");

const warnings = [];
console.warn = (...words) => warnings.push(words.join(" "));
const agent = new HttpAgent({
  url: process.argv[2],
  headers: { Authorization: `Bearer ${process.env.KEY}` },
  threadId: "official",
  initialState: { user: "Ada" },
});
const tools = [
  {
    name: "confirm",
    description: "Ask the user.",
    parameters: { type: "object", properties: { what: { type: "string" } }, required: ["what"] },
  },
];
const types = [];
const run = async (text, options = {}) => {
  if (text) agent.addMessage({ id: `user-${agent.messages.length}`, role: "user", content: text });
  await agent.runAgent({ tools, ...options }, { onEvent: ({ event }) => void types.push(event.type) });
};

await run("add them");
await run("a room");
const interrupts = agent.pendingInterrupts;
await run("", {
  resume: interrupts.map(({ id }) => ({ interruptId: id, status: "resolved", payload: { approved: true } })),
});
await run("are you sure?");
const call = agent.messages.at(-1).toolCalls[0];
agent.addMessage({ id: "answer", role: "tool", toolCallId: call.id, content: "yes" });
await run("");
const { messages } = agent;
process.stdout.write(JSON.stringify({ interrupts, call, messages, types: [...new Set(types)], warnings }));
