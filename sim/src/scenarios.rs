//! Scenarios that come with the crate.

mod order;

pub use order::OrderFulfilment;
