"""Small agents to try a space with: echo, calculator and fulfiller.

    await run(find("echo"), AgentSettings(url="ws://localhost:8080", token=token))

Each is a participant on the SDK like anybody's own, and has no rights but those that its space gives it.
"""

from mew.agents.runner import AGENTS, Agent, AgentSettings, BadAgent, find, run

__all__ = ["AGENTS", "Agent", "AgentSettings", "BadAgent", "find", "run"]
