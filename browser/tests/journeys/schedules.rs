//! Schedules: seen, run, paused, resumed and removed.

use std::time::Duration;

use delayline::schedules::{Schedules, Spec};
use delayline_browser::{Settings, Site, with_browser};
use delayline_web::{Access, Dashboard, Role};

use crate::support::{both, open};

async fn journey(settings: Settings) {
    let connection = delayline::connect("memory:").await.unwrap();
    let orders = open(&connection).await;
    let schedules = Schedules::open(&connection).await.unwrap();
    let spec = Spec::every(Duration::from_secs(3_600), "orders").unwrap();
    schedules.put("shop/report", &spec).await.unwrap();
    let dashboard = Dashboard::new(Access::everyone(Role::Operator)).queue(orders.clone());
    let site = Site::of(dashboard.schedules(schedules.clone())).await.unwrap();
    with_browser(settings, async |page| {
        let is_paused = async || {
            let entry = schedules.get("shop/report").await?;
            anyhow::Ok(entry.is_some_and(|entry| entry.is_paused))
        };
        page.open(&site.at("queues")).await?;
        page.click("Schedules").await?;
        page.says("every 3600 s").await?;
        page.click("Run now shop/report").await?;
        page.says("The message of the schedule has been sent.").await?;
        assert_eq!(orders.stats().await?.ready, 1);
        page.click("Pause shop/report").await?;
        page.says("The schedule is paused").await?;
        assert!(is_paused().await?);
        page.click("Resume shop/report").await?;
        page.says("The schedule is resumed").await?;
        assert!(!is_paused().await?);

        page.click("Remove... shop/report").await?;
        page.says("Remove shop/report?").await?;
        page.click("Back").await?;
        assert!(schedules.get("shop/report").await?.is_some());
        page.click("Remove... shop/report").await?;
        page.click("Remove").await?;
        page.says("The schedule is removed.").await?;
        assert!(schedules.get("shop/report").await?.is_none());
        assert_eq!(page.faults().await?, Vec::<String>::new());
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_schedule_is_run_paused_resumed_and_removed() {
    for settings in both() {
        journey(settings).await;
    }
}
