"""What a run will need, said before it is started: memory, time, traffic, checkpoints; and what failures will cost."""

from vitkit.plan.job import Job
from vitkit.plan.memory import Memory, memory
from vitkit.plan.planner import Answer, plan

__all__ = ["Answer", "Job", "Memory", "memory", "plan"]
