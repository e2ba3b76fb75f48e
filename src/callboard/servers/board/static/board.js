// The script of the board. It inserts what the server has rendered, and appends text; it makes no HTML itself.
"use strict";

for (const form of document.querySelectorAll("form[data-send]")) form.requestSubmit();
