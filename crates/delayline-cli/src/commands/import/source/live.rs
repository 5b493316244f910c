//! A sorted set whose producers still run.
//!
//! Each entry that is read gets a mark in a hash: a token, the score and a digest of the payload.
//! The same entry has the same token until it is taken, also after a kill. An entry that has
//! changed, or that was taken and added again, gets another. So an entry that is sent with the
//! token is sent once in effect, and it is removed only if unchanged.

use bytes::Bytes;
use delayline::Timestamp;
use delayline::limits::MAX_UPDATE_BYTES;
use delayline::update::UpdateToken;
use delayline_redis_protocol::Value;
use uuid::Uuid;

use super::{Source, array, due, number, strange};
use crate::args::Unit;
use crate::failure::Failure;

/// The keys of the sorted set.
pub(in super::super) struct Followed {
    pub(in super::super) key: String,
    pub(in super::super) unit: Unit,
    /// A hash with the payloads; otherwise the members are.
    pub(in super::super) payloads: Option<String>,
}

/// An entry as it was read.
pub(in super::super) struct Looked {
    pub(in super::super) member: Bytes,
    pub(in super::super) score: f64,
    /// When it is due, or why its due time cannot be read.
    pub(in super::super) due: Result<Timestamp, &'static str>,
    /// Or why it cannot be sent.
    pub(in super::super) payload: Result<Bytes, &'static str>,
    /// The token of its mark.
    pub(in super::super) seed: Bytes,
}

impl Looked {
    /// The token to send it with.
    pub(in super::super) fn token(&self) -> Option<UpdateToken> {
        let text = std::str::from_utf8(&self.seed).ok()?;
        Some(UpdateToken::from_bytes(u64::from_str_radix(text, 16).ok()?.to_be_bytes()))
    }
}

/// The outcome for an entry that was to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Taken {
    /// It is no longer in the sorted set.
    Removed,
    /// Another client had removed it. It keeps its mark until it is forgotten.
    Gone,
    /// It has changed, or another import has it.
    Changed,
}

impl Followed {
    /// The key of the hash with the marks.
    pub(in super::super) fn marks(&self) -> String {
        marks(&self.key)
    }

    fn keys(&self) -> Vec<String> {
        let keys = [Some(self.key.clone()), Some(self.marks()), self.payloads.clone()];
        keys.into_iter().flatten().collect()
    }
}

fn marks(key: &str) -> String {
    format!("{key}:delayline-import")
}

impl Source {
    /// Fails if an import that followed the producers of this sorted set was killed.
    pub(in super::super) async fn check_unfollowed(&self, key: &str) -> Result<(), Failure> {
        let marks = marks(key);
        match self.ask("EXISTS", vec![marks.clone().into()]).await? {
            Value::Int(0) => Ok(()),
            _ => Err(Failure::usage(format!(
                "an import with --live runs or was killed: the key {marks} has its marks"
            ))
            .hint(
                "nothing was done; run it again with --live --until-empty, which deletes the key",
            )),
        }
    }

