//! Durable storage for runs: one narrow store trait, group commit, memory and sled.
