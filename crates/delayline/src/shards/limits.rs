//! Limits of the queue, which its shards share.

use delayline_core::{Change, Rate, SetLimits, Violation};

/// The limits of each shard: those of the queue are divided, those of groups stay.
///
/// # Errors
///
/// If the number of shards does not divide a limit. The reason names the nearest limits that it
/// divides.
pub(super) fn share(set: &SetLimits, shards: usize) -> Result<SetLimits, Violation> {
    let mut part = *set;
    if let Change::Set(leased) = set.leased {
        part.leased = Change::Set(divided("the limit of leased messages", leased, shards)?);
    }
    if let Change::Set(rate) = set.rate {
        let count = divided("the rate's count", rate.count, shards)?;
        let burst = divided("the rate's burst", rate.burst, shards)?;
        part.rate = Change::Set(Rate::new(count, rate.per(), burst));
    }
    Ok(part)
}

fn divided(what: &'static str, limit: u32, shards: usize) -> Result<u32, Violation> {
    let shards = u32::try_from(shards).unwrap_or(u32::MAX);
    let (each, rest) = (limit / shards, limit % shards);
    if each > 0 && rest == 0 {
        return Ok(each);
    }
    let above = (each + 1).saturating_mul(shards);
    let nearest = match each {
        0 => above.to_string(),
        _ => format!("{} or {above}", each * shards),
    };
    let reason = format!("{shards} shards share it evenly; use {nearest}");
    Err(Violation::Malformed { what, value: limit.to_string(), reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_divided_or_refused_with_the_nearest() {
        assert_eq!(divided("limit", 96, 16), Ok(6));
        let refused = |limit| divided("the limit", limit, 16).unwrap_err().to_string();
        assert!(refused(100).ends_with("16 shards share it evenly; use 96 or 112"));
        assert!(refused(1).ends_with("use 16") && refused(15).ends_with("use 16"));
    }
}
