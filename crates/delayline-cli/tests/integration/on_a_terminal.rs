//! What only a terminal sees: questions, bars, and counts that are drawn again.

use std::io::Write as _;

use crate::support::terminal::{start, start_sized};
use crate::support::{count, let_die, on, wait_until};
use delayline_test_server::Server;

#[test]
fn a_deletion_is_asked_about_and_only_a_yes_is_a_yes() {
    let server = Server::start();
    let_die(&server, 3, "no");
    for (answer, code, left) in [("\n", 1, 3), ("no\n", 1, 3), ("\u{4}", 1, 3), ("Yes\n", 0, 0)] {
        let mut terminal = start(on(&server, &["dead", "purge", "--all"]));
        terminal.type_in(answer);
        let (ended, screen) = terminal.end();
        assert_eq!(ended, Some(code), "{answer:?}: {screen}");
        assert!(
            screen.contains("purge 3 dead letters of the queue orders. Continue? [y/N]"),
            "{screen}"
        );
        assert_eq!(count(&server, "dead"), left, "{answer:?}");
    }
}

#[test]
fn many_messages_are_asked_about_and_one_is_not() {
    let server = Server::start();
    crate::support::create(&server);
    let (code, screen) = start(on(&server, &["cancel", "a"])).end();
    assert_eq!((code, screen.contains("Go on?")), (Some(1), false));
    let mut terminal = start(on(&server, &["cancel", "a", "b"]));
    terminal.type_in("n\n");
    let (code, screen) = terminal.end();
    assert_eq!((code, screen.contains("cancel 2 messages")), (Some(1), true));
}

#[test]
fn the_watch_draws_over_what_it_has_drawn_and_fits_on_a_small_terminal() {
    let server = Server::start();
    crate::support::create(&server);
    let watch = |rows| start_sized(on(&server, &["stats", "--watch", "100ms"]), rows, 80);
    for (rows, is_shown, is_left_out) in [
        (40, "acked total", "\u{1b}[2J"),
        (24, "earliest due", "acked total"),
        (3, "queue", "ready"),
    ] {
        let terminal = watch(rows);
        wait_until("a third count", || terminal.screen().matches("orders").count() > 2);
        crate::support::send_signal(&terminal.child, "-INT");
        let (code, screen) = terminal.end();
        assert_eq!(code, Some(0), "{screen}");
        assert!(screen.contains(is_shown) && !screen.contains(is_left_out), "{rows}: {screen:?}");
        // Up, and the line is cleared.
        let is_drawn_over = screen.contains("\u{1b}[1A") || screen.contains("\u{1b}[2K");
        assert!(is_drawn_over, "{rows}: {screen:?}");
    }
}

#[test]
fn the_top_draws_over_what_it_has_drawn_and_ends_on_q() {
    let server = Server::start();
    crate::support::create(&server);
    let mut terminal = start(on(&server, &["top", "--interval", "200ms"]));
    wait_until("a third table", || terminal.screen().matches("OLDEST").count() > 2);
    terminal.type_in("xq");
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains("orders"), "{screen}");
    assert!(screen.contains("\u{1b}[1A") || screen.contains("\u{1b}[2K"), "{screen:?}");
    // The key is not shown.
    assert!(!screen.contains("xq"), "{screen:?}");
}

#[test]
fn the_top_fits_on_a_small_terminal() {
    let server = Server::start();
    for n in 0..9 {
        let args = ["--queue", &format!("reminders-{n}"), "send", "--payload", "x", "--id", "a"];
        crate::support::run(on(&server, &args)).code(0);
    }
    let top = |rows, columns| {
        let mut command = on(&server, &["top", "--interval", "200ms"]);
        command.env_remove("DELAYLINE_QUEUE");
        start_sized(command, rows, columns)
    };
    // Of 10 rows, one is the cursor's and one says that there is more. Each line takes two.
    let terminal = top(10, 60);
    let ups = |up: &str| terminal.screen().matches(&format!("\u{1b}[{up}A")).count();
    wait_until("a third table", || ups("9") > 2);
    let screen = terminal.screen();
    assert!(screen.contains("reminders-2") && !screen.contains("reminders-3"), "{screen:?}");
    assert!(screen.contains("and 6 more"), "{screen:?}");
    // The terminal wraps lines again when it is resized, so all of them are cleared.
    terminal.resize(10, 200);
    wait_until("a wide table", || terminal.screen().contains("reminders-6"));
    let screen = terminal.screen();
    assert!(screen.contains("\u{1b}[2J") && !screen.contains("reminders-7"), "{screen:?}");
    crate::support::send_signal(&terminal.child, "-INT");
    assert_eq!(terminal.end().0, Some(0));
    // A terminal with room for nothing.
    for (rows, columns) in [(1, 1), (2, 10), (3, 200)] {
        let mut terminal = top(rows, columns);
        wait_until("tables", || terminal.screen().matches(" more").count() > 2);
        terminal.type_in("q");
        assert_eq!(terminal.end().0, Some(0));
    }
}

#[test]
fn long_jobs_show_how_far_they_are() {
    let server = Server::start();
    let_die(&server, 30, "no");
    let args = ["dead", "redrive", "--all", "--rate", "30", "--yes"];
    let (code, screen) = start(on(&server, &args)).end();
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains("/30"), "{screen:?}");
    assert!(screen.ends_with("redriven 30\r\n"), "{screen:?}");

    // A bar that counts lines read would be full at once.
    let_die(&server, 40, "no");
    let dead = count(&server, "dead");
    let args = ["dead", "redrive", "--all", "--rate", "1", "--yes"];
    let terminal = start(on(&server, &args));
    wait_until("the first letter", || terminal.screen().contains("1/40"));
    crate::support::send_signal(&terminal.child, "-INT");
    let (code, screen) = terminal.end();
    assert_eq!((code, dead), (Some(1), 40), "{screen}");
    assert!(!screen.contains("40/40"), "{screen:?}");

    let mut file = tempfile::NamedTempFile::new().unwrap();
    for n in 0..20_000 {
        writeln!(file, "{{\"id\": \"m-{n}\", \"payload\": {n}}}").unwrap();
    }
    for _ in 0..2_000 {
        writeln!(file, "hello").unwrap();
    }
    let path = file.path().to_str().unwrap();
    let (code, screen) = start(on(&server, &["send", "--file", path])).end();
    assert_eq!(code, Some(1), "{screen}");
    assert!(screen.contains("KiB") && screen.contains("created "), "{screen:?}");
    assert!(screen.contains("line 20001: "), "{screen:?}");
    // The bar is drawn again for each line that is shown, and not for a line that is counted.
    let draws = screen.matches("\u{1b}[2K").count();
    assert!(draws > 0 && draws < 1_000, "{draws}");
    assert!(screen.trim_end().ends_with("bad 2000"), "{screen:?}");
}
