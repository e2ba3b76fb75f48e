"""Measure how well a model calls tools: tasks, their sources, and the check of answers."""

from callboard.evaluation.bfcl import load_bfcl, load_when2call
from callboard.evaluation.check import check_step
from callboard.evaluation.selection import sample
from callboard.evaluation.suites import load_own_tasks
from callboard.evaluation.task import (
    Attempt,
    ExpectedCall,
    Judgement,
    Label,
    ScriptedResult,
    Step,
    Task,
    decode_task,
    decode_tasks,
    encode_task,
)

__all__ = [
    "Attempt",
    "ExpectedCall",
    "Judgement",
    "Label",
    "ScriptedResult",
    "Step",
    "Task",
    "check_step",
    "decode_task",
    "decode_tasks",
    "encode_task",
    "load_bfcl",
    "load_own_tasks",
    "load_when2call",
    "sample",
]
