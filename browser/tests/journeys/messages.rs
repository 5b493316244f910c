//! One message: where it is and why, and what can be done about it.

use delayline::Found;
use delayline::message::Status;
use delayline_browser::Settings;

use crate::support::{HOUR, Raws, both, let_die, orders, send, visit};

async fn status(queue: &Raws, id: &str) -> Option<Status> {
    match queue.get(id).await.unwrap() {
        Found::Live(message) => Some(message.info.state.status()),
        Found::Finished(status) => Some(status),
        _ => None,
    }
}

/// Finds a message by its id, learns why it waits, changes its due time, runs it now, cancels it.
async fn journey(settings: Settings) {
    let orders = orders().await;
    send(&orders, "order-1234", HOUR * 5).await;
    visit(&orders, settings, async |page, _| {
        page.click("orders").await?;
        page.type_into("Id", "order-1234").await?;
        page.click("Show").await?;
        page.says("It is due in 4 h 59 min").await?;
        page.says("\"total\": 9").await?;

        page.type_into("Due in, or at", "2h").await?;
        page.click("Reschedule").await?;
        page.says("Rescheduled.").await?;
        page.says("It is due in 1 h 59 min").await?;
        page.click("Run now").await?;
        page.says("waits for a free worker").await?;
        assert_eq!(status(&orders, "order-1234").await, Some(Status::Ready));

        page.click("Cancel...").await?;
        page.says("Cancel order-1234?").await?;
        page.click("Back").await?;
        assert_eq!(status(&orders, "order-1234").await, Some(Status::Ready));
        page.click("Cancel...").await?;
        page.click("Cancel").await?;
        page.says("Cancelled.").await?;
        assert_eq!(status(&orders, "order-1234").await, Some(Status::Cancelled));

        page.click("Queue").await?;
        page.click("Settings").await?;
        page.click("Pause deliveries").await?;
        page.says("Paused: nothing is delivered").await?;
        assert!(orders.stats().await?.paused);
        page.click("Resume deliveries").await?;
        page.says("Resumed.").await?;
        assert!(!orders.stats().await?.paused);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_window_of_time_shows_what_falls_due_in_the_zone_of_the_visitor() {
    for scripts in [true, false] {
        let orders = orders().await;
        send(&orders, "soon", HOUR).await;
        send(&orders, "later", HOUR * 50).await;
        let settings = Settings { scripts, width: 360, ..Settings::default() };
        visit(&orders, settings, async |page, _| {
            page.click("Time zone").await?;
            page.type_into("Time zone", "\u{e003}\u{e003}\u{e003}Asia/Tokyo").await?;
            page.click("Use").await?;
            page.says("in Asia/Tokyo").await?;
            page.click("orders").await?;
            page.click("Scheduled").await?;
            page.type_into("Due from", "0s").await?;
            page.type_into("Until", "24h").await?;
            page.click("Go to time").await?;
            page.says("1 due from").await?;
            page.says("soon").await?;
            page.says("JST").await?;
            page.says_no_more("later").await?;
            let address = page.address().await?.as_str().replace("state=scheduled", "state=leased");
            // The end of a window is for scheduled messages only.
            page.open(&address.replace("&until=24h", "")).await?;
            page.says("Leases that end from").await?;
            Ok(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_message_is_found_explained_moved_and_cancelled() {
    for settings in both() {
        journey(settings).await;
    }
}

#[tokio::test]
async fn a_dead_letter_is_found_from_anywhere_mended_and_redriven() {
    for scripts in [true, false] {
        let orders = orders().await;
        let_die(&orders, &["order-7"], "the total is missing").await;
        let settings = Settings { scripts, width: 360, ..Settings::default() };
        visit(&orders, settings, async |page, _| {
            page.type_into("Find an id", "order-7").await?;
            page.click("Find").await?;
            page.says("the total is missing").await?;
            page.says("Dead since").await?;
            page.click("Edit and redrive...").await?;
            page.says("Its failures, errors and expiry are gone.").await?;
            page.type_into("Due in, or at (empty: now)", "tomorrow 09:00").await?;
            page.click("Redrive with this content").await?;
            page.says("Redriven with the new content.").await?;
            assert_eq!(status(&orders, "order-7").await, Some(Status::Scheduled));
            page.click("Queue").await?;
            page.click("24h").await?;
            page.says("Last 24 hours: ").await?;
            page.click("Send a message").await?;
            page.click("Send").await?;
            page.says("Sent.").await?;
            let stats = orders.stats().await?;
            assert_eq!((stats.scheduled, stats.ready, stats.dead), (1, 1, 0));
            Ok(())
        })
        .await;
    }
}
