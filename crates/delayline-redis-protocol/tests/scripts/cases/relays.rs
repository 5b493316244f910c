//! The elements that a relay puts into lists and streams, and its refusals (G28).

use delayline_core::{DeathReason, Element, ErrorClass, Found, Relayed, limits};
use delayline_redis_protocol::layout::codes::form;
use delayline_redis_protocol::layout::record;

use super::*;

struct Scene<C: Connect> {
    server: Server,
    queue: ScriptBackend<C::Transport>,
}

impl<C: Connect> Scene<C> {
    async fn start() -> Self {
        let server = Server::start();
        let queue = open::<C>(&server.url()).await.unwrap();
        Self { server, queue }
    }

    async fn relay(&self, ms: u64, op: Op) -> Relayed {
        match apply(&self.queue, ms, op).await {
            Reply::Relay(relayed) => relayed,
            other => panic!("{other:?}"),
        }
    }

    async fn ids(&self, ms: u64, op: Op) -> Vec<String> {
        self.relay(ms, op).await.ids.iter().map(ToString::to_string).collect()
    }

    /// The elements of the list, in the order in which `LPOP` gives them.
    fn list(&self) -> Vec<Vec<u8>> {
        texts(self.server.command(&["LRANGE", LIST, "0", "-1"]))
    }

    /// The fields of each entry of the stream.
    fn stream(&self) -> Vec<Vec<Vec<u8>>> {
        let Raw::Array(entries) = self.server.command(&["XRANGE", STREAM, "-", "+"]) else {
            panic!("no entries")
        };
        let fields = |entry: Raw| match entry {
            Raw::Array(mut entry) => texts(entry.remove(1)),
            other => panic!("{other:?}"),
        };
        entries.into_iter().map(fields).collect()
    }

    /// Everything on the server.
    fn everything(&self) -> Vec<Raw> {
        let mut keys = self.queue.keys().all().to_vec();
        keys.extend([LIST, STREAM].map(bytes::Bytes::from));
        dump(&self.server, &keys)
    }

    /// What an operation is refused with, before it has changed anything.
    async fn refusal(&self, ms: u64, op: &Op) -> Error {
        let before = self.everything();
        let error = self.queue.apply(at(ms), op).await.unwrap_err();
        assert_eq!(self.everything(), before, "{error}");
        error
    }
}

fn texts(reply: Raw) -> Vec<Vec<u8>> {
    let text = |item| match item {
        Raw::BulkString(bytes) => bytes,
        other => panic!("{other:?}"),
    };
    reply.into_sequence().unwrap().into_iter().map(text).collect()
}

/// A message of every kind of record: small and large, with and without headers, priority, limits
/// and expiry.
fn of_every_kind() -> Vec<NewMessage> {
    let mut all = Vec::new();
    for length in [0, 1, 4_096, 4_097, 70_000] {
        for (headers, special) in [(0, false), (0, true), (2, false), (32, true)] {
            let mut message = message(&format!("{length}/{headers}/{special}\0\r\n"));
            message.payload = (0..=255).cycle().take(length).collect::<Vec<u8>>().into();
            for n in 0..headers {
                let value = vec![255 - n; usize::from(n) * 5];
                message.headers.set(format!("name-{n}"), value).unwrap();
            }
            if special {
                message.max_failures = 3;
                message.expires = Some(Schedule::In(millis(1_000)));
            }
            all.push(message);
        }
    }
    all
}

