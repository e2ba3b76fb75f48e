import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.providers.local.gguf_files import LLAMA, make_gguf, text
from tests.tables import table

from callboard.errors import ModelFileError
from callboard.providers import open_model
from callboard.providers.local.gguf import Gguf, read_gguf
from callboard.providers.local.memory import Memory, choose_context, read_memory
from callboard.providers.local.model_files import known_models
from callboard.providers.local.recommendation import recommend, recommended_models
from callboard.providers.local.references import parse_reference

GB = 1 << 30


def test_the_head_of_a_file(tmp_path):
    file = tmp_path / "tiny.gguf"
    file.write_bytes(make_gguf())
    assert read_gguf(file, whole=True) == Gguf("Tiny", "", 4096, 2 * 2 * (16 + 16) * 2, "{{ messages }}")
    assert read_gguf(file).chat_template == ""
    file.write_bytes(make_gguf({"llama.attention.key_length": 32, **LLAMA, "llama.attention.head_count_kv": [2, 0]}))
    assert read_gguf(file).token_bytes == 2 * (32 + 16) * 2


HEAD = b"GGUF" + struct.pack("<IQQ", 3, 0, 1)


@table(
    ("content", "why"),
    [
        (b"", "it does not begin with GGUF"),
        (b"<html>", "it does not begin with GGUF"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), "version 3 with 1152921504606846976 keys"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 1), "version 50331648"),
        (HEAD, "it ends within its metadata"),
        (HEAD + struct.pack("<Q", 1 << 63), "it ends within its metadata"),
        (HEAD + text("a") + struct.pack("<I", 99), "type 99"),
        (HEAD + text("a") + struct.pack("<IIQ", 9, 9, 1), "an array of type 9"),
        (HEAD + text("a") + struct.pack("<IIQ", 9, 8, 1 << 40), "an array of 1099511627776 items"),
        (HEAD + text("a") + struct.pack("<IIQ", 9, 4, 9_000_000), "it ends within its metadata"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, content, why):
    file = tmp_path / "tiny.gguf"
    file.write_bytes(content)
    with pytest.raises(ModelFileError, match="not a GGUF file") as raised:
        read_gguf(file)
    assert why in str(raised.value)


@given(st.integers(0, 400), st.binary(min_size=1, max_size=8))
def test_no_damage_raises_another_error(tmp_path_factory, at, junk):
    file = tmp_path_factory.mktemp("damaged") / "tiny.gguf"
    whole = make_gguf()
    file.write_bytes(whole[:at] + junk + whole[at + len(junk) :])
    with suppress(ModelFileError):
        read_gguf(file, whole=True)


@table(
    ("window", "setting", "memory", "expected"),
    [
        (32768, 0, Memory(16 * GB, 12 * GB), "context 32,768 tokens, cache 0.9 GB"),
        (
            131072,
            0,
            Memory(8 * GB, 6 * GB),
            "context 65,536 tokens, cache 1.9 GB; the model can read 131,072, but 6.4 GB of memory are free",
        ),
        (
            32768,
            0,
            Memory(2 * GB, GB),
            "context 2,048 tokens, cache 0.1 GB; the model can read 32,768, but 1.1 GB of memory are free",
        ),
        (32768, 0, Memory(), "context 8,192 tokens, cache 0.2 GB"),
        (0, 0, Memory(16 * GB, 12 * GB), "context 8,192 tokens, cache 0.2 GB"),
        (32768, 16000, Memory(16 * GB, 12 * GB), "context 16,000 tokens, cache 0.5 GB"),
        (
            32768,
            99999,
            Memory(16 * GB, 12 * GB),
            "context 32,768 tokens, cache 0.9 GB; the model reads no more than 32,768",
        ),
        (
            32768,
            32768,
            Memory(2 * GB, GB),
            "context 32,768 tokens, cache 0.9 GB; it needs 2.1 GB of memory, and 1.1 GB are free",
        ),
    ],
)
def test_the_context_is_the_window_if_memory_is_sufficient(window, setting, memory, expected):
    assert str(choose_context(window, 28672, 1_117_000_000, setting, memory)) == expected


def test_a_container_has_the_memory_of_its_control_group(tmp_path):
    proc, group = tmp_path / "proc/self", tmp_path / "sys/fs/cgroup/jobs/one"
    proc.mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 64000000 kB\nMemFree: 1 kB\nMemAvailable: 50000000 kB\n")
    assert read_memory(tmp_path) == Memory(64_000_000 * 1024, 50_000_000 * 1024)
    group.mkdir(parents=True)
    (proc / "cgroup").write_text("0::/jobs/one\n")
    (group / "memory.current").write_text("3000000000\n")
    (group / "memory.stat").write_text("anon 1\ninactive_file 1000000000\n")
    (group / "memory.max").write_text("max\n")
    assert read_memory(tmp_path) == Memory(64_000_000 * 1024, 50_000_000 * 1024)
    (group / "memory.max").write_text("4000000000\n")
    assert read_memory(tmp_path) == Memory(4_000_000_000, 2_000_000_000)


def test_a_model_says_and_plans_with_its_context(tmp_path):
    file = tmp_path / "tiny.gguf"
    file.write_bytes(make_gguf())
    lines = []
    assert open_model(f"local:{file}", tell=lines.append).plan.context_tokens == 4096
    smaller = open_model(f"local:{file}", profile={"context_tokens": 1000, "cache_type": "q8_0"}, tell=lines.append)
    assert smaller.plan.context_tokens == 1000
    assert [line.partition("gguf: ")[2] for line in lines] == [
        "context 4,096 tokens, cache 0.0 GB",
        "context 1,000 tokens, cache 0.0 GB",
    ]


@table(
    ("memory", "name"),
    [
        (Memory(), "smollm2-135m"),
        (Memory(3 * GB, 2 * GB), "qwen2.5-coder-0.5b"),
        (Memory(8 * GB, 5 * GB), "qwen2.5-coder-1.5b"),
        (Memory(16 * GB, 13 * GB), "Qwen3.5-9B-Q4_K_M"),
        (Memory(64 * GB, 50 * GB), "Qwen3.6-35B-A3B-UD-Q4_K_M"),
    ],
)
def test_the_strongest_model_that_fits_is_recommended(memory, name):
    assert recommend(memory).name == name


def test_each_recommended_model_can_be_pulled():
    for each in recommended_models():
        assert parse_reference(each.pull) or known_models().find(each.pull).size == each.size
