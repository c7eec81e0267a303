"""Estimates of what a training run needs before it starts: memory, time, communication, checkpoints, failures."""

from vitkit.plan.job import Job
from vitkit.plan.memory import Memory, memory
from vitkit.plan.planner import RunPlan, plan

__all__ = ["Job", "Memory", "RunPlan", "memory", "plan"]