pub(crate) async fn each_message_becomes_one_element_of_a_list<C: Connect>() {
    let scene = Scene::<C>::start().await;
    let messages = of_every_kind();
    apply(&scene.queue, 0, Op::Enqueue(messages.clone())).await;
    // One was delivered before.
    apply(&scene.queue, 0, claim(1, 1)).await;
    let first = String::from_utf8(messages[0].id.as_bytes().to_vec()).unwrap();
    apply(&scene.queue, 0, settle(&first, 1, Outcome::Release)).await;
    let payloads: Vec<_> = messages.iter().map(|message| message.payload.to_vec()).collect();
    assert_eq!(scene.relay(1, relay_to_list(7, None)).await.ids.len(), 7);
    assert_eq!(scene.relay(1, relay_to_list(100, None)).await.ids.len(), 13);
    assert_eq!(scene.list(), payloads);
    // Nothing is left of them but that they have finished.
    for key in [INDEX, RECORDS, DETAILS, CONTENTS] {
        let key = &scene.queue.keys().all()[key];
        assert_eq!(scene.server.binary_command(&[b"EXISTS", &key[..]]), Raw::Int(0), "{key:?}");
    }
    let many = (0..limits::MAX_BATCH).map(|n| message(&format!("m{n}")));
    apply(&scene.queue, 2, Op::Enqueue(many.collect())).await;
    scene.relay(3, relay_to_list(limits::MAX_BATCH, None)).await;
    let list = scene.list();
    assert_eq!((list.len(), &list[1019][..]), (1_020, &b"payload of m999"[..]));
    assert_eq!(findings(&scene.queue, 4).await, []);
}

pub(crate) async fn each_message_becomes_one_entry_of_a_stream<C: Connect>() {
    let scene = Scene::<C>::start().await;
    let messages = of_every_kind();
    apply(&scene.queue, 5, Op::Enqueue(messages.clone())).await;
    assert_eq!(scene.relay(9, relay_to_stream(100, None)).await.ids.len(), messages.len());
    let At::Fixed(due) = at(5) else { unreachable!() };
    let expected = messages.iter().map(|message| {
        let due = due.as_ms().to_string();
        let mut fields: Vec<(String, &[u8])> = vec![
            (Element::ID.to_owned(), message.id.as_bytes()),
            (Element::DUE.to_owned(), due.as_bytes()),
            (Element::PAYLOAD.to_owned(), &message.payload),
        ];
        for (name, value) in message.headers.iter() {
            fields.push((format!("{}{name}", Element::HEADER), value));
        }
        fields.into_iter().flat_map(|(name, value)| [name.into_bytes(), value.to_vec()]).collect()
    });
    let expected: Vec<Vec<Vec<u8>>> = expected.collect();
    assert_eq!(scene.stream(), expected);
    assert_eq!(
        &scene.stream()[0][..5],
        [&b"id"[..], b"0/0/false\0\r\n", b"due", due.as_ms().to_string().as_bytes(), b"payload"]
    );
}

pub(crate) async fn a_full_server_refuses_before_anything_is_done<C: Connect>() {
    let scene = Scene::<C>::start().await;
    // A message is due, and a lease has run out.
    fill(&scene.queue).await;
    scene.server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    for op in [relay_to_list(10, Some(5)), relay_to_stream(10, None)] {
        for ms in [4_500, 6_000] {
            let error = scene.refusal(ms, &op).await;
            assert_eq!(
                (error.kind(), error.class()),
                (&ErrorKind::OutOfMemory, ErrorClass::NotExecuted)
            );
        }
    }
    scene.server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(scene.ids(6_000, relay_to_list(10, Some(5))).await, ["ready"]);
}

pub(crate) async fn destinations_of_another_type_are_refused_before_anything_is_done<C: Connect>() {
    let scene = Scene::<C>::start().await;
    fill(&scene.queue).await;
    scene.server.command(&["SADD", LIST, "not a list"]);
    scene.server.command(&["RPUSH", STREAM, "not a stream"]);
    for ms in [4_500, 6_000] {
        for op in [relay_to_list(10, None), relay_to_stream(10, None), relay_to_stream(10, Some(1))]
        {
            let error = scene.refusal(ms, &op).await;
            assert_eq!(
                (error.kind(), error.class()),
                (&ErrorKind::WrongType, ErrorClass::Rejected)
            );
        }
    }
}

