//! Actors whose work outlives them.
