//! Conversions of which only the beginning has happened.
//!
//! As in [`torn`](super::torn), what a torn page leaves is the first few of its commands.

use delayline_driver_testkit::next_layout::{Versions, conversions};
use delayline_driver_testkit::queue::upgrades::{populate, seen, upgraded};

use super::recorded::{Recorded, Shown};
use super::*;

/// Wherever a page is torn, the conversion continues, and its result is the same as without the
/// tear.
pub(crate) async fn a_torn_conversion_can_be_repeated<C: Connect>() {
    let server = Recorded::start("always");
    let queue = Versions::open::<C>(&server.server.url(), "q").await.unwrap();
    let ids = populate(&queue.this).await;
    let before = seen(&queue.this, &ids).await;
    let (sound, conversions) = (server.keys(), conversions());
    let mut pages = Vec::new();
    loop {
        let (state, commands) = server.written_by(queue.this.upgrade_page(&conversions)).await;
        pages.push(commands);
        if !state.unwrap().is_needed() {
            break;
        }
    }
    assert!(pages.len() > 4, "{} pages", pages.len());
    let whole = server.holdings();
    for (page, commands) in pages.iter().enumerate() {
        for kept in 0..commands.len() {
            let what = format!("page {page}, {:?}", Shown(&commands[..kept]));
            server.restore(&sound);
            pages[..page].iter().for_each(|page| drop(server.server.commands(page)));
            server.server.commands(&commands[..kept]);
            let state = queue.this.upgrade_status(&conversions).await.unwrap();
            assert!(state.is_needed() && state.begun == (page > 0), "{state:?}: {what}");
            let expected = match page {
                0 => None,
                _ => Some(ErrorKind::Upgrading { from: state.version, to: state.target }),
            };
            for op in [Op::Stats, claim(90, 1), Op::Pause].into_iter().skip(usize::from(page == 0))
            {
                let refused = kind_of(&queue.next, 10, &op).await.err();
                assert!(expected.is_none() || refused == expected, "{refused:?}: {what}");
            }
            upgraded(&queue.this).await;
            assert!(server.holdings() == whole, "{what}");
        }
    }
    assert_eq!(seen(&queue.next, &ids).await, before);
}