    /// Fails if a key has something else, or if the server refuses what following needs. Changes
    /// nothing.
    pub(in super::super) async fn check_following(&self, of: &Followed) -> Result<(), Failure> {
        let marks = of.marks();
        self.check_type(&marks, "hash").await?;
        let (key, marks): (Bytes, Bytes) = (of.key.clone().into(), marks.into());
        let words = |words: &[&'static str]| -> Vec<Bytes> {
            words.iter().map(|word| Bytes::from_static(word.as_bytes())).collect()
        };
        let with = |key: &Bytes, rest: &[&'static str]| [vec![key.clone()], words(rest)].concat();
        let mut needed = vec![
            ("ZRANGE", with(&key, &["0", "0", "WITHSCORES"])),
            ("ZSCORE", with(&key, &[""])),
            ("ZREM", with(&key, &[""])),
            ("HSCAN", with(&marks, &["0"])),
            ("HGET", with(&marks, &[""])),
            ("HSET", with(&marks, &["", ""])),
            ("HDEL", with(&marks, &[""])),
        ];
        if let Some(payloads) = &of.payloads {
            let payloads = payloads.clone().into();
            needed.push(("HGET", with(&payloads, &[""])));
            needed.push(("HDEL", with(&payloads, &[""])));
        }
        needed.push(("EVAL", script_args("return 0", of, [])));
        self.ask("MULTI", Vec::new()).await?;
        for (command, args) in needed {
            self.ask(command, args).await?;
        }
        self.ask("DISCARD", Vec::new()).await?;
        Ok(())
    }

    /// Reads up to `count` entries, without the first `skip`, and marks the ones that may be sent.
    pub(in super::super) async fn look(
        &self,
        of: &Followed,
        skip: u64,
        count: u64,
    ) -> Result<Vec<Looked>, Failure> {
        let random = UpdateToken::from_uuid(Uuid::new_v4().into_bytes());
        let random = format!("{:016x}", u64::from_be_bytes(*random.as_bytes()));
        let (first, last) = (skip.to_string(), (skip + count - 1).to_string());
        let most = MAX_UPDATE_BYTES.to_string();
        let args = [first, last, most, random].map(Bytes::from);
        let looked = array(self.ask("EVAL", script_args(LOOK, of, args)).await?)?;
        let (entries, []) = looked.as_chunks::<4>() else { return Err(strange()) };
        let entry = |[member, score, payload, seed]: &[Option<Bytes>; 4]| {
            let seed = seed.clone().unwrap_or_default();
            let score = number(score.as_deref());
            Looked {
                member: member.clone().unwrap_or_default(),
                score,
                due: due(score, of.unit),
                payload: match payload {
                    None => Err("it has no payload"),
                    Some(_) if seed.is_empty() => Err(TOO_LARGE),
                    Some(payload) => Ok(payload.clone()),
                },
                seed,
            }
        };
        Ok(entries.iter().map(entry).collect())
    }

    /// Removes those from the sorted set that are as they were looked at, with what belongs to
    /// them.
    pub(in super::super) async fn take(
        &self,
        of: &Followed,
        entries: &[(Bytes, Bytes)],
    ) -> Result<Vec<Taken>, Failure> {
        self.settle(of, "take", entries).await
    }

    /// Forgets the marks.
    pub(in super::super) async fn forget(
        &self,
        of: &Followed,
        entries: &[(Bytes, Bytes)],
    ) -> Result<(), Failure> {
        self.settle(of, "forget", entries).await.map(drop)
    }

    /// Marks of an import that was killed, from a cursor on, whose entries are gone; and the next
    /// cursor, which is 0 after the last.
    pub(in super::super) async fn gone(
        &self,
        of: &Followed,
        cursor: &str,
    ) -> Result<(String, Vec<(Bytes, Bytes)>), Failure> {
        let args = [of.marks(), cursor.to_owned(), "COUNT".to_owned(), "100".to_owned()];
        let reply = self.ask("HSCAN", args.map(Bytes::from).to_vec()).await?;
        let Value::Array(parts) = reply else { return Err(strange()) };
        let Ok([Value::Bytes(cursor), marks]) = <[Value; 2]>::try_from(parts) else {
            return Err(strange());
        };
        let cursor = String::from_utf8(cursor.into()).map_err(|_| strange())?;
        let marks = array(marks)?;
        let (pairs, _) = marks.as_chunks::<2>();
        let marks: Vec<(Bytes, Bytes)> = pairs
            .iter()
            .filter_map(|[member, mark]| {
                let mark = mark.as_ref()?;
                Some((member.clone()?, mark.slice(..mark.len().min(SEED))))
            })
            .collect();
        let mut gone = Vec::new();
        for marks in marks.chunks(100) {
            let found = self.settle(of, "find", marks).await?;
            let marks = marks.iter().zip(found).filter(|(_, found)| *found == Taken::Gone);
            gone.extend(marks.map(|(mark, _)| mark.clone()));
        }
        Ok((cursor, gone))
    }

    async fn settle(
        &self,
        of: &Followed,
        how: &'static str,
        entries: &[(Bytes, Bytes)],
    ) -> Result<Vec<Taken>, Failure> {
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let how = [Bytes::from_static(how.as_bytes())];
        let entries = entries.iter().flat_map(|(member, seed)| [member.clone(), seed.clone()]);
        let args = script_args(SETTLE, of, how.into_iter().chain(entries));
        let taken = array(self.ask("EVAL", args).await?)?;
        let taken = taken.iter().map(|outcome| match outcome.as_deref() {
            Some(b"0") => Ok(Taken::Changed),
            Some(b"1") => Ok(Taken::Removed),
            Some(b"2") => Ok(Taken::Gone),
            _ => Err(strange()),
        });
        taken.collect()
    }
}

fn script_args(
    script: &'static str,
    of: &Followed,
    args: impl IntoIterator<Item = Bytes>,
) -> Vec<Bytes> {
    let keys = of.keys();
    let count = Bytes::from(keys.len().to_string());
    let front = [Bytes::from_static(script.as_bytes()), count];
    front.into_iter().chain(keys.into_iter().map(Bytes::from)).chain(args).collect()
}

/// Length of a token as a mark has it.
const SEED: usize = 16;

const TOO_LARGE: &str = "its payload is larger than 16 KiB; import it without --live once the old producers have stopped";

/// Keys: the sorted set, the marks and, if members are not the payloads, their hash. Arguments:
/// first and last rank, the most bytes of a payload, a random token. Returns member, score, payload
/// and token of each; no token if the payload is too large.
const LOOK: &str = "
local looked = {}
local found = redis.call('ZRANGE', KEYS[1], ARGV[1], ARGV[2], 'WITHSCORES')
for i = 1, #found, 2 do
  local member, score, payload, token = found[i], found[i + 1], found[i], ''
  if KEYS[3] then payload = redis.call('HGET', KEYS[3], member) end
  if payload and #payload > tonumber(ARGV[3]) then
    payload = ''
  elseif payload then
    local state = score .. ' ' .. redis.sha1hex(payload)
    local mark = redis.call('HGET', KEYS[2], member)
    if mark and string.sub(mark, 18) == state then
      token = string.sub(mark, 1, 16)
    else
      token = ARGV[4]
      redis.call('HSET', KEYS[2], member, token .. ' ' .. state)
    end
  end
  looked[#looked + 1] = member
  looked[#looked + 1] = score
  looked[#looked + 1] = payload
  looked[#looked + 1] = token
end
return looked
";

/// Keys as before. Arguments: what to do, then member and token of each. Returns for each whether
/// it was taken (1), is gone (2), or neither (0). The mark of one that is gone fits no entry any
/// more: if a client adds the same entry again, it gets another token, and is sent again.
const SETTLE: &str = "
local outcomes = {}
for i = 2, #ARGV, 2 do
  local member, outcome = ARGV[i], 0
  local mark = redis.call('HGET', KEYS[2], member)
  if mark and string.sub(mark, 1, 16) == ARGV[i + 1] then
    local score = redis.call('ZSCORE', KEYS[1], member)
    if ARGV[1] == 'forget' then
      redis.call('HDEL', KEYS[2], member)
    elseif not score then
      redis.call('HSET', KEYS[2], member, ARGV[i + 1] .. ' gone')
      outcome = 2
    elseif ARGV[1] == 'take' then
      local payload = member
      if KEYS[3] then payload = redis.call('HGET', KEYS[3], member) end
      if payload and string.sub(mark, 18) == score .. ' ' .. redis.sha1hex(payload) then
        redis.call('ZREM', KEYS[1], member)
        if KEYS[3] then redis.call('HDEL', KEYS[3], member) end
        redis.call('HDEL', KEYS[2], member)
        outcome = 1
      end
    end
  end
  outcomes[#outcomes + 1] = outcome
end
return outcomes
";