pub(crate) async fn a_denied_destination_is_named_before_anything_is_done<C: Connect>() {
    for (op, command, allowed) in [
        (relay_to_list(10, None), "RPUSH", "+@all -rpush ~*"),
        (relay_to_stream(10, None), "XADD", "+@all -xadd ~*"),
        (relay_to_list(10, None), "LLEN", "+@all ~delayline:*"),
        (relay_to_stream(10, None), "XADD", "+@all ~delayline:*"),
    ] {
        let rules = format!("worker on >secret resetkeys {allowed}");
        let server = Server::builder().acl_user(&rules).start();
        let asks = Capability::RightsAreAsked.is_of(&server);
        let queue = open::<C>(&server.url_with_login("worker", "secret")).await.unwrap();
        let scene = Scene::<C> { server, queue };
        fill(&scene.queue).await;
        for ms in [4_500, 6_000] {
            let error = scene.refusal(ms, &op).await;
            if asks {
                assert_eq!(error.kind(), &ErrorKind::PermissionDenied, "{error}");
                let key = if matches!(&op, Op::Relay(relay) if matches!(relay.to, Destination::List { .. }))
                {
                    LIST
                } else {
                    STREAM
                };
                let named = format!("{command} on the destination {key}");
                assert!(error.detail().contains(&named), "{error}");
            }
        }
    }
}

pub(crate) async fn a_group_that_keeps_up_lets_more_through<C: Connect>() {
    let scene = Scene::<C>::start().await;
    let names = ["a", "b", "c", "d", "e", "f"];
    apply(&scene.queue, 0, Op::Enqueue(names.map(message).to_vec())).await;
    let relay = || relay_to_stream(10, Some(2));
    // Until the group exists, all entries count.
    let first = scene.relay(1, relay()).await;
    assert_eq!((first.ids.len(), first.held_back), (2, true));
    assert!(scene.relay(1, relay()).await.held_back);
    // This group has seen them, and the other one does not matter.
    scene.server.command(&["XGROUP", "CREATE", STREAM, "g", "$"]);
    scene.server.command(&["XGROUP", "CREATE", STREAM, "other", "0"]);
    let has_lag = Capability::GroupsHaveLag.is_of(&scene.server);
    if !has_lag {
        let error = scene.refusal(1, &relay()).await;
        assert_eq!(error.kind(), &ErrorKind::Unsupported("a stream's backlog"));
        return;
    }
    assert_eq!(scene.ids(1, relay()).await, ["c", "d"]);
    assert!(scene.relay(1, relay()).await.held_back, "two are not read");
    let read = |count: &str| {
        let command = ["XREADGROUP", "GROUP", "g", "me", "COUNT", count, "STREAMS", STREAM, ">"];
        scene.server.command(&command);
    };
    read("1");
    assert!(scene.relay(1, relay()).await.held_back, "one is not read, one is pending");
    read("1");
    let Raw::Array(pending) = scene.server.command(&["XPENDING", STREAM, "g", "-", "+", "9"])
    else {
        panic!("nothing is pending")
    };
    for entry in &pending {
        let Raw::Array(entry) = entry else { panic!("{entry:?}") };
        let Raw::BulkString(id) = &entry[0] else { panic!("{entry:?}") };
        assert!(scene.relay(1, relay()).await.held_back || pending.len() == 1);
        scene.server.binary_command(&[b"XACK", STREAM.as_bytes(), b"g", id]);
        let one = scene.relay(1, relay()).await;
        assert_eq!(one.ids.len(), 1, "there is room for one more");
    }
    assert_eq!(scene.stream().len(), 6, "an XACK makes a stream no shorter");
}

/// What the server says of the entries that the group `g` has not read.
fn lag(scene: &Scene<impl Connect>) -> Option<i64> {
    let groups = scene.server.command(&["XINFO", "GROUPS", STREAM]).into_sequence().unwrap();
    let fields = groups.into_iter().next().unwrap();
    let Raw::Array(fields) = fields else { panic!("{fields:?}") };
    let name = fields.iter().position(|field| *field == Raw::BulkString(b"lag".to_vec()));
    match fields[name.unwrap() + 1] {
        Raw::Int(lag) => Some(lag),
        _ => None,
    }
}

