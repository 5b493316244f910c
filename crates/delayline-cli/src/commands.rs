//! The verbs.

pub(crate) mod acl;
pub(crate) mod bench;
pub(crate) mod cancel;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod dead;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod reschedule;
pub(crate) mod send;
pub(crate) mod serve;
pub(crate) mod stats;
pub(crate) mod switch;
pub(crate) mod work;
