"""Small agents for trying out a space: echo, calculator and fulfiller.

    await run_agent(load_agent("echo"), AgentSettings(url="ws://localhost:8080", token=token))

Each is an ordinary participant that uses the SDK. It has only the permissions that its space grants.
"""

from mew.agents.runner import AGENTS, Agent, AgentSettings, BadAgent, load_agent, run_agent

__all__ = ["AGENTS", "Agent", "AgentSettings", "BadAgent", "load_agent", "run_agent"]