pub(crate) async fn a_backlog_that_nobody_knows_is_at_most_the_stream<C: Connect>() {
    let scene = Scene::<C>::start().await;
    if !Capability::GroupsHaveLag.is_of(&scene.server) {
        return;
    }
    let names = ["a", "b", "c", "d", "e"];
    apply(&scene.queue, 0, Op::Enqueue(names.map(message).to_vec())).await;
    scene.relay(1, relay_to_stream(3, None)).await;
    scene.server.command(&["XGROUP", "CREATE", STREAM, "g", "0"]);
    let read = |count: &str| {
        let command = ["XREADGROUP", "GROUP", "g", "me", "COUNT", count, "STREAMS", STREAM, ">"];
        scene.server.command(&command);
    };
    read("1");
    // An entry in the middle is deleted: now the server does not know how many are unread.
    let Raw::Array(entries) = scene.server.command(&["XRANGE", STREAM, "-", "+"]) else { panic!() };
    let Raw::Array(second) = &entries[1] else { panic!() };
    let Raw::BulkString(second) = &second[0] else { panic!() };
    scene.server.binary_command(&[b"XDEL", STREAM.as_bytes(), second]);
    assert_eq!(lag(&scene), None);
    // Two entries at most, and one that is pending.
    let full = scene.relay(2, relay_to_stream(9, Some(3))).await;
    assert_eq!((full.ids.len(), full.held_back), (0, true));
    let more = scene.relay(2, relay_to_stream(9, Some(4))).await;
    assert_eq!((more.ids, more.held_back), (vec![id("d")], true));
    // The group has read all three and acknowledged none. Redis 7.0 counts the deleted one as
    // unread.
    read("9");
    assert!(scene.relay(2, relay_to_stream(9, Some(3))).await.held_back);
    assert_eq!(scene.ids(2, relay_to_stream(9, Some(5))).await, ["e"]);
}

pub(crate) async fn a_backlog_that_somebody_has_misstated_is_at_most_the_stream<C: Connect>() {
    let scene = Scene::<C>::start().await;
    if !Capability::GroupsHaveLag.is_of(&scene.server) {
        return;
    }
    let names = ["a", "b", "c", "d", "e"];
    apply(&scene.queue, 0, Op::Enqueue(names.map(message).to_vec())).await;
    scene.relay(1, relay_to_stream(3, None)).await;
    scene.server.command(&["XGROUP", "CREATE", STREAM, "g", "0", "ENTRIESREAD", "1000"]);
    // Other servers believe no more than there are entries.
    if lag(&scene) == Some(-997) {
        assert!(scene.relay(2, relay_to_stream(9, Some(3))).await.held_back, "three are unread");
    }
    scene.server.command(&["XGROUP", "DESTROY", STREAM, "g"]);
    scene.server.command(&["XTRIM", STREAM, "MAXLEN", "1"]);
    scene.server.command(&["XGROUP", "CREATE", STREAM, "g", "0", "ENTRIESREAD", "0"]);
    let one = scene.relay(2, relay_to_stream(9, Some(2))).await;
    assert_eq!((one.ids, one.held_back), (vec![id("d")], true), "there is one entry");
}

pub(crate) async fn a_stream_without_numbers_left_refuses_before_anything_is_done<C: Connect>() {
    let scene = Scene::<C>::start().await;
    fill(&scene.queue).await;
    let last = "18446744073709551615-18446744073709551615";
    scene.server.command(&["XADD", STREAM, last, "f", "v"]);
    for ms in [4_500, 6_000] {
        let error = scene.refusal(ms, &relay_to_stream(10, None)).await;
        assert_eq!(error.kind(), &ErrorKind::Unsupported(FULL_STREAM), "{error}");
        assert_eq!(error.class(), ErrorClass::Rejected);
    }
}

const FULL_STREAM: &str = "a stream that has no id left for an entry";

