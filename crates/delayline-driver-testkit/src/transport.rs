//! The duties of a transport: connect, reply, wait, and report faults truthfully.

pub mod connecting;
pub mod faults;
pub mod names;
pub mod outages;
pub mod replies;
pub mod waits;

use std::time::{Duration, Instant};

use bytes::Bytes;
use delayline_core::Error;
use delayline_redis_protocol::{
    CallError, ConnectOptions, ScriptCall, ScriptName, Transport, Value,
};
use delayline_test_server::{Server, until};

use crate::Connect;

/// Longest time for a transport to work again after the server does. Promised are 5 s; the rest is
/// for a machine that is busy with other things.
pub const HEALING: Duration = Duration::from_secs(20);
/// More than any test needs on such a machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Connects to an address as the server or proxy shows it.
pub async fn connected<C: Connect>(url: &str) -> C::Transport {
    C::connect(&options(url)).await.unwrap()
}

/// Options for an address. A machine that stands still for seconds still connects.
pub fn options(url: &str) -> ConnectOptions {
    let mut options: ConnectOptions = url.parse().unwrap();
    options.connect_timeout = HEALING;
    options
}

/// Short timeouts for tests in which they are hit.
pub fn impatient(url: &str) -> ConnectOptions {
    let mut options = options(url);
    options.connect_timeout = SHORT;
    options.response_timeout = SHORT;
    options
}

/// The timeouts of [`impatient`]. A busy machine connects and answers within this time.
pub const SHORT: Duration = Duration::from_millis(1_500);

/// Runs a script by its text with one key and these arguments.
pub async fn eval(
    transport: &(impl Transport + ?Sized),
    source: &str,
    args: &[Bytes],
) -> Result<Value, CallError> {
    let keys = [Bytes::from_static(b"k")];
    let script = ScriptName::Source(source);
    transport.call(ScriptCall::new(script, &keys, args)).await
}

pub const INCREMENT: &str = "return {redis.call('INCR', KEYS[1])}";

/// Runs a script that adds one to the key `k`, once: a call for tests of your own.
///
/// # Errors
///
/// What the call has failed with.
pub async fn increment(transport: &(impl Transport + ?Sized)) -> Result<Value, CallError> {
    eval(transport, INCREMENT, &[]).await
}

/// How often [`increment`] was executed.
pub fn executions(server: &Server) -> i64 {
    match server.command(&["GET", "k"]) {
        delayline_test_server::Reply::BulkString(text) => {
            String::from_utf8(text).unwrap().parse().unwrap()
        }
        _ => 0,
    }
}

/// How many commands of that name the server has executed.
pub fn calls(server: &Server, command: &str) -> u64 {
    let info = format!("{:?}", server.command(&["INFO", "commandstats"]));
    let calls = info.split(&format!("cmdstat_{command}:calls=")).nth(1).unwrap_or("0");
    calls.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

/// The error of a call that failed without a reply of the server.
#[track_caller]
pub fn failed(result: Result<impl std::fmt::Debug, CallError>) -> Error {
    match result {
        Err(CallError::Failed(error)) => error,
        other => panic!("expected a failure, got {other:?}"),
    }
}

/// The server's error line.
#[track_caller]
pub fn error_line(result: Result<impl std::fmt::Debug, CallError>) -> String {
    match result {
        Err(CallError::Reply(line)) => line,
        other => panic!("expected an error line, got {other:?}"),
    }
}

/// Repeats calls until one works, after a fault in a test of your own.
///
/// # Panics
///
/// None works within twenty seconds, or one does not end within sixty.
pub async fn heals(transport: &(impl Transport + ?Sized)) {
    let deadline = Instant::now() + HEALING;
    loop {
        let result = tokio::time::timeout(PATIENCE, eval(transport, "return {1}", &[])).await;
        match result.expect("a call hangs") {
            Ok(_) => return,
            Err(error) => assert!(Instant::now() < deadline, "not healed: {error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Tests of connections, one for each case: what connecting fails with, TLS, logins, replies of
/// every kind, waits, lost requests and replies, and servers that are killed, frozen or restarted.
///
/// Takes a type that implements [`Connect`]. Write it once in a test program: it makes modules with
/// the tests. They include TLS, in both directions.
#[macro_export]
macro_rules! transport_cases {
    ($connect:ty) => {
        $crate::each_case!(transport, $connect,
            connecting: [
                refused_port_is_unreachable missing_socket_is_unreachable
                socket_with_a_long_path_is_reached
                unknown_host_is_unreachable silent_address_of_a_host_hides_no_other
                silent_peer_is_unreachable_in_time
                peer_that_closes_is_unreachable peer_that_babbles_is_unreachable
                wrong_logins_are_refused right_logins_work wrong_certificates_are_refused
                missing_client_certificate_is_told tls_works_with_its_authority plain_client_on_tls_port_fails
                tls_client_on_plain_port_fails database_is_selected
                missing_database_is_refused user_without_ping_connects
                full_server_is_told loading_server_is_not_taken
                refusals_are_told_in_the_words_of_the_server server_that_runs_a_script_is_not_taken debug_shows_no_secret
            ],
            replies: [
                any_bytes_are_echoed types_and_nesting_are_kept error_lines_keep_their_code
                unknown_digest_is_told scripts_run_by_their_digest
                concurrent_calls_get_their_own_replies refusals_inside_scripts_are_told
                info_is_text both_versions_of_the_protocol_agree
            ],
            names: [
                processes_are_listed_until_they_leave a_new_connection_has_the_name
                a_process_of_another_database_is_not_listed
                a_process_that_has_not_changed_is_introduced_once
                a_server_that_refuses_names_is_used_without
                a_peer_that_hangs_up_on_names_is_used_without
            ],
            waits: [
                push_ends_a_wait earlier_push_ends_a_wait_at_once wait_without_push_times_out
                wait_of_no_time_ends wait_may_exceed_the_response_timeout
                wait_holds_up_no_call waits_share_one_connection one_hint_wakes_one_wait
                a_bell_that_comes_later_is_heard_too dropped_wait_leaves_its_bell_to_others
                a_spoilt_bell_silences_no_other wait_outlives_the_runtime_of_another
                connection_of_a_wait_is_reused wait_survives_its_connection
                dropped_wait_keeps_its_connection frozen_server_ends_a_wait wrong_type_is_told
                unblocked_wait_is_told
            ],
            faults: [
                lost_reply_is_ambiguous_and_executed_once
                lost_request_is_ambiguous_and_not_executed swallowed_reply_times_out_and_heals
                blackhole_times_out_and_heals delay_below_the_timeout_is_harmless
                dropped_call_harms_nobody callers_that_give_up_do_not_stop_an_attempt
                callers_that_give_up_leave_a_silent_connection
                calls_that_are_given_up_are_each_followed_by_a_probe
                executions_are_accounted_for_under_cuts stalled_server_overloads
            ],
            outages: [
                killed_server_heals_after_restart restarted_port_heals
                kill_in_a_script_is_ambiguous frozen_server_times_out_and_heals
                killed_connection_is_replaced rotated_password_heals
                connecting_is_spaced_out transport_outlives_its_runtime replica_is_refused_without_a_storm
                replaced_connection_serves_after_failover concurrent_calls_share_one_attempt
            ],
        );
    };
}
