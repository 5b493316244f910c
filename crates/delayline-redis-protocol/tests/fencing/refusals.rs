//! What a server cannot confirm is refused before the call is sent (G26).

use std::time::Duration;

use delayline_core::{Durability, Error, ErrorClass, ErrorKind};
use delayline_redis_protocol::Value;
use tokio::time::Instant;

use super::fake::{Answer, World};
use super::{ONE, call, text};

/// The result of a call, and the command that waited for its confirmation.
async fn outcome(
    durability: Durability,
    info: &'static str,
    settings: Answer,
) -> (Result<Value, Error>, Vec<String>) {
    let world = World::new(move |_, command| match command {
        "INFO" => Answer::Value(text(format!("run_id:abc\r\n{info}"))),
        "CONFIG GET *appendfsync*" => settings.clone(),
        _ if command.starts_with("WAITAOF") => {
            Answer::Value(Value::Array(vec![Value::Int(1), Value::Int(0)]))
        }
        _ if command.starts_with("EVAL") => Answer::Value(Value::Array(vec![Value::Int(1)])),
        _ => Answer::Value(Value::Int(1)),
    });
    let transport = world.connect("redis://a:1").await.unwrap();
    let result = call(&transport, durability).await;
    let commands = world.sent().into_iter().map(|sent| sent.command);
    let of_interest = |it: &String| ["EVAL", "WAITAOF 1"].iter().any(|word| it.starts_with(word));
    (result, commands.filter(of_interest).collect())
}

fn settings(policy: &'static str, on_rewrite: &'static str) -> Answer {
    let words = ["no-appendfsync-on-rewrite", on_rewrite, "appendfsync", policy];
    Answer::Value(Value::Array(words.map(text).to_vec()))
}

fn everysec() -> Answer {
    settings("everysec", "no")
}

const WAITING: [(&str, &str); 4] = [
    ("Redis 7.2.4", "redis_version:7.2.4\r\naof_enabled:1\r\n"),
    ("Redis 8.0.0", "redis_version:8.0.0\r\naof_enabled:1\r\n"),
    ("Redis 8.6.2", "redis_version:8.6.2\r\nserver_name:redis\r\naof_enabled:1\r\n"),
    ("Redis 10.0.0", "redis_version:10.0.0\r\naof_enabled:1\r\n"),
];