pub(crate) async fn damaged_messages_are_buried_and_not_relayed<C: Connect>() {
    let scene = Scene::<C>::start().await;
    let mut large = message("large");
    large.payload = vec![b'l'; 5_000].into();
    let sound = message("sound");
    apply(&scene.queue, 0, Op::Enqueue(vec![message("lost"), message("short"), large, sound]))
        .await;
    let keys = scene.queue.keys().all();
    scene.server.binary_command(&[b"HDEL", &keys[RECORDS][..], b"lost"]);
    scene.server.binary_command(&[b"HSET", &keys[RECORDS][..], b"short", b"x"]);
    scene.server.binary_command(&[b"HDEL", &keys[CONTENTS][..], b"large"]);
    let relayed = scene.relay(1, relay_to_list(1, None)).await;
    assert_eq!(relayed.ids, [id("sound")]);
    let deaths: Vec<_> = relayed.deaths.iter().map(|it| (it.id.to_string(), it.reason)).collect();
    let unreadable = |name: &str| (name.to_owned(), DeathReason::Unreadable);
    assert_eq!(deaths, ["lost", "short", "large"].map(unreadable));
    assert_eq!(scene.list(), [b"payload of sound"]);
    let Reply::Get(found) = apply(&scene.queue, 2, Op::Get(vec![id("sound")])).await else {
        panic!()
    };
    assert_eq!(found, [Found::Finished(Status::Relayed)]);
    assert_eq!(findings(&scene.queue, 2).await, []);
}

/// Each header becomes two fields, and a server's Lua passes no more than 8,000 to a command.
pub(crate) async fn more_headers_than_a_message_has_are_buried_and_not_relayed<C: Connect>() {
    let scene = Scene::<C>::start().await;
    let names = ["before", "most", "more", "all", "after"];
    apply(&scene.queue, 0, Op::Enqueue(names.map(message).to_vec())).await;
    let records = scene.queue.keys().all()[RECORDS].clone();
    // Headers of three bytes, whose names and values are empty.
    for (name, headers) in [("most", 2_730_u16), ("more", 2_731), ("all", 21_845)] {
        let Raw::BulkString(mut bytes) =
            scene.server.binary_command(&[b"HGET", &records[..], name.as_bytes()])
        else {
            panic!("there is no {name}")
        };
        bytes.truncate(record::BYTES);
        bytes[record::FORM.offset.unwrap()] |= form::HEADED;
        bytes.extend((3 * headers).to_be_bytes());
        bytes.extend(vec![0; usize::from(3 * headers)]);
        scene.server.binary_command(&[b"HSET", &records[..], name.as_bytes(), &bytes]);
    }
    let relayed = scene.relay(1, relay_to_stream(10, None)).await;
    assert_eq!(relayed.ids, ["before", "most", "after"].map(id));
    let deaths: Vec<_> = relayed.deaths.iter().map(|it| (it.id.to_string(), it.reason)).collect();
    let unreadable = |name: &str| (name.to_owned(), DeathReason::Unreadable);
    assert_eq!(deaths, ["more", "all"].map(unreadable));
    let fields: Vec<_> = scene.stream().iter().map(Vec::len).collect();
    assert_eq!(fields, [6, 6 + 2 * 2_730, 6]);
    assert_eq!(findings(&scene.queue, 2).await, []);
    // Where headers do not matter, they do no harm.
    let ids = ["more", "all"].map(id).to_vec();
    apply(&scene.queue, 2, Op::Redrive(Redrive::new(ids, Schedule::NOW))).await;
    assert_eq!(scene.ids(3, relay_to_list(10, None)).await, ["more", "all"]);
}

pub(crate) async fn a_relay_that_is_held_back_does_not_ring<C: Connect>() {
    let scene = Scene::<C>::start().await;
    let rings = || {
        let bell = &scene.queue.keys().all()[BELL];
        scene.server.binary_command(&[b"DEL", &bell[..]]) == Raw::Int(1)
    };
    apply(&scene.queue, 0, Op::Enqueue(["a", "b", "c"].map(message).to_vec())).await;
    rings();
    scene.relay(1, relay_to_list(1, Some(2))).await;
    assert!(rings(), "another relay can move the next");
    // This one is full itself, and so is the list.
    assert!(scene.relay(2, relay_to_list(1, Some(2))).await.held_back);
    assert!(!rings());
    assert!(scene.relay(3, relay_to_list(5, Some(2))).await.held_back);
    assert!(!rings(), "relays that are held back would wake each other for ever");
    assert_eq!(scene.ids(4, relay_to_list(5, None)).await, ["c"]);
    assert!(!rings(), "nothing is left");
}
