"""Small GGUF files for tests."""

import struct

LLAMA = {
    "general.architecture": "llama",
    "general.name": "Tiny",
    "llama.context_length": 4096,
    "llama.block_count": 2,
    "llama.embedding_length": 64,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "tokenizer.ggml.tokens": ["a", "b"],
    "tokenizer.chat_template": "{{ messages }}",
}


def text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def make_gguf(values=None, tail=b""):
    """The bytes of a file with this metadata and nothing else."""
    parts = []
    for key, value in (LLAMA if values is None else values).items():
        match value:
            case str():
                parts.append(text(key) + struct.pack("<I", 8) + text(value))
            case int():
                parts.append(text(key) + struct.pack("<II", 4, value))
            case [str(), *_]:
                parts.append(text(key) + struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value)))
            case _:
                parts.append(text(key) + struct.pack(f"<IIQ{len(value)}I", 9, 4, len(value), *value))
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(parts)) + b"".join(parts) + tail
