"""`callboard codex`, `claude`, `gemini` and `qwen`: other programs, set up to use the gateway."""
