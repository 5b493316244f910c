//! The programs are in `examples/examples`. The code in the README and in the guides is compiled
//! here.

#![doc = include_str!("../../README.md")]

/// The guides that have code.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../crates/delayline/docs/guides/close-unpaid-orders.md")]
    mod close_unpaid_orders {}
    #[doc = include_str!("../../crates/delayline/docs/guides/text-after-failed-payment.md")]
    mod text_after_failed_payment {}
    #[doc = include_str!("../../crates/delayline/docs/guides/defer-on-a-lock-conflict.md")]
    mod defer_on_a_lock_conflict {}
    #[doc = include_str!("../../crates/delayline/docs/guides/remind-inactive-shops.md")]
    mod remind_inactive_shops {}
    #[doc = include_str!("../../crates/delayline/docs/guides/many-producers-and-consumers.md")]
    mod many_producers_and_consumers {}
    #[doc = include_str!("../../crates/delayline/docs/guides/plain-fifo.md")]
    mod plain_fifo {}
    #[doc = include_str!("../../crates/delayline/docs/guides/one-at-a-time.md")]
    mod one_at_a_time {}
    #[doc = include_str!("../../crates/delayline/docs/guides/replace-a-poller.md")]
    mod replace_a_poller {}
    #[doc = include_str!("../../crates/delayline/docs/guides/rolling-deploys.md")]
    mod rolling_deploys {}
    #[doc = include_str!("../../crates/delayline/docs/guides/limits-over-all-workers.md")]
    mod limits_over_all_workers {}
    #[doc = include_str!("../../crates/delayline/docs/guides/job-types.md")]
    mod job_types {}
    #[doc = include_str!("../../crates/delayline/docs/guides/write-your-own-backend.md")]
    mod write_your_own_backend {}
    #[doc = include_str!("../../crates/delayline/docs/guides/your-redis-client.md")]
    mod your_redis_client {}
    #[doc = include_str!("../../crates/delayline/docs/guides/web-service.md")]
    mod web_service {}
    #[doc = include_str!("../../crates/delayline/docs/guides/middleware.md")]
    mod middleware {}
    #[doc = include_str!("../../crates/delayline/docs/guides/several-queues.md")]
    mod several_queues {}
    #[doc = include_str!("../../crates/delayline/docs/guides/tenants.md")]
    mod tenants {}
    #[doc = include_str!("../../crates/delayline/docs/guides/testing.md")]
    mod testing {}
    #[doc = include_str!("../../crates/delayline/docs/guides/chains.md")]
    mod chains {}
    #[doc = include_str!("../../crates/delayline/docs/guides/recurring-jobs.md")]
    mod recurring_jobs {}
    #[doc = include_str!("../../crates/delayline/docs/guides/relay.md")]
    mod relay {}
    #[doc = include_str!("../../crates/delayline/docs/guides/when-one-node-is-not-enough.md")]
    mod when_one_node_is_not_enough {}
    #[doc = include_str!("../../crates/delayline/docs/guides/wait-for-several-messages.md")]
    mod wait_for_several_messages {}
    #[doc = include_str!("../../crates/delayline/docs/guides/resume-a-long-job.md")]
    mod resume_a_long_job {}
    #[doc = include_str!("../../crates/delayline/docs/guides/results.md")]
    mod results {}
    #[doc = include_str!("../../crates/delayline/docs/guides/one-message-per-id.md")]
    mod one_message_per_id {}
    #[doc = include_str!("../../crates/delayline/docs/guides/other-languages.md")]
    mod other_languages {}
    #[doc = include_str!("../../crates/delayline/docs/guides/aws-sdk.md")]
    mod aws_sdk {}
    #[doc = include_str!("../../crates/delayline/docs/guides/observe.md")]
    mod observe {}
    #[doc = include_str!("../../crates/delayline/docs/guides/dashboard.md")]
    mod dashboard {}
    #[doc = include_str!("../../crates/delayline/docs/guides/traces.md")]
    mod traces {}
    #[doc = include_str!("../../crates/delayline/docs/guides/without-redis.md")]
    mod without_redis {}
}

#[cfg(doctest)]
#[doc = include_str!("../../crates/delayline/docs/from-other-queues.md")]
mod from_other_queues {}
