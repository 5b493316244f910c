//! A proxy loses requests and replies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use delayline_core::{ErrorClass, ErrorKind};
use delayline_redis_protocol::{CallError, MAX_CALLS_IN_FLIGHT};
use delayline_test_server::Server;
use delayline_test_server::proxy::{Fault, Proxy};

use super::{
    Connect, HEALING, PATIENCE, calls, connected, eval, executions, failed, heals, impatient,
    increment, options, until,
};

/// How many calls cuts must meet before they are counted up.
const CUT_CALLS: i64 = 50;

async fn behind_proxy() -> (Server, Proxy) {
    let server = Server::start();
    let proxy = Proxy::start(&server).await.unwrap();
    (server, proxy)
}

pub async fn lost_reply_is_ambiguous_and_executed_once<C: Connect>() {
    let (server, proxy) = behind_proxy().await;
    let transport = connected::<C>(proxy.url()).await;
    for round in 1..=3 {
        proxy.once(Fault::CutAfterExecution, "EVAL");
        let error = failed(increment(&transport).await);
        assert_eq!(error.kind(), &ErrorKind::ConnectionLost);
        assert!(error.detail().contains(proxy.url()), "{error}");
        assert_eq!(executions(&server), round, "before the caller finds out");
        heals(&transport).await;
        assert_eq!(executions(&server), round);
    }
    assert_eq!(proxy.faults(), 3);
}

pub async fn lost_request_is_ambiguous_and_not_executed<C: Connect>() {
    let (server, proxy) = behind_proxy().await;
    let transport = connected::<C>(proxy.url()).await;
    proxy.once(Fault::CutBeforeRequest, "EVAL");
    // The client can't know that.
    assert_eq!(failed(increment(&transport).await).class(), ErrorClass::Ambiguous);
    heals(&transport).await;
    assert_eq!(executions(&server), 0);
}

pub async fn swallowed_reply_times_out_and_heals<C: Connect>() {
    let (server, proxy) = behind_proxy().await;
    let transport = C::connect(&impatient(proxy.url())).await.unwrap();
    // The connection stays dark permanently: only a new one helps.
    proxy.once(Fault::Blackhole, "EVAL");
    let begin = Instant::now();
    let error = failed(increment(&transport).await);
    assert_eq!(error.kind(), &ErrorKind::Timeout);
    assert!(error.detail().contains(proxy.url()), "{error}");
    assert!(begin.elapsed() < HEALING, "{:?}", begin.elapsed());
    heals(&transport).await;
    assert!(increment(&transport).await.is_ok());
    assert!(executions(&server) <= 2);
}

pub async fn blackhole_times_out_and_heals<C: Connect>() {
    let (server, proxy) = behind_proxy().await;
    let transport = C::connect(&impatient(proxy.url())).await.unwrap();
    proxy.set(Fault::Blackhole);
    let begin = Instant::now();
    assert_eq!(failed(increment(&transport).await).kind(), &ErrorKind::Timeout);
    // Now nothing is sent any more, because no connection can be made.
    for _ in 0..3 {
        assert_eq!(failed(increment(&transport).await).kind(), &ErrorKind::Unreachable);
    }
    assert!(begin.elapsed() < PATIENCE, "{:?}", begin.elapsed());
    proxy.heal();
    heals(&transport).await;
    // Whether the first one passed in the end is the proxy's business; the others were not sent.
    assert!(executions(&server) <= 1);
}

pub async fn delay_below_the_timeout_is_harmless<C: Connect>() {
    let (server, proxy) = behind_proxy().await;
    let transport = connected::<C>(proxy.url()).await;
    // More than the driver's own default of 500 ms.
    proxy.once(Fault::Delay(Duration::from_millis(900)), "EVAL");
    assert!(increment(&transport).await.is_ok());
    assert_eq!(executions(&server), 1);
}

pub async fn dropped_call_harms_nobody<C: Connect>() {
    let (server, proxy) = behind_proxy().await;
    let transport = Arc::new(connected::<C>(proxy.url()).await);
    proxy.once(Fault::Delay(Duration::from_millis(300)), "EVAL");
    let caller = Arc::clone(&transport);
    let call = tokio::spawn(async move { increment(&*caller).await });
    proxy.wait_for_faults(1).await;
    call.abort();
    // Its reply arrives first, and must not be taken for the reply of the next call.
    let reply = eval(&*transport, "return {42}", &[]).await.unwrap();
    assert_eq!(format!("{reply:?}"), "Array([Int(42)])");
    assert_eq!(executions(&server), 1);
}

pub async fn callers_that_give_up_do_not_stop_an_attempt<C: Connect>() {
    let (server, proxy) = behind_proxy().await;
    let transport = connected::<C>(proxy.url()).await;
    let connections = || server.info("stats", "total_connections_received").parse::<u32>().unwrap();
    let (begin, before) = (Instant::now(), connections());
    // The fault first: a client may be connected again before this task continues.
    proxy.once(Fault::Delay(Duration::from_millis(500)), "PING");
    proxy.cut_all();
    loop {
        let call = eval(&transport, "return {1}", &[]);
        let answered = tokio::time::timeout(Duration::from_millis(50), call).await;
        // An earlier answer came over a connection that was not cut yet.
        if matches!(answered, Ok(Ok(_))) && proxy.faults() == 1 {
            break;
        }
        assert!(begin.elapsed() < HEALING);
    }
    // One is this look, one may have been lost to the cut.
    assert!(connections() - before <= 3);
}

