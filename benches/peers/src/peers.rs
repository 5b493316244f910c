//! The queues that are compared.

pub(crate) mod apalis;
pub(crate) mod baselines;
pub(crate) mod bullmq_node;
pub(crate) mod bullmq_rust;
pub(crate) mod delayline;
pub(crate) mod oxana;
pub(crate) mod rsmq;
