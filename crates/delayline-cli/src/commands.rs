//! The verbs.

pub(crate) mod demo;
pub(crate) mod send;
pub(crate) mod stats;
pub(crate) mod work;
