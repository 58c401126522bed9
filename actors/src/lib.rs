//! Agents and runs as supervised actors.