pub async fn callers_that_give_up_leave_a_silent_connection<C: Connect>() {
    let (_server, proxy) = behind_proxy().await;
    let transport = C::connect(&impatient(proxy.url())).await.unwrap();
    // Dark permanently, and no caller waits long enough to find out.
    proxy.once(Fault::Blackhole, "EVAL");
    let begin = Instant::now();
    loop {
        let call = eval(&transport, "return {1}", &[]);
        if let Ok(Ok(_)) = tokio::time::timeout(Duration::from_millis(100), call).await {
            break;
        }
        assert!(begin.elapsed() < HEALING);
    }
    assert_eq!(proxy.faults(), 1);
}

pub async fn calls_that_are_given_up_are_each_followed_by_a_probe<C: Connect>() {
    let (server, proxy) = behind_proxy().await;
    let transport = Arc::new(connected::<C>(proxy.url()).await);
    let before = calls(&server, "ping");
    let begin = Instant::now();
    // A call that is dropped while a probe runs has no probe, so the count is not exact.
    for given_up in 1.. {
        proxy.once(Fault::Delay(Duration::from_millis(20)), "EVAL");
        let caller = Arc::clone(&transport);
        let call = tokio::spawn(async move { increment(&*caller).await });
        proxy.wait_for_faults(given_up).await;
        call.abort();
        if calls(&server, "ping") >= before + 3 {
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "{given_up} calls were given up, without three probes");
    }
    assert!(increment(&*transport).await.is_ok());
}

pub async fn executions_are_accounted_for_under_cuts<C: Connect>() {
    let (server, proxy) = behind_proxy().await;
    let transport = Arc::new(connected::<C>(proxy.url()).await);
    let (done, unknown) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(0)));
    let (stop, counts) = (Arc::new(AtomicBool::new(false)), (done.clone(), unknown.clone()));
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let (transport, stop) = (Arc::clone(&transport), Arc::clone(&stop));
            let (done, unknown) = counts.clone();
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    match increment(&*transport).await {
                        Ok(_) => done.fetch_add(1, Ordering::Relaxed),
                        Err(CallError::Failed(error)) if error.class() == ErrorClass::Ambiguous => {
                            unknown.fetch_add(1, Ordering::Relaxed)
                        }
                        Err(CallError::Failed(error))
                            if error.class() == ErrorClass::NotExecuted =>
                        {
                            // Not to spin until the next attempt to connect is due.
                            tokio::time::sleep(Duration::from_millis(1)).await;
                            continue;
                        }
                        Err(error) => panic!("{error:?}"),
                    };
                }
            })
        })
        .collect();
    // Each cut comes after calls were answered over the connection that it ends.
    let begin = Instant::now();
    while unknown.load(Ordering::Relaxed) < CUT_CALLS {
        let answered = done.load(Ordering::Relaxed);
        until("answers", || done.load(Ordering::Relaxed) > answered).await;
        proxy.cut_all();
        assert!(begin.elapsed() < 3 * PATIENCE, "cuts do not meet calls");
    }
    stop.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.unwrap();
    }
    heals(&*transport).await;
    let executions = executions(&server);
    let (done, unknown) = (done.load(Ordering::Relaxed), unknown.load(Ordering::Relaxed));
    assert!(
        (done..=done + unknown).contains(&executions),
        "{done} done, {unknown} unknown, but {executions} executions"
    );
}

pub async fn stalled_server_overloads<C: Connect>() {
    const TOO_MANY: usize = 100;
    let (server, proxy) = behind_proxy().await;
    let mut options = options(proxy.url());
    options.response_timeout = 3 * PATIENCE;
    let transport = Arc::new(C::connect(&options).await.unwrap());
    proxy.set(Fault::Blackhole);
    let refused = Arc::new(AtomicUsize::new(0));
    let callers: Vec<_> = (0..MAX_CALLS_IN_FLIGHT + TOO_MANY)
        .map(|_| {
            let (transport, refused) = (Arc::clone(&transport), Arc::clone(&refused));
            tokio::spawn(async move {
                let error = failed(increment(&*transport).await);
                assert_eq!(error.kind(), &ErrorKind::Overloaded);
                refused.fetch_add(1, Ordering::Relaxed);
            })
        })
        .collect();
    until("refusals", || refused.load(Ordering::Relaxed) == TOO_MANY).await;
    assert_eq!(executions(&server), 0, "all requests are held");
    // Dropped calls make room.
    for caller in callers {
        caller.abort();
        let _ = caller.await;
    }
    proxy.heal();
    heals(&*transport).await;
}
