//! Which of a cluster's 16,384 hash slots a key belongs to.

/// How many slots a cluster has.
pub(crate) const SLOTS: u16 = 16_384;

/// The slot of a key: of what stands between its first braces, or of the whole key where they hold
/// nothing. The rule of `CLUSTER KEYSLOT`.
pub(crate) fn slot_of(key: &[u8]) -> u16 {
    crc16(hash_tag(key).unwrap_or(key)) % SLOTS
}

fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|byte| *byte == b'{')?;
    let tag = key.get(open + 1..)?;
    let close = tag.iter().position(|byte| *byte == b'}')?;
    tag.get(..close).filter(|tag| !tag.is_empty())
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        let index = usize::from((crc >> 8) as u8 ^ byte);
        (crc << 8) ^ TABLE[index]
    })
}

const TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut index: u16 = 0;
    while index < 256 {
        let mut crc = index << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[index as usize] = crc;
        index += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use delayline_test_server::Reply;
    use proptest::collection::vec;
    use proptest::sample::select;
    use proptest::strategy::{Strategy, ValueTree};
    use proptest::test_runner::TestRunner;

    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot_of(b"foo"), 12_182);
        assert_eq!(slot_of(b""), 0);
    }

    #[test]
    fn slots_are_those_of_a_server() {
        let server =
            delayline_test_server::Server::builder().tcp().config("cluster-enabled", "yes").start();
        let mut runner = TestRunner::deterministic();
        let keys = vec(select(&b"{}ab\0\xff"[..]), 0..12);
        let keys: Vec<Vec<u8>> =
            (0..500).map(|_| keys.new_tree(&mut runner).unwrap().current()).collect();
        let question = |key: &Vec<u8>| vec![b"CLUSTER".to_vec(), b"KEYSLOT".to_vec(), key.clone()];
        let answers = server.commands(&keys.iter().map(question).collect::<Vec<_>>());
        for (key, answer) in keys.iter().zip(answers) {
            assert_eq!(answer, Reply::Int(slot_of(key).into()), "{}", key.escape_ascii());
        }
    }

    #[test]
    fn keys_with_one_tag_share_a_slot() {
        let slot = slot_of(b"orders");
        for key in ["{orders}", "delayline:{orders}:index", "a{orders}b{other}", "x{orders}}"] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
        for key in ["{}orders", "{orders", "orders}", "}orders{"] {
            assert_eq!(slot_of(key.as_bytes()), crc16(key.as_bytes()) % SLOTS, "{key}");
        }
    }
}
