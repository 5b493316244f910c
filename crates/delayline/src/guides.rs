//! The guides: how to do common tasks, each with its code and what happens when things go wrong.
//!
//! - [Use an AWS SDK](aws_sdk)
//! - [Chains: the next message follows from this one](chains)
//! - [Close unpaid orders](close_unpaid_orders)
//! - [Dashboard and HTTP API](dashboard)
//! - [Defer work while a lock is held](defer_on_a_lock_conflict)
//! - [Job types and shared state](job_types)
//! - [Limits over all workers](limits_over_all_workers)
//! - [Many producers, many consumers](many_producers_and_consumers)
//! - [Middleware](middleware)
//! - [Observe: is it late, since when, and why?](observe)
//! - [One at a time for each customer](one_at_a_time)
//! - [One message per id: debounce, coalesce, throttle, unique](one_message_per_id)
//! - [Other languages: pull, webhook, command, relay](other_languages)
//! - [OpenTelemetry: spans and metrics at a collector](opentelemetry)
//! - [Send exactly if the transaction commits](outbox)
//! - [A plain FIFO queue](plain_fifo)
//! - [Recurring jobs](recurring_jobs)
//! - [Relay to a list or stream](relay)
//! - [Remind inactive shops](remind_inactive_shops)
//! - [Replace a hand-written poller](replace_a_poller)
//! - [Results: wait until a message is handled](results)
//! - [Resume a long job](resume_a_long_job)
//! - [Rolling deploys](rolling_deploys)
//! - [Several queues in one process](several_queues)
//! - [Tenants: a flood of one does not delay the others](tenants)
//! - [Test code that uses a queue](testing)
//! - [Text a customer after a failed payment](text_after_failed_payment)
//! - [Traces: from the request to the handler](traces)
//! - [A web service with a queue](web_service)
//! - [Wait for several messages](wait_for_several_messages)
//! - [Webhooks](webhooks)
//! - [What is not offered](not_offered)
//! - [Without Redis](without_redis)
//! - [Write your own backend](write_your_own_backend)
//! - [Your Redis client](your_redis_client)
//!
//! Besides: [questions and answers](faq), [in production](production), and
//! [coming from other queues](from_other_queues). [Guarantees](crate::guarantees) has the numbered
//! promises that all of them cite.
//!
//! This module and its parts are only text: programs cannot name them.

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/guides/aws-sdk.md")]
pub mod aws_sdk {}

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/guides/chains.md")]
pub mod chains {}

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/guides/close-unpaid-orders.md")]
pub mod close_unpaid_orders {}

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/guides/dashboard.md")]
pub mod dashboard {}

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/guides/defer-on-a-lock-conflict.md")]
pub mod defer_on_a_lock_conflict {}

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/guides/job-types.md")]
pub mod job_types {}

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/guides/limits-over-all-workers.md")]
pub mod limits_over_all_workers {}

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/guides/many-producers-and-consumers.md")]
pub mod many_producers_and_consumers {}

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/guides/middleware.md")]
pub mod middleware {}

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/guides/not-offered.md")]
pub mod not_offered {}

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/guides/observe.md")]
pub mod observe {}

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/guides/one-at-a-time.md")]
pub mod one_at_a_time {}

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/guides/one-message-per-id.md")]
pub mod one_message_per_id {}

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/guides/opentelemetry.md")]
pub mod opentelemetry {}

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/guides/other-languages.md")]
pub mod other_languages {}

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/guides/outbox.md")]
pub mod outbox {}

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/guides/plain-fifo.md")]
pub mod plain_fifo {}

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/guides/recurring-jobs.md")]
pub mod recurring_jobs {}

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/guides/relay.md")]
pub mod relay {}

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/guides/remind-inactive-shops.md")]
pub mod remind_inactive_shops {}

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/guides/replace-a-poller.md")]
pub mod replace_a_poller {}

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/guides/resume-a-long-job.md")]
pub mod resume_a_long_job {}

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/guides/results.md")]
pub mod results {}

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/guides/rolling-deploys.md")]
pub mod rolling_deploys {}

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/guides/several-queues.md")]
pub mod several_queues {}

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/guides/tenants.md")]
pub mod tenants {}

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/guides/testing.md")]
pub mod testing {}

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/guides/text-after-failed-payment.md")]
pub mod text_after_failed_payment {}

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/guides/traces.md")]
pub mod traces {}

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/guides/web-service.md")]
pub mod web_service {}

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/guides/wait-for-several-messages.md")]
pub mod wait_for_several_messages {}

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/guides/webhooks.md")]
pub mod webhooks {}

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/guides/when-one-node-is-not-enough.md")]
pub mod when_one_node_is_not_enough {}

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/guides/without-redis.md")]
pub mod without_redis {}

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/guides/write-your-own-backend.md")]
pub mod write_your_own_backend {}

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/guides/your-redis-client.md")]
pub mod your_redis_client {}

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/faq.md")]
pub mod faq {}

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/production.md")]
pub mod production {}

#[doc = include_str!("../docs/links.md")]
#[doc = include_str!("../docs/from-other-queues.md")]
pub mod from_other_queues {}
