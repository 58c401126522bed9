//! The words and rules of durable runs, without I/O.
