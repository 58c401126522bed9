//! HTTP over runs, and the control socket of a data folder.
