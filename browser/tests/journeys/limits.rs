//! Limits of a queue: set, seen and cleared.

use delayline_browser::Settings;

use crate::support::{both, orders, visit};

/// Sets each limit by its form, and clears it again.
async fn journey(settings: Settings) {
    let orders = orders().await;
    visit(&orders, settings, async |page, _| {
        let limits = async || anyhow::Ok(orders.stats().await?.limits);
        page.click("orders").await?;
        page.click("Settings").await?;
        let gap = "const [a, b] = document.querySelectorAll('#limits form');
                   return b.getBoundingClientRect().top - a.getBoundingClientRect().bottom";
        assert!(page.run(gap).await?.as_f64().unwrap() >= 8.0, "the forms touch each other");
        page.type_into("Maximum leased at once", "3").await?;
        page.click("Limit leases").await?;
        page.says("The limits have been changed.").await?;
        page.says("0 of 3 leased").await?;
        assert_eq!(limits().await?.leased, Some(3));

        page.type_into("Deliver nothing for, or until", "30m").await?;
        page.click("Hold").await?;
        page.says("Held: nothing is delivered until").await?;
        assert!(limits().await?.held_until.is_some());

        page.click("Clear the limit: leased").await?;
        page.says("The limits have been changed.").await?;
        assert_eq!(limits().await?.leased, None);
        page.click("Clear the limit: hold").await?;
        page.says("The limits have been changed.").await?;
        assert_eq!(limits().await?.held_until, None);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn limits_are_set_and_cleared() {
    for settings in both() {
        journey(settings).await;
    }
}
