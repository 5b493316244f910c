//! The queues that are compared.

pub(crate) mod apalis;
pub(crate) mod baselines;
pub(crate) mod bullmq_rust;
pub(crate) mod delayline;
pub(crate) mod node;
pub(crate) mod oxana;
pub(crate) mod postgres;
pub(crate) mod rsmq;
