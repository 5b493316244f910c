//! Leases that carry their shard.

use delayline_core::Lease;

/// The lease on a message of this shard, which carries the shard. Only a message with a group needs
/// it, if its id alone names another shard.
pub(super) fn marked(lease: Lease, shard: usize) -> Lease {
    let mark = (shard as u64 + 1) << EPOCH_BITS;
    Lease { epoch: lease.epoch | mark, ..lease }
}

/// The shard of a marked lease.
pub(super) fn home_of(lease: Lease, shards: usize) -> Option<usize> {
    let shard = usize::try_from(lease.epoch >> EPOCH_BITS).ok()?.checked_sub(1)?;
    (shard < shards).then_some(shard)
}

/// The lease as its shard has granted it.
pub(super) fn plain(lease: Lease, shards: usize) -> Lease {
    if home_of(lease, shards).is_some() { Lease { epoch: epoch_of(lease), ..lease } } else { lease }
}

/// The number of claims of the message, without a mark.
pub(crate) fn epoch_of(lease: Lease) -> u64 {
    lease.epoch & ((1 << EPOCH_BITS) - 1)
}

/// The bits of an epoch that count the claims of a message. The mark is above them, and both are
/// within the integers that JavaScript represents exactly.
const EPOCH_BITS: u32 = 46;
