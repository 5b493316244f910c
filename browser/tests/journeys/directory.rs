//! The directory of the queues: its files, its room and its checkpoints.

use delayline_browser::{Settings, Site, with_browser};
use delayline_web::{Access, Dashboard, Role};

use crate::looks::{assert_fits, violations};
use crate::support::{HOUR, both, open, send};

/// Reads the page of the directory.
async fn journey(settings: Settings) {
    let home = tempfile::tempdir().unwrap();
    let connection = delayline::connect(&format!("file:{}", home.path().display())).await.unwrap();
    let orders = open(&connection).await;
    send(&orders, "order-1", HOUR).await;
    let dashboard = Dashboard::new(Access::everyone(Role::Operator)).queue(orders);
    let site = Site::of(dashboard.storage(connection)).await.unwrap();
    with_browser(settings, async |page| {
        page.open(&site.at("queues")).await?;
        page.click("Directory").await?;
        page.says("1 queue; a log of").await?;
        page.says("in the log, ").await?;
        page.says("Last checkpoint").await?;
        page.says("none since the directory was opened").await?;
        assert_fits(page).await?;
        if settings.scripts {
            assert_eq!(violations(page).await?, Vec::<String>::new());
        }
        assert_eq!(page.faults().await?, Vec::<String>::new());
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn the_directory_is_read_on_all_screens() {
    for settings in both() {
        journey(settings).await;
    }
}