#[tokio::test(start_paused = true)]
async fn the_disk_is_waited_for_where_the_server_does() {
    for (_, info) in WAITING {
        // A user who may not ask for the settings is not refused.
        for settings in [everysec(), settings("always", "yes"), denied()] {
            let (result, commands) = outcome(Durability::Disk, info, settings).await;
            result.unwrap();
            assert_eq!(commands.len(), 2, "{info}: {commands:?}");
            assert_eq!(commands[1], "WAITAOF 1 0 2000", "{info}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_disk_is_refused_at_once_where_the_server_never_syncs() {
    for (name, info) in WAITING {
        let begin = Instant::now();
        let (result, commands) = outcome(Durability::Disk, info, settings("no", "no")).await;
        let error = result.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Unsupported("the durability"));
        assert_eq!(error.class(), ErrorClass::Rejected);
        for word in [name, "appendfsync no", "set it to everysec or always"] {
            assert!(error.detail().contains(word), "{error}");
        }
        assert!(commands.is_empty(), "nothing was sent: {commands:?}");
        assert_eq!(begin.elapsed(), Duration::ZERO);
    }
}

fn denied() -> Answer {
    Answer::Line("NOPERM this user has no permissions to run 'config|get'".into())
}

const OTHERS: [(&str, &str); 8] = [
    ("Redis 6.0.16", "redis_version:6.0.16\r\naof_enabled:1\r\n"),
    ("Redis 7.0.15", "redis_version:7.0.15\r\naof_enabled:1\r\n"),
    ("Redis 7.4.1", "redis_version:7.4.1\r\naof_enabled:1\r\n"),
    (
        "Valkey 9.1.2",
        "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\naof_enabled:1\r\n",
    ),
    ("Valkey 10.0.0", "redis_version:7.2.4\r\nvalkey_version:10.0.0\r\naof_enabled:1\r\n"),
    ("Redict 7.3.6", "redis_version:7.2.4\r\nredict_version:7.3.6\r\naof_enabled:1\r\n"),
    ("Redis 8.0.0", "redis_version:8.0.0\r\nserver_name:other\r\naof_enabled:1\r\n"),
    ("Redis of an unknown version", "aof_enabled:1\r\n"),
];

#[tokio::test(start_paused = true)]
async fn elsewhere_the_reply_is_proof_if_each_write_is_synced_before_it() {
    for (_, info) in OTHERS {
        let (result, commands) = outcome(Durability::Disk, info, settings("always", "no")).await;
        result.unwrap();
        assert_eq!(commands.len(), 1, "{info}: {commands:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_disk_is_refused_where_nothing_tells_about_it() {
    let no_file = ("Redis 8.0.0", "redis_version:8.0.0\r\naof_enabled:0\r\n");
    let mut cases = vec![(no_file, settings("always", "no"), "appendonly")];
    for server in OTHERS {
        cases.push((server, everysec(), "appendfsync"));
        cases.push((server, settings("always", "yes"), "no-appendfsync-on-rewrite"));
        cases.push((server, denied(), "CONFIG GET"));
    }
    for ((name, info), settings, advice) in cases {
        let (result, commands) = outcome(Durability::Disk, info, settings).await;
        let error = result.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error:?}");
        assert_eq!(error.class(), ErrorClass::Rejected);
        let told = error.to_string();
        assert!(told.contains(name) && told.contains(advice), "{told}");
        assert!(commands.is_empty(), "nothing was sent: {commands:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn numbers_of_replicas_beyond_the_limits_are_refused() {
    for count in [0, 33, u32::MAX] {
        let (result, commands) = outcome(Durability::Replicas(count), "", Answer::Never).await;
        let error = result.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Invalid(_)), "{error:?}");
        assert!(error.to_string().contains("from 1 to 32"), "{error}");
        assert!(commands.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_permission_is_told_before_the_call_is_sent() {
    for denied in ["INFO", "WAIT 0 1"] {
        let world = World::new(move |_, command| match command {
            _ if command == denied => Answer::Line(format!("NOPERM no permission to {denied}")),
            "INFO" => Answer::Value(text("run_id:abc\r\n")),
            _ => Answer::Value(Value::Int(1)),
        });
        let transport = world.connect("redis://a:1").await.unwrap();
        let error = call(&transport, ONE).await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::PermissionDenied, "{error}");
        assert!(error.detail().contains(denied), "{error}");
        assert!(world.sent().iter().all(|sent| !sent.command.starts_with("EVAL")));
    }
}

#[tokio::test(start_paused = true)]
async fn a_right_to_wait_for_replicas_is_none_to_wait_for_the_disk() {
    let world = World::new(|_, command| match command {
        "INFO" => Answer::Value(text("redis_version:8.0.0\r\nrun_id:abc\r\naof_enabled:1\r\n")),
        _ if command.starts_with("WAITAOF") => {
            Answer::Line("NOPERM this user has no permissions to run 'waitaof'".to_owned())
        }
        _ if command.starts_with("EVAL") => Answer::Value(Value::Array(vec![Value::Int(1)])),
        _ => Answer::Value(Value::Int(1)),
    });
    let transport = world.connect("redis://a:1").await.unwrap();
    let calls = || world.sent().iter().filter(|it| it.command.starts_with("EVAL")).count();
    call(&transport, ONE).await.unwrap();
    let error = call(&transport, Durability::Disk).await.unwrap_err();
    assert_eq!((error.kind(), error.class()), (&ErrorKind::PermissionDenied, ErrorClass::Rejected));
    assert_eq!(calls(), 1, "the refused call was not sent");
    call(&transport, ONE).await.unwrap();
}
